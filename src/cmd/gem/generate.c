/* generate.c - one answer, streamed; reuse of what the session holds; the figures at the end. */
#include "cmd/gem/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

gem_status generator_init(generator *g, gem_model *m, gem_drafter *drafter, int32_t draft_max,
                          gem_error *err)
{
    gem_model_info info;
    memset(g, 0, sizeof(*g));
    gem_model_get_info(m, &info);
    g->model = m;
    g->n_ctx = info.n_ctx;
    g->terminal = isatty(STDOUT_FILENO);
    g->progress = isatty(STDERR_FILENO);
    gem_status st = gem_session_new(&g->session, m, err);
    if (st == GEM_OK) st = gem_detokenizer_new(&g->detok, m, false, err);
    if (st == GEM_OK && drafter)
        st = gem_speculator_new(&g->speculator, m, drafter, draft_max, err);
    return st;
}

void generator_deinit(generator *g)
{
    gem_speculator_free(g->speculator);
    gem_session_free(g->session);
    gem_detokenizer_free(g->detok);
    free(g->held);
    memset(g, 0, sizeof(*g));
}

static gem_status hold(generator *g, const int32_t *tokens, size_t n, gem_error *err)
{
    if (g->n_held + n > g->cap) {
        size_t cap = GEM_MAX(2 * g->cap, g->n_held + n);
        int32_t *grown = realloc(g->held, cap * sizeof(*grown));
        if (!grown) return gem_fail(err, GEM_E_NOMEM, "no memory for %zu tokens", cap);
        g->held = grown;
        g->cap = cap;
    }
    memcpy(g->held + g->n_held, tokens, n * sizeof(*tokens));
    g->n_held += n;
    return GEM_OK;
}

/* Cut the session back to what it has in common with the prompt; at least one token stays to be
 * run. */
static gem_status keep_common(generator *g, const int32_t *tokens, size_t n, gem_error *err)
{
    size_t same = 0;
    while (same < g->n_held && same + 1 < n && g->held[same] == tokens[same])
        same++;
    if (same == g->n_held) return GEM_OK;
    if (gem_session_trim(g->session, (int32_t)same, err) != GEM_OK) {
        /* a windowed layer no longer has those positions: start over */
        gem_session_free(g->session);
        g->session = NULL;
        same = 0;
        gem_status st = gem_session_new(&g->session, g->model, err);
        if (st != GEM_OK) return st;
    }
    g->n_held = same;
    return GEM_OK;
}

typedef struct prefill_view {
    bool shown, wanted;
} prefill_view;

static bool on_prefill(void *user, size_t done, size_t total)
{
    prefill_view *v = user;
    if (v->wanted && done < total) {
        fprintf(stderr, "\rreading the prompt: %zu of %zu tokens", done, total);
        fflush(stderr);
        v->shown = true;
    }
    return !cli_interrupted;
}

/* A model's text must not drive the terminal: ESC and other controls become visible symbols. */
static void write_text(const generator *g, const char *s, size_t len)
{
    size_t from = 0;
    for (size_t i = 0; g->terminal && i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        bool c1 = c == 0xC2 && i + 1 < len && (unsigned char)s[i + 1] < 0xA0;
        if (!c1 && ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t')) continue;
        fwrite(s + from, 1, i - from, stdout);
        if (c1)
            fputs("\xEF\xBF\xBD", stdout), i++;
        else
            fprintf(stdout, "\xE2\x90%c",
                    c == 0x7F ? 0xA1 : 0x80 + c); /* U+2400 + c: control pictures */
        from = i + 1;
    }
    fwrite(s + from, 1, len - from, stdout);
    fflush(stdout);
}

static void emit(generator *g, gem_bytes *text, const char *s, size_t len)
{
    if (!len) return;
    write_text(g, s, len);
    if (text) gem_bytes_put(text, s, len);
}

/* A thought begins or ends on the screen. */
static void show_thinking(generator *g, bool on)
{
    if (g->dim == on) return;
    g->dim = on;
    fputs(on ? "\033[2m" : "\033[0m\n\n", stdout);
}

void generator_event(void *user, const gem_chat_event *e)
{
    generator *g = user;
    if (e->type == GEM_EVENT_REASONING) {
        if (g->thoughts) gem_bytes_put(g->thoughts, e->text, e->len);
        if (!g->terminal || !g->show_thoughts) return;
        show_thinking(g, true);
        write_text(g, e->text, e->len);
        return;
    }
    show_thinking(g, false);
    /* no tools were declared: what a model writes as a call is shown as it stands */
    if (e->type == GEM_EVENT_CONTENT || e->type == GEM_EVENT_CALL_BROKEN)
        emit(g, g->answer, e->text, e->len);
}

/* One token shown; false when the answer is over. */
static bool show_token(generator *g, int32_t token, gem_status *st, gem_error *err)
{
    size_t len;
    if (g->parser) {
        *st = gem_chat_parser_push(g->parser, token, err);
        return *st == GEM_OK && !gem_chat_parser_ended(g->parser);
    }
    const char *s = gem_detokenizer_push(g->detok, token, &len);
    emit(g, g->answer, s, len);
    return true;
}

static gem_status show_rest(generator *g, bool cut, gem_error *err)
{
    size_t len;
    if (g->parser) return gem_chat_parser_finish(g->parser, cut, err);
    const char *s = gem_detokenizer_finish(g->detok, &len);
    emit(g, g->answer, s, len);
    return GEM_OK;
}

static gem_status prefill(generator *g, const int32_t *tokens, size_t n, const float **logits,
                          generate_stats *stats, gem_error *err)
{
    prefill_view view = {false, g->progress};
    gem_status st = keep_common(g, tokens, n, err);
    if (st != GEM_OK) return st;
    stats->n_prompt = n;
    stats->n_cached = g->n_held;
    uint64_t start = gem_now_ns();
    st = gem_session_prefill(g->session, tokens + g->n_held, n - g->n_held, on_prefill, &view,
                             logits, err);
    stats->prefill_ns = gem_now_ns() - start;
    if (view.shown) fprintf(stderr, "\r\033[K");
    /* batches done before a cancellation stay in the session */
    size_t filled = (size_t)gem_session_position(g->session);
    if (st == GEM_OK || st == GEM_E_CANCELLED) {
        gem_status held = hold(g, tokens + g->n_held, filled - g->n_held, err);
        if (held != GEM_OK) return held;
    }
    return st;
}

/* Tokens that were drawn and not yet shown. */
typedef struct drawn {
    int32_t token[GEM_DRAFT_MAX + 1];
    int32_t n, at;
} drawn;

/* The tokens behind the last one that was drawn, one of them or a round's; accepted by the sampler.
 * max: how many are wanted; < 0: any number. */
static gem_status draw_next(generator *g, gem_sampler *sampler, int32_t last, int32_t max, drawn *d,
                            generate_stats *stats, gem_error *err)
{
    const float *all;
    uint64_t start = gem_now_ns();
    gem_status st;
    d->at = d->n = 0;
    if (g->speculator) {
        st = gem_speculate(g->speculator, sampler, last, max < 0 ? INT32_MAX : max, d->token, &d->n,
                           err);
    } else {
        st =
            gem_session_decode(g->session, last, gem_sampler_needs_all(sampler) ? &all : NULL, err);
        stats->decode_ns += gem_now_ns() - start;
        if (st == GEM_OK) st = gem_session_draw(g->session, sampler, &d->token[0], err);
        if (st == GEM_OK) d->n = 1;
        if (st == GEM_OK && !gem_token_is_end(g->model, d->token[0]))
            gem_sampler_accept(sampler, d->token[0]);
    }
    if (g->speculator) stats->decode_ns += gem_now_ns() - start;
    stats->n_decoded += (size_t)d->n;
    if (st == GEM_OK) st = hold(g, &last, 1, err);
    if (st == GEM_OK && d->n > 1) st = hold(g, d->token, (size_t)d->n - 1, err);
    return st;
}

/* The first token, from the prompt's logits, and where the rounds start. */
static gem_status draw_first(generator *g, gem_sampler *sampler, drawn *d, gem_error *err)
{
    gem_status st = gem_session_draw(g->session, sampler, &d->token[0], err);
    d->at = 0;
    d->n = 1;
    if (st == GEM_OK && !gem_token_is_end(g->model, d->token[0]))
        gem_sampler_accept(sampler, d->token[0]);
    if (st == GEM_OK && g->speculator)
        st = gem_speculator_begin(g->speculator, g->session, g->held, g->n_held, err);
    return st;
}

gem_status generate(generator *g, const gem_sampler_options *so, const int32_t *tokens, size_t n,
                    int32_t max, generate_stats *stats, gem_error *err)
{
    const float *all;
    gem_sampler *sampler = NULL;
    gem_model_info info;
    drawn d;
    memset(stats, 0, sizeof(*stats));
    gem_draft_stats before = {0};
    if (g->speculator) before = *gem_speculator_stats(g->speculator);
    gem_model_get_info(g->model, &info);
    uint64_t start = gem_now_ns();
    gem_status st = gem_sampler_new(&sampler, info.n_vocab, so, err);
    if (st == GEM_OK)
        st = prefill(g, tokens, n, gem_sampler_needs_all(sampler) ? &all : NULL, stats, err);
    if (st == GEM_E_CANCELLED) {
        stats->finish = FINISH_INTERRUPTED;
        st = GEM_OK;
        goto done;
    }
    for (size_t i = 0; st == GEM_OK && i < n; i++)
        gem_sampler_accept(sampler, tokens[i]);
    stats->finish = FINISH_LENGTH;
    if (st == GEM_OK && max != 0) st = draw_first(g, sampler, &d, err);
    if (st == GEM_OK) stats->first_ns = gem_now_ns() - start;
    while (st == GEM_OK && max != 0) {
        int32_t token = d.token[d.at++];
        stats->n_generated++;
        if (gem_token_is_end(g->model, token)) {
            stats->finish = FINISH_END;
            break;
        }
        if (!show_token(g, token, &st, err)) {
            stats->finish = FINISH_END;
            break;
        }
        if (cli_interrupted || ferror(stdout)) {
            stats->finish = FINISH_INTERRUPTED;
            break;
        }
        if (max >= 0 && stats->n_generated == (size_t)max) break;
        if (d.at < d.n) continue;
        if (gem_session_position(g->session) >= g->n_ctx) {
            stats->finish = FINISH_CONTEXT;
            break;
        }
        int32_t left = max < 0 ? -1 : max - (int32_t)stats->n_generated;
        st = draw_next(g, sampler, token, left, &d, stats, err);
    }
    if (st == GEM_OK) st = show_rest(g, stats->finish != FINISH_END, err);
done:
    show_thinking(g, false); /* also after a failure inside a thought */
    if (g->speculator) {
        stats->draft = *gem_speculator_stats(g->speculator);
        gem_draft_stats_subtract(&stats->draft, &before);
    }
    gem_sampler_free(sampler);
    return st;
}

static double rate(size_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0.0;
}

void print_stats(const generate_stats *s, uint64_t load_ns)
{
    static const char *const why[] = {"", ", stopped at -n", ", context full", ", interrupted"};
    fprintf(stderr, "[prompt %zu tokens", s->n_prompt);
    if (s->n_cached) fprintf(stderr, ", %zu of them kept", s->n_cached);
    fprintf(stderr, ", %.1f tok/s; answer %zu tokens",
            rate(s->n_prompt - s->n_cached, s->prefill_ns), s->n_generated);
    if (s->n_decoded) fprintf(stderr, ", %.1f tok/s", rate(s->n_decoded, s->decode_ns));
    if (s->n_generated) fprintf(stderr, "; first token after %.3f s", (double)s->first_ns * 1e-9);
    if (load_ns) fprintf(stderr, ", model opened in %.3f s", (double)load_ns * 1e-9);
    if (s->draft.rounds)
        fprintf(stderr, "; %llu of %llu guesses kept, %.2f tokens a round",
                (unsigned long long)gem_draft_stats_accepted(&s->draft),
                (unsigned long long)gem_draft_stats_drafted(&s->draft),
                (double)s->draft.tokens / (double)s->draft.rounds);
    fprintf(stderr, "%s]\n", why[s->finish]);
}
