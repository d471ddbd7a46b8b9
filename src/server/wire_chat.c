/* wire_chat.c - POST /v1/chat/completions: OpenAI's chat, whole or as server-sent events.
 *
 * The order of a stream's chunks is what clients rely on: role once and first, deltas, one finish
 * chunk an answer, the usage chunk (the only one without choices) when asked, [DONE]. */
#include "server/params.h"

static gem_job *read_chat(gem_server *s, const json_t *body, gem_fault *f)
{
    gem_params p = {0};
    gem_dialogue *d = NULL;
    if (!gem_params_read(s, body, &p, f) || !gem_params_read_logprobs(body, &p, f) ||
        !gem_dialogue_read(s, body, &d, f)) {
        gem_params_deinit(&p);
        return NULL;
    }
    return gem_params_talk(s, &gem_wire_chat, &p, d, "chatcmpl-", f);
}

/* ---- log probabilities ---- */

static void put_token(const gem_server *s, int32_t token, float logprob, gem_bytes *out)
{
    size_t len;
    const char *text = gem_token_bytes(s->model, token, true, &len);
    gem_bytes_printf(out, "{\"token\":");
    gem_quote(out, text, len);
    gem_bytes_printf(out, ",\"logprob\":%.6f,\"bytes\":[", (double)logprob);
    for (size_t i = 0; i < len; i++)
        gem_bytes_printf(out, i ? ",%d" : "%d", (unsigned char)text[i]);
    gem_bytes_printf(out, "]");
}

static void put_logprobs(const gem_answer *a, size_t from, size_t to, gem_bytes *out)
{
    const gem_server *s = a->job->server;
    gem_bytes_printf(out, ",\"logprobs\":{\"content\":[");
    for (size_t i = from; i < to; i++) {
        const gem_logprob *lp = &a->logprob[i];
        if (i > from) gem_bytes_printf(out, ",");
        put_token(s, lp->token, lp->logprob, out);
        gem_bytes_printf(out, ",\"top_logprobs\":[");
        for (int k = 0; k < lp->n_top; k++) {
            if (k) gem_bytes_printf(out, ",");
            put_token(s, lp->top[k].token, lp->top[k].logprob, out);
            gem_bytes_printf(out, "}");
        }
        gem_bytes_printf(out, "]}");
    }
    gem_bytes_printf(out, "],\"refusal\":null}");
}

/* ---- stream ---- */

static void put_head(gem_job *j, const char *object)
{
    gem_bytes *b = &j->scratch;
    gem_bytes_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", j->id,
                     object, (long long)j->created);
    gem_quote_word(b, j->model);
    gem_bytes_printf(b, ",\"system_fingerprint\":\"%s\"", j->server->fingerprint);
}

static void begin(gem_job *j, int index)
{
    gem_bytes_printf(&j->scratch, "data: ");
    put_head(j, "chat.completion.chunk");
    gem_bytes_printf(&j->scratch, ",\"choices\":[{\"index\":%d,\"delta\":", index);
}

static void end_event(gem_job *j)
{
    gem_bytes_printf(&j->scratch, "}\n\n");
}

static void end_delta(gem_job *j)
{
    if (j->p.timings_per_token) {
        gem_bytes_printf(&j->scratch, ",\"timings\":");
        gem_put_timings(j, &j->scratch);
    }
    end_event(j);
}

static void open_chat(gem_job *j)
{
    for (size_t i = 0; i < j->n_answers; i++) {
        begin(j, (int)i);
        gem_bytes_printf(&j->scratch,
                         "{\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}]");
        if (i == 0 && j->p.return_progress) {
            gem_put_progress(&j->answer[0], j->answer[0].n_cached, &j->scratch);
            j->last_progress = j->answer[0].n_cached;
        }
        end_event(j);
    }
}

static void progress_chat(gem_job *j, const gem_answer *a, size_t done)
{
    if (done <= j->last_progress) return;
    j->last_progress = done;
    begin(j, 0);
    gem_bytes_printf(&j->scratch, "{},\"finish_reason\":null}]");
    gem_put_progress(a, done, &j->scratch);
    end_event(j);
}

static void text_chat(gem_job *j, gem_answer *a, const char *text, size_t len, size_t first)
{
    begin(j, a->index);
    gem_bytes_printf(&j->scratch, "{\"content\":");
    gem_quote(&j->scratch, text, len);
    gem_bytes_printf(&j->scratch, "}");
    if (j->p.logprobs) put_logprobs(a, first, a->n_sent, &j->scratch);
    gem_bytes_printf(&j->scratch, ",\"finish_reason\":null}]");
    end_delta(j);
}

static void reasoning_chat(gem_job *j, gem_answer *a, const char *text, size_t len)
{
    begin(j, a->index);
    gem_bytes_printf(&j->scratch, "{\"reasoning_content\":");
    gem_quote(&j->scratch, text, len);
    gem_bytes_printf(&j->scratch, "},\"finish_reason\":null}]");
    end_delta(j);
}

/* Id, type and name come once, with the call's first delta. */
static void call_chat(gem_job *j, gem_answer *a, size_t i)
{
    const gem_call *c = &a->call[i];
    begin(j, a->index);
    gem_bytes_printf(&j->scratch,
                     "{\"tool_calls\":[{\"index\":%zu,\"id\":\"%s\",\"type\":\"function\","
                     "\"function\":{\"name\":",
                     i, c->id);
    gem_quote(&j->scratch, c->name.data ? c->name.data : "", c->name.len);
    gem_bytes_printf(&j->scratch, ",\"arguments\":\"\"}}]},\"finish_reason\":null}]");
    end_event(j);
}

static void arguments_chat(gem_job *j, gem_answer *a, size_t i, const char *text, size_t len)
{
    begin(j, a->index);
    gem_bytes_printf(&j->scratch,
                     "{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", i);
    gem_quote(&j->scratch, text, len);
    gem_bytes_printf(&j->scratch, "}}]},\"finish_reason\":null}]");
    end_delta(j);
}

static void finish_chat(gem_job *j, gem_answer *a)
{
    begin(j, a->index);
    gem_bytes_printf(&j->scratch, "{},\"finish_reason\":\"%s\"}]", gem_finish_name(a->finish));
    if (j->n_left == 1 && !j->p.include_usage) {
        gem_bytes_printf(&j->scratch, ",\"timings\":");
        gem_put_timings(j, &j->scratch);
    }
    end_event(j);
}

static void close_chat(gem_job *j)
{
    if (j->p.include_usage) {
        gem_bytes_printf(&j->scratch, "data: ");
        put_head(j, "chat.completion.chunk");
        gem_bytes_printf(&j->scratch, ",\"choices\":[],\"usage\":");
        gem_put_usage(j, &j->scratch);
        gem_put_receipt(j, &j->scratch);
        gem_bytes_printf(&j->scratch, ",\"timings\":");
        gem_put_timings(j, &j->scratch);
        end_event(j);
    }
    gem_bytes_printf(&j->scratch, "data: [DONE]\n\n");
}

static void fail_chat(gem_job *j, const gem_fault *f)
{
    gem_bytes_printf(&j->scratch, "data: ");
    gem_fault_json(f, &j->scratch);
    gem_bytes_printf(&j->scratch, "\n\n");
}

/* ---- whole ---- */

static void put_message(const gem_answer *a, gem_bytes *out)
{
    gem_bytes_printf(out, "{\"role\":\"assistant\",\"content\":");
    if (!a->content.len && a->n_calls)
        gem_bytes_printf(out, "null");
    else
        gem_quote(out, a->content.data ? a->content.data : "", a->content.len);
    if (a->reasoning.len) {
        gem_bytes_printf(out, ",\"reasoning_content\":");
        gem_quote(out, a->reasoning.data, a->reasoning.len);
    }
    for (size_t i = 0; i < a->n_calls; i++) {
        const gem_call *c = &a->call[i];
        gem_bytes_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                         i ? "," : ",\"tool_calls\":[", c->id);
        gem_quote(out, c->name.data ? c->name.data : "", c->name.len);
        gem_bytes_printf(out, ",\"arguments\":");
        gem_quote(out, c->arguments.data ? c->arguments.data : "", c->arguments.len);
        gem_bytes_printf(out, "}}");
    }
    gem_bytes_printf(out, "%s,\"refusal\":null}", a->n_calls ? "]" : "");
}

static void document_chat(gem_job *j, gem_bytes *out)
{
    j->scratch.len = 0; /* the engine is done with it */
    put_head(j, "chat.completion");
    gem_bytes_put(out, j->scratch.data, j->scratch.len);
    gem_bytes_printf(out, ",\"choices\":[");
    for (size_t i = 0; i < j->n_answers; i++) {
        const gem_answer *a = &j->answer[i];
        gem_bytes_printf(out, "%s{\"index\":%d,\"message\":", i ? "," : "", a->index);
        put_message(a, out);
        if (j->p.logprobs)
            put_logprobs(a, 0, a->n_sent, out);
        else
            gem_bytes_printf(out, ",\"logprobs\":null");
        gem_bytes_printf(out, ",\"finish_reason\":\"%s\"}", gem_finish_name(a->finish));
    }
    gem_bytes_printf(out, "],\"usage\":");
    gem_put_usage(j, out);
    gem_bytes_printf(out, ",\"timings\":");
    gem_put_timings(j, out);
    gem_put_receipt(j, out);
    gem_bytes_printf(out, "}");
}

const gem_wire gem_wire_chat = {
    .name = "chat",
    .read = read_chat,
    .open = open_chat,
    .progress = progress_chat,
    .text = text_chat,
    .reasoning = reasoning_chat,
    .call = call_chat,
    .arguments = arguments_chat,
    .finish = finish_chat,
    .close = close_chat,
    .fail = fail_chat,
    .document = document_chat,
};
