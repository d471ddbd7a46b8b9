/* wire_completions.c - POST /v1/completions: text continued, from strings or token ids. */
#include "server/params.h"
#include "server/text_routes.h"

#include <stdlib.h>

enum { MAX_PROMPTS = 64, MAX_LOGPROBS = 5 };

typedef struct prompts {
    gem_job_prompt *p; /* owned, [cap] */
    size_t n;
} prompts;

static void prompts_deinit(prompts *ps)
{
    for (size_t i = 0; i < ps->n; i++)
        free(ps->p[i].tokens);
    free(ps->p);
}

static bool add_text(gem_server *s, prompts *ps, const json_t *text, gem_fault *f)
{
    gem_job_prompt *p = &ps->p[ps->n];
    gem_error err;
    if (gem_tokenize(s->model, json_string_value(text), json_string_length(text),
                     GEM_TOK_BOS | GEM_TOK_SPECIAL, &p->tokens, &p->n, &err) != GEM_OK)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
    ps->n++;
    return true;
}

static bool add_ids(gem_server *s, prompts *ps, const json_t *list, gem_fault *f)
{
    gem_job_prompt *p = &ps->p[ps->n];
    p->n = json_array_size(list);
    p->tokens = calloc(p->n + 1, sizeof(*p->tokens));
    ps->n++;
    if (!p->tokens)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    return gem_tokens_read(s, list, "prompt", p->tokens, f);
}

static bool read_prompts(gem_server *s, const json_t *body, prompts *ps, gem_fault *f)
{
    const json_t *v = gem_field(body, "prompt");
    bool several = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = several ? json_array_size(v) : 1;
    if (!v)
        return gem_fault_bad(f, "missing_required_parameter", "prompt",
                             "prompt is needed: a "
                             "string, an array of strings, or token ids");
    if (n < 1 || n > MAX_PROMPTS)
        return gem_fault_bad(f, "invalid_value", "prompt",
                             "prompt has %zu members, expected 1 to "
                             "%d",
                             n, MAX_PROMPTS);
    ps->p = calloc(n, sizeof(*ps->p));
    if (!ps->p)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = several ? json_array_get(v, i) : v;
        if (!json_is_string(one) && !json_is_array(one))
            return gem_fault_bad(f, "invalid_type", "prompt",
                                 "prompt is %s, expected a string, an array of strings, or token "
                                 "ids",
                                 gem_json_kind(one));
        if (!(json_is_string(one) ? add_text(s, ps, one, f) : add_ids(s, ps, one, f))) return false;
    }
    return true;
}

static bool read_options(const json_t *body, gem_params *p, gem_fault *f)
{
    int64_t top = 0;
    if (!gem_field_int(body, "logprobs", 0, MAX_LOGPROBS, &top, f) ||
        !gem_field_bool(body, "echo", &p->echo, f))
        return false;
    p->logprobs = gem_field(body, "logprobs") != NULL;
    p->n_top = (int)top;
    if (p->echo && p->logprobs)
        return gem_fault_bad(f, "unsupported_value", "echo",
                             "echo with logprobs is not supported: prompts are not scored");
    if (gem_field(body, "suffix"))
        return gem_fault_bad(f, "unsupported_value", "suffix", "suffix is not supported");
    return true;
}

static gem_job *read_completions(gem_server *s, const json_t *body, gem_fault *f)
{
    gem_params p = {0};
    prompts ps = {0};
    if (!gem_params_read(s, body, &p, f) || !read_options(body, &p, f) ||
        !read_prompts(s, body, &ps, f)) {
        prompts_deinit(&ps);
        gem_params_deinit(&p);
        return NULL;
    }
    if (!gem_field(body, "max_tokens") && !gem_field(body, "n_predict") && p.max_tokens < 0)
        p.max_tokens = 16; /* OpenAI's default here */
    gem_job *j = gem_params_job(s, &gem_wire_completions, &p, ps.p, ps.n, f);
    if (j) {
        memcpy(j->id, "cmpl-", 6);
        gem_random_hex(j->id + 5, 12);
    }
    return j;
}

/* ---- what is written ---- */

static void put_head(gem_job *j, gem_bytes *b)
{
    gem_bytes_printf(b, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":",
                     j->id, (long long)j->created);
    gem_quote_word(b, j->model);
    gem_bytes_printf(b, ",\"system_fingerprint\":\"%s\"", j->server->fingerprint);
}

static void put_piece(const gem_server *s, int32_t token, gem_bytes *b)
{
    size_t len;
    const char *text = gem_token_bytes(s->model, token, true, &len);
    gem_quote(b, text, len);
}

/* {"tokens":[..],"token_logprobs":[..],"top_logprobs":[{..}],"text_offset":[..]} */
static void put_logprobs(const gem_answer *a, size_t from, size_t to, gem_bytes *b)
{
    const gem_server *s = a->job->server;
    gem_bytes_printf(b, ",\"logprobs\":{\"tokens\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) gem_bytes_printf(b, ",");
        put_piece(s, a->logprob[i].token, b);
    }
    gem_bytes_printf(b, "],\"token_logprobs\":[");
    for (size_t i = from; i < to; i++)
        gem_bytes_printf(b, i > from ? ",%.6f" : "%.6f", (double)a->logprob[i].logprob);
    gem_bytes_printf(b, "],\"top_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        gem_bytes_printf(b, i > from ? ",{" : "{");
        for (int k = 0; k < a->logprob[i].n_top; k++) {
            if (k) gem_bytes_printf(b, ",");
            put_piece(s, a->logprob[i].top[k].token, b);
            gem_bytes_printf(b, ":%.6f", (double)a->logprob[i].top[k].logprob);
        }
        gem_bytes_printf(b, "}");
    }
    gem_bytes_printf(b, "],\"text_offset\":[");
    for (size_t i = from; i < to; i++)
        gem_bytes_printf(b, i > from ? ",%zu" : "%zu", a->logprob[i].start);
    gem_bytes_printf(b, "]}");
}

static void put_choice(const gem_answer *a, const char *text, size_t len, size_t from, size_t to,
                       const char *finish, gem_bytes *b)
{
    gem_bytes_printf(b, "{\"index\":%d,\"text\":", a->index);
    gem_quote(b, text, len);
    if (a->job->p.logprobs)
        put_logprobs(a, from, to, b);
    else
        gem_bytes_printf(b, ",\"logprobs\":null");
    gem_bytes_printf(b, finish ? ",\"finish_reason\":\"%s\"}" : ",\"finish_reason\":null}",
                     finish ? finish : "");
}

/* The prompt's own text, for echo. */
static void put_prompt(const gem_answer *a, gem_bytes *text)
{
    gem_detokenizer *d = NULL;
    size_t len;
    if (gem_detokenizer_new(&d, a->job->server->model, false, NULL) != GEM_OK) return;
    for (size_t i = 0; i < a->prompt->n; i++) {
        const char *s = gem_detokenizer_push(d, a->prompt->tokens[i], &len);
        gem_bytes_put(text, s, len);
    }
    gem_detokenizer_free(d);
}

static void begin(gem_job *j)
{
    gem_bytes_printf(&j->scratch, "data: ");
    put_head(j, &j->scratch);
    gem_bytes_printf(&j->scratch, ",\"choices\":[");
}

static void open_completions(gem_job *j)
{
    for (size_t i = 0; j->p.echo && i < j->n_answers; i++) {
        gem_bytes text = {0};
        put_prompt(&j->answer[i], &text);
        begin(j);
        put_choice(&j->answer[i], text.data ? text.data : "", text.len, 0, 0, NULL, &j->scratch);
        gem_bytes_printf(&j->scratch, "]}\n\n");
        gem_bytes_free(&text);
    }
}

static void progress_completions(gem_job *j, const gem_answer *a, size_t done)
{
    (void)j;
    (void)a;
    (void)done; /* comments tell it */
}

static void text_completions(gem_job *j, gem_answer *a, const char *text, size_t len, size_t first)
{
    begin(j);
    put_choice(a, text, len, first, a->n_sent, NULL, &j->scratch);
    gem_bytes_printf(&j->scratch, "]}\n\n");
}

static void finish_completions(gem_job *j, gem_answer *a)
{
    begin(j);
    put_choice(a, "", 0, a->n_sent, a->n_sent, gem_finish_name(a->finish), &j->scratch);
    gem_bytes_printf(&j->scratch, "]}\n\n");
}

static void close_completions(gem_job *j)
{
    if (j->p.include_usage) {
        begin(j);
        gem_bytes_printf(&j->scratch, "],\"usage\":");
        gem_put_usage(j, &j->scratch);
        gem_bytes_printf(&j->scratch, "}\n\n");
    }
    gem_bytes_printf(&j->scratch, "data: [DONE]\n\n");
}

static void fail_completions(gem_job *j, const gem_fault *f)
{
    gem_bytes_printf(&j->scratch, "data: ");
    gem_fault_json(f, &j->scratch);
    gem_bytes_printf(&j->scratch, "\n\n");
}

static void document_completions(gem_job *j, gem_bytes *out)
{
    put_head(j, out);
    gem_bytes_printf(out, ",\"choices\":[");
    for (size_t i = 0; i < j->n_answers; i++) {
        const gem_answer *a = &j->answer[i];
        gem_bytes text = {0};
        if (j->p.echo) put_prompt(a, &text);
        gem_bytes_put(&text, a->content.data ? a->content.data : "", a->content.len);
        if (i) gem_bytes_printf(out, ",");
        put_choice(a, text.data, text.len, 0, a->n_sent, gem_finish_name(a->finish), out);
        gem_bytes_free(&text);
    }
    gem_bytes_printf(out, "],\"usage\":");
    gem_put_usage(j, out);
    gem_bytes_printf(out, ",\"timings\":");
    gem_put_timings(j, out);
    gem_put_receipt(j, out);
    gem_bytes_printf(out, "}");
}

const gem_wire gem_wire_completions = {
    .name = "completions",
    .read = read_completions,
    .open = open_completions,
    .progress = progress_completions,
    .text = text_completions,
    .finish = finish_completions,
    .close = close_completions,
    .fail = fail_completions,
    .document = document_completions,
};
