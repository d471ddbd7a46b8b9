/* params.c - shared request fields, and the counts and timings that answers report. */
#include "server/params.h"

#include "gem_build.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 4096, MAX_BIAS = 4096 };

static bool read_float(const json_t *body, const char *name, double min, double max, float *out,
                       gem_fault *f)
{
    double v = (double)*out;
    if (!gem_field_number(body, name, min, max, &v, f)) return false;
    *out = (float)v;
    return true;
}

/* ---- stop ---- */

static bool add_stop(gem_params *p, const json_t *v, const char *param, gem_fault *f)
{
    if (!json_is_string(v))
        return gem_fault_bad(f, "invalid_type", param, "%s is %s, expected a string", param,
                             gem_json_kind(v));
    size_t len = json_string_length(v);
    if (len == 0) return true;
    if (len > MAX_STOP_BYTES || p->n_stop == MAX_STOPS)
        return gem_fault_bad(f, "invalid_value", param,
                             "stop: at most %d strings of at most %d bytes", MAX_STOPS,
                             MAX_STOP_BYTES);
    char *copy = strdup(json_string_value(v));
    char **grown = realloc(p->stop, (p->n_stop + 1) * sizeof(*grown));
    if (grown) p->stop = grown;
    if (!copy || !grown) {
        free(copy);
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    }
    if (*copy)
        p->stop[p->n_stop++] = copy;
    else
        free(copy);
    return true;
}

static bool read_stop(const json_t *body, const char *name, gem_params *p, gem_fault *f)
{
    const json_t *v = gem_field(body, name);
    if (!v) return true;
    if (!json_is_array(v)) return add_stop(p, v, name, f);
    for (size_t i = 0; i < json_array_size(v); i++) {
        char param[40];
        snprintf(param, sizeof(param), "%s[%zu]", name, i);
        if (!add_stop(p, json_array_get(v, i), param, f)) return false;
    }
    return true;
}

/* ---- logit_bias ---- */

static bool add_bias(gem_params *p, int64_t token, const json_t *v, int32_t n_vocab, gem_fault *f)
{
    float bias;
    if (token < 0 || token >= n_vocab)
        return gem_fault_bad(f, "invalid_value", "logit_bias",
                             "logit_bias names token %lld, the vocabulary has %d", (long long)token,
                             n_vocab);
    if (json_is_false(v)) {
        bias = -INFINITY;
    } else if (json_is_number(v)) {
        double b = json_number_value(v);
        if (!(b >= -100 && b <= 100))
            return gem_fault_bad(f, "invalid_value", "logit_bias",
                                 "logit_bias of token %lld is %g, expected -100 to 100",
                                 (long long)token, b);
        bias = (float)b;
    } else {
        return gem_fault_bad(f, "invalid_type", "logit_bias",
                             "logit_bias of token %lld is %s, expected a number", (long long)token,
                             gem_json_kind(v));
    }
    p->bias[p->sampler.n_logit_bias++] = (gem_logit_bias){(int32_t)token, bias};
    return true;
}

/* An id, or with llama.cpp's list form a text, which stands for its tokens. */
static bool add_bias_key(gem_server *s, gem_params *p, const char *key, bool texts, const json_t *v,
                         gem_fault *f)
{
    char *end;
    errno = 0;
    long long id = strtoll(key, &end, 10);
    if (*key && !*end && !errno) return add_bias(p, id, v, s->info.n_vocab, f);
    if (!texts)
        return gem_fault_bad(f, "invalid_value", "logit_bias",
                             "a key of logit_bias is no token id");
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok = gem_tokenize(s->model, key, strlen(key), 0, &ids, &n, NULL) == GEM_OK;
    for (size_t i = 0; ok && i < n && p->sampler.n_logit_bias < MAX_BIAS; i++)
        ok = add_bias(p, ids[i], v, s->info.n_vocab, f);
    free(ids);
    return ok;
}

static bool read_bias(gem_server *s, const json_t *body, gem_params *p, gem_fault *f)
{
    json_t *v = gem_field(body, "logit_bias");
    size_t n = json_is_object(v) ? json_object_size(v) : json_array_size(v);
    if (!v) return true;
    if (!json_is_object(v) && !json_is_array(v))
        return gem_fault_bad(f, "invalid_type", "logit_bias",
                             "logit_bias is %s, expected an object", gem_json_kind(v));
    if (n > MAX_BIAS)
        return gem_fault_bad(f, "invalid_value", "logit_bias",
                             "logit_bias has %zu entries, at "
                             "most %d are taken",
                             n, MAX_BIAS);
    p->bias = calloc(MAX_BIAS + 1, sizeof(*p->bias));
    if (!p->bias)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    p->sampler.logit_bias = p->bias;
    const char *key;
    json_t *item;
    json_object_foreach(v, key, item) if (!add_bias_key(s, p, key, false, item, f)) return false;
    for (size_t i = 0; json_is_array(v) && i < n; i++) {
        const json_t *pair = json_array_get(v, i), *token = json_array_get(pair, 0);
        const json_t *bias = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !(json_is_integer(token) || json_is_string(token)))
            return gem_fault_bad(f, "invalid_type", "logit_bias",
                                 "logit_bias[%zu] is no pair of token and bias", i);
        if (json_is_integer(token) &&
            !add_bias(p, json_integer_value(token), bias, s->info.n_vocab, f))
            return false;
        if (json_is_string(token) && !add_bias_key(s, p, json_string_value(token), true, bias, f))
            return false;
    }
    return true;
}

/* ---- the rest ---- */

static bool read_max(const json_t *body, gem_params *p, gem_fault *f)
{
    static const char *const name[] = {"max_tokens", "max_completion_tokens", "n_predict",
                                       "max_output_tokens"};
    bool seen = false;
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        int64_t v = -1;
        if (!gem_field_int(body, name[i], -1, INT64_MAX, &v, f)) return false;
        if (!gem_field(body, name[i])) continue;
        int32_t n = v > INT32_MAX ? INT32_MAX : (int32_t)v;
        if (!seen) p->max_tokens = n;
        if (seen && n >= 0 && (p->max_tokens < 0 || n < p->max_tokens)) p->max_tokens = n;
        seen = true;
    }
    return true;
}

static bool read_sampling(const json_t *body, gem_params *p, gem_fault *f)
{
    gem_sampler_options *o = &p->sampler;
    int64_t top_k = o->top_k, last_n = o->penalty_last_n, seed = -1;
    double top_p = (double)o->top_p;
    if (!read_float(body, "temperature", 0, 1000, &o->temperature, f) ||
        !gem_field_number(body, "top_p", 0, 1, &top_p, f) ||
        !read_float(body, "min_p", 0, 0.999, &o->min_p, f) ||
        !gem_field_int(body, "top_k", -1, INT32_MAX, &top_k, f) ||
        !read_float(body, "repeat_penalty", 0.001, 1000, &o->repetition_penalty, f) ||
        !read_float(body, "repetition_penalty", 0.001, 1000, &o->repetition_penalty, f) ||
        !read_float(body, "presence_penalty", -1000, 1000, &o->presence_penalty, f) ||
        !read_float(body, "frequency_penalty", -1000, 1000, &o->frequency_penalty, f) ||
        !gem_field_int(body, "repeat_last_n", -1, 1 << 20, &last_n, f) ||
        !gem_field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, f))
        return false;
    if (!(top_p > 0))
        return gem_fault_bad(f, "invalid_value", "top_p", "top_p is 0, expected more, up to 1");
    o->top_p = (float)top_p;
    o->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    o->penalty_last_n = last_n < 0 ? 1 << 20 : (int32_t)last_n;
    o->seed = seed == -1 ? gem_random_u64() >> 1 : (uint64_t)seed;
    return true;
}

bool gem_params_refuse(const json_t *body, gem_fault *f)
{
    double typical = 1;
    if (!gem_field_number(body, "typical_p", 0, 1, &typical, f)) return false;
    if (typical != 1)
        return gem_fault_bad(f, "unsupported_value", "typical_p",
                             "typical_p is not supported; "
                             "only 1 (off) is accepted");
    if (gem_field(body, "grammar"))
        return gem_fault_bad(f, "unsupported_value", "grammar",
                             "grammar is not supported; use response_format");
    return true;
}

/* Any name is served and the answer tells the true one, unless the server is strict. */
static bool check_model(gem_server *s, const json_t *body, gem_fault *f)
{
    const char *name = s->id;
    if (!gem_field_string(body, "model", &name, f)) return false;
    if (!s->opt.strict_model || !strcmp(name, s->id)) return true;
    return gem_fault_set(f, 404, GEM_INVALID, "model_not_found", "model",
                         "this server has no such model; it serves %s", s->id);
}

bool gem_params_read(gem_server *s, const json_t *body, gem_params *p, gem_fault *f)
{
    memset(p, 0, sizeof(*p));
    p->sampler = s->opt.sampler;
    p->max_tokens = s->opt.max_tokens;
    int64_t n = 1;
    bool cache = true;
    json_t *so = NULL;
    if (!check_model(s, body, f) || !gem_params_refuse(body, f) || !read_sampling(body, p, f) ||
        !read_max(body, p, f) || !read_stop(body, "stop", p, f) || !read_bias(s, body, p, f) ||
        !gem_field_int(body, "n", 1, GEM_MAX_CHOICES, &n, f) ||
        !gem_field_bool(body, "stream", &p->stream, f) ||
        !gem_field_bool(body, "return_progress", &p->return_progress, f) ||
        !gem_field_bool(body, "timings_per_token", &p->timings_per_token, f) ||
        !gem_field_bool(body, "cache_prompt", &cache, f) ||
        !gem_field_bool(body, "gem_receipt", &p->receipt, f) ||
        !gem_field_object(body, "stream_options", &so, f))
        return false;
    if (so && !gem_field_bool(so, "include_usage", &p->include_usage, f)) return false;
    p->n = (int)n;
    p->no_cache = !cache;
    return true;
}

bool gem_params_read_logprobs(const json_t *body, gem_params *p, gem_fault *f)
{
    int64_t top = 0;
    if (!gem_field_bool(body, "logprobs", &p->logprobs, f) ||
        !gem_field_int(body, "top_logprobs", 0, GEM_MAX_TOP_LOGPROBS, &top, f))
        return false;
    if (gem_field(body, "top_logprobs") && !p->logprobs)
        return gem_fault_bad(f, "invalid_value", "top_logprobs",
                             "top_logprobs needs logprobs to be true");
    p->n_top = (int)top;
    return true;
}

static bool check_fits(gem_server *s, const gem_job_prompt *p, gem_fault *f)
{
    if (p->n == 0) return gem_fault_bad(f, "invalid_value", "prompt", "the prompt has no tokens");
    if (p->n < (size_t)s->info.n_ctx) return true;
    gem_fault_set(f, 400, "exceed_context_size_error", "context_length_exceeded", NULL,
                  "request (%zu tokens) exceeds the available context size (%d tokens); maximum "
                  "context length is %d tokens",
                  p->n, s->info.n_ctx, s->info.n_ctx);
    f->n_prompt = (int64_t)p->n;
    f->n_ctx = s->info.n_ctx;
    return false;
}

gem_job *gem_params_job(gem_server *s, const gem_wire *w, gem_params *p, gem_job_prompt *prompt,
                        size_t n_prompts, gem_fault *f)
{
    gem_sampler *probe = NULL;
    gem_error err;
    gem_job *j = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < n_prompts; i++)
        ok = check_fits(s, &prompt[i], f);
    if (ok && gem_sampler_new(&probe, s->info.n_vocab, &p->sampler, &err) != GEM_OK)
        ok = gem_fault_bad(f, "invalid_value", NULL, "%s", err.text);
    gem_sampler_free(probe);
    int32_t max = p->max_tokens;
    if (ok && !(j = gem_job_new(s, w, p, prompt, n_prompts)))
        gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    if (j) {
        for (size_t i = 0; i < j->n_answers; i++) {
            gem_answer *a = &j->answer[i];
            int32_t room = s->info.n_ctx - (int32_t)a->prompt->n;
            a->limit = max < 0 || max > room ? room : max;
        }
        return j;
    }
    gem_params_deinit(p);
    for (size_t i = 0; i < n_prompts; i++)
        free(prompt[i].tokens);
    free(prompt);
    return NULL;
}

gem_job *gem_params_talk(gem_server *s, const gem_wire *w, gem_params *p, gem_dialogue *d,
                         const char *id_prefix, gem_fault *f)
{
    gem_job_prompt *prompt = calloc(1, sizeof(*prompt));
    gem_job *j = NULL;
    if (prompt && gem_dialogue_tokens(d, prompt)) {
        j = gem_params_job(s, w, p, prompt, 1, f);
    } else {
        free(prompt);
        gem_params_deinit(p);
        gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    }
    if (!j) {
        gem_dialogue_free(d);
        return NULL;
    }
    j->dialogue = d;
    size_t n = (size_t)snprintf(j->id, sizeof(j->id) - 26, "%s", id_prefix);
    gem_random_hex(j->id + n, 12);
    return j;
}

gem_job *gem_params_chat(gem_server *s, const gem_wire *w, json_t *chat, void *state,
                         const char *id_prefix, gem_fault *f)
{
    gem_params p = {0};
    gem_dialogue *d = NULL;
    gem_job *j = NULL;
    if (chat && !state)
        gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    if (chat && state && gem_params_read(s, chat, &p, f) && gem_dialogue_read(s, chat, &d, f))
        j = gem_params_talk(s, w, &p, d, id_prefix, f);
    else
        gem_params_deinit(&p);
    json_decref(chat);
    if (j)
        j->wire_state = state;
    else
        free(state);
    return j;
}

/* ---- what answers report ---- */

const char *gem_finish_name(gem_finish f)
{
    switch (f) {
    case GEM_FINISH_LENGTH:
        return "length";
    case GEM_FINISH_TOOLS:
        return "tool_calls";
    default:
        return "stop";
    }
}

void gem_job_counts(const gem_job *j, size_t *prompt, size_t *cached, size_t *generated)
{
    *prompt = *cached = *generated = 0;
    for (size_t i = 0; i < j->n_prompts; i++) {
        *prompt += j->prompt[i].n;
        *cached += j->answer[i * (size_t)j->p.n].n_cached;
    }
    for (size_t i = 0; i < j->n_answers; i++)
        *generated += j->answer[i].n_generated;
}

void gem_put_usage(const gem_job *j, gem_bytes *out)
{
    size_t prompt, cached, generated, thought = 0;
    gem_job_counts(j, &prompt, &cached, &generated);
    for (size_t i = 0; i < j->n_answers; i++)
        thought += j->answer[i].n_reasoning;
    gem_bytes_printf(out,
                     "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                     "\"prompt_tokens_details\":{\"cached_tokens\":%zu},"
                     "\"completion_tokens_details\":{\"reasoning_tokens\":%zu}}",
                     prompt, generated, prompt + generated, cached, thought);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

void gem_put_progress(const gem_answer *a, size_t done, gem_bytes *out)
{
    uint64_t ms = a->start_ns ? (gem_now_ns() - a->start_ns) / 1000000 : 0;
    gem_bytes_printf(out,
                     ",\"prompt_progress\":{\"total\":%zu,\"cache\":%zu,\"processed\":%zu,"
                     "\"time_ms\":%llu}",
                     a->prompt->n, a->n_cached, done, (unsigned long long)ms);
}

void gem_put_timings(const gem_job *j, gem_bytes *out)
{
    const gem_answer *a = &j->answer[0];
    size_t n_prompt = a->prompt->n - a->n_cached, n = a->n_generated;
    double prompt_ms = a->first_ns > a->start_ns ? (double)(a->first_ns - a->start_ns) * 1e-6 : 0;
    double ms = a->last_ns > a->first_ns ? (double)(a->last_ns - a->first_ns) * 1e-6 : 0;
    size_t steps = n ? n - 1 : 0; /* the first token comes with the prompt */
    gem_bytes_printf(out,
                     "{\"cache_n\":%zu,\"prompt_n\":%zu,\"prompt_ms\":%.3f,"
                     "\"prompt_per_token_ms\":%.3f,\"prompt_per_second\":%.3f,\"predicted_n\":%zu,"
                     "\"predicted_ms\":%.3f,\"predicted_per_token_ms\":%.3f,"
                     "\"predicted_per_second\":%.3f}",
                     a->n_cached, n_prompt, prompt_ms, per(prompt_ms, (double)n_prompt),
                     per((double)n_prompt * 1e3, prompt_ms), n, ms, per(ms, (double)steps),
                     per((double)steps * 1e3, ms));
}

void gem_put_receipt(const gem_job *j, gem_bytes *out)
{
    const gem_server *s = j->server;
    const gem_sampler_options *o = &j->p.sampler;
    if (!j->p.receipt) return;
    gem_bytes_printf(out,
                     ",\"gem_receipt\":{\"manifest_sha256\":\"%s\",\"version\":\"%s\","
                     "\"commit\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"kv_type\":%d,"
                     "\"seed\":%llu,\"temperature\":%.9g,\"top_k\":%d,\"top_p\":%.9g,"
                     "\"min_p\":%.9g,\"tokens_sha256\":[",
                     s->manifest_sha256, gem_version(), GEM_BUILD_COMMIT, s->info.backend,
                     s->info.isa, (int)s->opt.model.kv_type, (unsigned long long)o->seed,
                     (double)o->temperature, o->top_k, (double)o->top_p, (double)o->min_p);
    for (size_t i = 0; i < j->n_answers; i++)
        gem_bytes_printf(out, "%s\"%s\"", i ? "," : "", j->answer[i].tokens_sha256);
    gem_bytes_printf(out, "]}");
}
