/* hold.c - where a constraint begins and ends. */
#include "server/hold.h"

#include "server/messages.h"

#include <math.h>
#include <stdlib.h>

/* FEW: characters; with more of them most tokens fit, and trying is cheaper than looking at all. */
enum { TRIES = 48, FEW = 64, MAX_SAID = 4096 };

typedef enum hold_state {
    FREE,     /* nothing holds any more */
    WATCHING, /* for the beginning of a call */
    TAGGED,   /* behind the tag; white space may come */
    HELD,
    ENDED
} hold_state;

struct gem_hold {
    const gem_hold_rules *r;
    const gem_model *m;
    const gem_token_order *order;
    hold_state state;
    bool tagged; /* the value stands between tags */
    bool bare;   /* it is a call without them */
    gem_grammar *g;
    gem_bytes said; /* text so far, while watching */
    const int32_t *forced;
    size_t n_forced;
    float *masked; /* owned, [order->n]; made when the first token is refused */
};

/* ---- rules ---- */

static bool compile_format(gem_hold_rules *r, const json_t *format, gem_fault *f)
{
    const char *type = NULL;
    bool strict = false;
    if (!gem_field_string(format, "type", &type, f)) return false;
    if (!type)
        return gem_fault_bad(f, "missing_required_parameter", "response_format.type",
                             "response_format.type is needed: a string");
    if (!strcmp(type, "text")) return true;
    const json_t *wrap = gem_field(format, "json_schema"), *schema = gem_field(format, "schema");
    if (json_is_object(wrap)) {
        schema = gem_field(wrap, "schema");
        if (!gem_field_bool(wrap, "strict", &strict, f)) return false;
    }
    if (!strcmp(type, "json_object") && !schema)
        r->format = gem_schema_new(GEM_SCHEMA_OBJECT, NULL, NULL, false, "response_format", f);
    else if (!strcmp(type, "json_object") || !strcmp(type, "json_schema"))
        r->format =
            schema ? gem_schema_new(GEM_SCHEMA_VALUE, schema, NULL, strict, "response_format", f)
                   : gem_schema_new(GEM_SCHEMA_OBJECT, NULL, NULL, false, "response_format", f);
    else
        return gem_fault_bad(f, "invalid_value", "response_format.type",
                             "response_format.type is \"%.32s\", expected text, json_object or "
                             "json_schema",
                             type);
    return r->format != NULL;
}

static bool tokens_of(gem_server *s, const char *text, int32_t **ids, size_t *n)
{
    return gem_tokenize(s->model, text, strlen(text), GEM_TOK_SPECIAL, ids, n, NULL) == GEM_OK;
}

/* Calls as JSON between tags, as Qwen2.5 writes them. */
static bool compile_calls(gem_server *s, gem_hold_rules *r, const json_t *tools, gem_dialogue *d,
                          gem_fault *f)
{
    gem_chat_info info;
    gem_chat_get_info(s->model, &info);
    r->must_call = d->tools == GEM_TOOLS_REQUIRED;
    r->open_tag = -1;
    r->calls = gem_schema_new(GEM_SCHEMA_CALLS, tools, d->tool_name, false, "tools", f);
    if (!r->calls) return false;
    bool json = !strcmp(info.format, "chatml");
    if (json && (!tokens_of(s, "<tool_call>\n", &r->open, &r->n_open) ||
                 !tokens_of(s, "\n</tool_call>", &r->close, &r->n_close)))
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    if (json && r->n_open) r->open_tag = r->open[0];
    if (json) return true;
    gem_schema_free(
        r->calls); /* another syntax: the schemas were checked, calls come as they come */
    r->calls = NULL;
    return !r->must_call ||
           gem_fault_bad(f, "unsupported_value", "tool_choice",
                         "tool_choice: the call syntax of this model (%s) cannot be forced; "
                         "use auto or none",
                         info.format);
}

bool gem_hold_rules_read(gem_server *s, const json_t *body, gem_dialogue *d, gem_fault *f)
{
    json_t *format = NULL;
    gem_hold_rules *r = calloc(1, sizeof(*r));
    if (!r) return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    d->rules = r;
    if (!gem_field_object(body, "response_format", &format, f)) return false;
    if (format && !compile_format(r, format, f)) return false;
    if (!format && gem_field(body, "json_schema")) {
        r->format = gem_schema_new(GEM_SCHEMA_VALUE, gem_field(body, "json_schema"), NULL, false,
                                   "json_schema", f);
        if (!r->format) return false;
    }
    return d->tools == GEM_TOOLS_NONE || compile_calls(s, r, json_object_get(body, "tools"), d, f);
}

void gem_hold_rules_free(gem_hold_rules *r)
{
    if (!r) return;
    gem_schema_free(r->format);
    gem_schema_free(r->calls);
    free(r->open);
    free(r->close);
    free(r);
}

/* ---- one answer ---- */

gem_hold *gem_hold_new(const gem_hold_rules *r, const gem_model *m, const gem_token_order *order)
{
    gem_hold *h = calloc(1, sizeof(*h));
    if (!h) return NULL;
    h->r = r;
    h->m = m;
    h->order = order;
    h->state = r->calls ? WATCHING : FREE;
    if (r->must_call) {
        h->forced = r->open;
        h->n_forced = r->n_open;
    } else if (r->format) {
        h->g = gem_grammar_new(r->format);
        h->state = HELD;
        if (h->g) return h;
        gem_hold_free(h);
        return NULL;
    }
    return h;
}

void gem_hold_free(gem_hold *h)
{
    if (!h) return;
    gem_grammar_free(h->g);
    gem_bytes_free(&h->said);
    free(h->masked);
    free(h);
}

static size_t blanks(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && (s[n] == ' ' || s[n] == '\n'))
        n++;
    return n;
}

static bool fits(gem_hold *h, int32_t token)
{
    size_t len, skip = 0;
    if (gem_token_is_end(h->m, token)) return gem_grammar_done(h->g);
    const char *text = gem_token_bytes(h->m, token, false, &len);
    if (h->state == TAGGED) {
        skip = blanks(text, len);
        if (skip == len) return len == 1 && h->said.len == 0;
    }
    return gem_grammar_allows(h->g, text + skip, len - skip);
}

/* Can only few characters follow? */
static bool few_fit(gem_hold *h)
{
    int n = 0;
    for (int c = 0; c < 256; c++)
        n += gem_grammar_allows(h->g, (const char[]){(char)c}, 1);
    return n <= FEW;
}

/* Of the logits only those of tokens that fit. */
static void mask_all(gem_hold *h, const float *logits)
{
    const gem_token_order *o = h->order;
    size_t refused = SIZE_MAX; /* bytes of the prefix that did not fit last */
    for (int32_t i = 0; i < o->n; i++)
        h->masked[i] = -INFINITY;
    for (int32_t i = 0; i < o->n; i++) {
        if (o->shared[i] >= refused) continue;
        refused = SIZE_MAX;
        size_t len, n;
        int32_t id = o->id[i];
        const char *text = gem_token_bytes(h->m, id, false, &len);
        if (!len || gem_token_is_end(h->m, id) || (h->state == TAGGED && blanks(text, 1))) {
            if (fits(h, id)) h->masked[id] = logits[id];
        } else if ((n = gem_grammar_accepts(h->g, text, len)) == len) {
            h->masked[id] = logits[id];
        } else {
            refused = n + 1;
        }
    }
}

bool gem_hold_holds(const gem_hold *h)
{
    return h->n_forced || h->state == HELD || h->state == TAGGED;
}

gem_status gem_hold_draw(gem_hold *h, gem_sampler *sampler, const float *logits, int32_t *token,
                         gem_error *err)
{
    if (h->n_forced) {
        *token = *h->forced++;
        h->n_forced--;
        return GEM_OK;
    }
    gem_status st = gem_sampler_draw(sampler, logits, token, err);
    if ((h->state != HELD && h->state != TAGGED) || st != GEM_OK || fits(h, *token)) return st;
    size_t bytes = (size_t)h->order->n * sizeof(*h->masked);
    if (!h->masked && !(h->masked = malloc(bytes)))
        return gem_fail(err, GEM_E_NOMEM, "no memory for a mask over %d tokens", h->order->n);
    if (!few_fit(h)) {
        memcpy(h->masked, logits, bytes);
        for (int i = 0; i < TRIES; i++) {
            h->masked[*token] = -INFINITY;
            st = gem_sampler_draw(sampler, h->masked, token, err);
            if (st != GEM_OK || fits(h, *token)) return st;
        }
    }
    mask_all(h, logits);
    return gem_sampler_draw(sampler, h->masked, token, err);
}

/* The value is complete. Between tags the closing one is written for the model. */
static void complete(gem_hold *h)
{
    gem_grammar_free(h->g);
    h->g = NULL;
    h->state = ENDED;
    if (!h->tagged) return;
    h->state = WATCHING; /* another call may follow */
    h->forced = h->r->close;
    h->n_forced = h->r->n_close;
    h->said.len = 0;
}

static void begin(gem_hold *h, hold_state state)
{
    gem_grammar_free(h->g);
    h->g = gem_grammar_new(h->r->calls);
    h->state = h->g ? state : FREE;
    h->said.len = 0;
}

/* A call without tags named its tool: what was said of it decides where the grammar stands. */
static void begin_bare(gem_hold *h)
{
    gem_bytes said = h->said;
    const char *open = said.data ? memchr(said.data, '{', said.len) : NULL;
    memset(&h->said, 0, sizeof(h->said));
    begin(h, HELD);
    h->tagged = false;
    h->bare = true;
    if (h->state == HELD &&
        (!open || !gem_grammar_push(h->g, open, said.len - (size_t)(open - said.data))))
        h->state = FREE; /* written another way than the grammar knows: left alone */
    gem_bytes_free(&said);
}

void gem_hold_take(gem_hold *h, int32_t token, const char *pending)
{
    size_t len, skip;
    if (h->state == FREE || h->state == ENDED) return;
    if (token == h->r->open_tag && h->state == WATCHING) {
        begin(h, TAGGED);
        h->tagged = true;
        return;
    }
    const char *text = gem_token_bytes(h->m, token, false, &len);
    if (h->state == WATCHING) {
        if (h->said.len < MAX_SAID) gem_bytes_put(&h->said, text, len);
        if (pending) begin_bare(h);
    } else if (h->state == TAGGED && (skip = blanks(text, len)) == len) {
        gem_bytes_put(&h->said, text, len);
    } else if (!gem_token_is_end(h->m, token)) {
        skip = h->state == TAGGED ? blanks(text, len) : 0;
        h->state = gem_grammar_push(h->g, text + skip, len - skip) ? HELD : FREE;
    }
    if (h->state == HELD && gem_grammar_ended(h->g)) complete(h);
}

bool gem_hold_certain(const gem_hold *h)
{
    return h->bare && (h->state == HELD || h->state == ENDED);
}

bool gem_hold_ended(const gem_hold *h)
{
    return h->state == ENDED ||
           (h->r->must_call && h->state == WATCHING && h->tagged && !h->n_forced);
}
