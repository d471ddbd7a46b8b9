/* logits.c - `gem logits`: the vector interface for oracles. Raw little-endian F32 rows in one
 * file, and beside it FILE.json that says what they are. */
#include "base/base.h"
#include "cmd/gem/commands.h"
#include "gem_build.h"
#include "runtime/engine.h"

#include <errno.h>
#include <stdlib.h>

static struct {
    cli_model_flags model;
    const char *prompt, *tokens, *positions, *out;
    bool special, no_bos;
} opt;

static const cli_option options[] = {
    {"prompt", 'p', CLI_TEXT, "TEXT", &opt.prompt, 0, 0, "tokenize TEXT", NULL},
    {"tokens", 'i', CLI_TEXT, "FILE", &opt.tokens, 0, 0,
     "read token ids from FILE (blanks or commas between); - is stdin", NULL},
    {"positions", 0, CLI_TEXT, "all|last|LIST", &opt.positions, 0, 0,
     "rows to write, e.g. 0,5,10-20; default all", NULL},
    {"out", 'o', CLI_TEXT, "FILE", &opt.out, 0, 0, "where the rows go; FILE.json describes them",
     NULL},
    {"special", 's', CLI_FLAG, NULL, &opt.special, 0, 0, "markers in TEXT become control tokens",
     NULL},
    {"no-bos", 0, CLI_FLAG, NULL, &opt.no_bos, 0, 0,
     "never put a beginning-of-text token in front of TEXT", NULL},
    {"exact", 'e', CLI_FLAG, NULL, &opt.model.exact, 0, 0,
     "F32 activations against exactly dequantised weights (slow)", NULL},
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1, INT32_MAX,
     "positions; default: as many as there are tokens", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_logits_command = {
    .program = "gem logits",
    .args = "MODEL",
    .summary = "write the logits of given positions as raw F32 rows",
    .text = "  gem logits gemma-3-270m -p \"The capital of France is\" --positions last --out "
            "paris.f32\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

static gem_status read_ids(const char *path, int32_t **ids, size_t *n, gem_error *err)
{
    char *text = NULL;
    size_t len, cap = 0;
    gem_status st = cli_read(path, &text, &len, err);
    if (st != GEM_OK) return st;
    for (const char *p = text;;) {
        char *end;
        p += strspn(p, " \t\r\n,[]");
        if (!*p) break;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX) {
            st = gem_fail(err, GEM_E_ARG, "%s: '%.20s' is no token id", path, p);
            break;
        }
        if (*n == cap) {
            cap = cap ? 2 * cap : 256;
            int32_t *grown = realloc(*ids, cap * sizeof(**ids));
            if (!grown) {
                st = gem_fail(err, GEM_E_NOMEM, "no memory for %zu token ids", cap);
                break;
            }
            *ids = grown;
        }
        (*ids)[(*n)++] = (int32_t)id;
        p = end;
    }
    if (st == GEM_OK && *n == 0) st = gem_fail(err, GEM_E_ARG, "%s: holds no token ids", path);
    free(text);
    return st;
}

/* "all", "last" or "0,5,10-20" into want[n]. */
static gem_status parse_positions(const char *s, size_t n, uint8_t *want, gem_error *err)
{
    memset(want, 0, n);
    if (!s || !strcmp(s, "all")) {
        memset(want, 1, n);
        return GEM_OK;
    }
    if (!strcmp(s, "last")) {
        want[n - 1] = 1;
        return GEM_OK;
    }
    for (const char *p = s;;) {
        char *end;
        unsigned long long a = strtoull(p, &end, 10), b = a;
        if (end == p || *p == '-' || *p == '+') break;
        if (*end == '-') {
            p = end + 1;
            b = strtoull(p, &end, 10);
            if (end == p) break;
        }
        if (a > b || b >= n)
            return gem_fail(err, GEM_E_RANGE, "--positions %s: positions go from 0 to %zu here", s,
                            n - 1);
        memset(want + a, 1, (size_t)(b - a) + 1);
        if (!*end) return GEM_OK;
        if (*end != ',') break;
        p = end + 1;
    }
    return gem_fail(err, GEM_E_ARG,
                    "--positions %s: all, last, or a list such as 0,5,10-20 is needed", s);
}

/* F32 rows in little-endian order, whatever the machine's. */
static bool write_row(FILE *f, const float *row, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return fwrite(row, sizeof(float), n, f) == n;
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &row[i], 4);
        u = __builtin_bswap32(u);
        if (fwrite(&u, 4, 1, f) != 1) return false;
    }
    return true;
#endif
}

/* Run all tokens in pieces of at most `batch` rows and write the wanted rows. */
static gem_status write_rows(gem_model *m, const int32_t *ids, size_t n, const uint8_t *want,
                             size_t batch, FILE *f, gem_error *err)
{
    gem_model_info info;
    gem_session *s = NULL;
    gem_row *rows = calloc(batch, sizeof(*rows));
    const float **logits = calloc(batch, sizeof(*logits));
    gem_model_get_info(m, &info);
    gem_status st = rows && logits
                        ? gem_session_new(&s, m, err)
                        : gem_fail(err, GEM_E_NOMEM, "no memory for a batch of %zu rows", batch);
    for (size_t at = 0; st == GEM_OK && at < n && !cli_interrupted; at += batch) {
        size_t k = GEM_MIN(batch, n - at);
        for (size_t i = 0; i < k; i++)
            rows[i] = (gem_row){s, ids[at + i], want[at + i] != 0};
        st = gem_batch_run(m, rows, k, logits, err);
        for (size_t i = 0; st == GEM_OK && i < k; i++)
            if (want[at + i] && !write_row(f, logits[i], (size_t)info.n_vocab))
                st = gem_fail(err, GEM_E_DEVICE, "%s: %s", opt.out, strerror(errno));
    }
    if (st == GEM_OK && cli_interrupted) st = gem_fail(err, GEM_E_CANCELLED, "interrupted");
    gem_session_free(s);
    free(rows);
    free(logits);
    return st;
}

static gem_status write_description(const gem_model *m, const char *model_path, const int32_t *ids,
                                    size_t n, const uint8_t *want, gem_error *err)
{
    gem_model_info info;
    gem_model_get_info(m, &info);
    json_t *tokens = json_array(), *positions = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(tokens, json_integer(ids[i]));
        if (want[i]) json_array_append_new(positions, json_integer((json_int_t)i));
    }
    json_int_t n_rows = (json_int_t)json_array_size(positions);
    char *config_text = gem_model_config_json(m);
    json_t *config = config_text ? json_loads(config_text, 0, NULL) : NULL;
    json_t *doc =
        json_pack("{s:s, s:s, s:s, s:s, s:[I,i], s:b, s:s, s:s, s:o, s:o, s:o?, s:s}", "schema",
                  "gem-logits/1", "model", model_path, "file", opt.out, "dtype", "f32-le", "shape",
                  n_rows, (int)info.n_vocab, "exact", opt.model.exact, "kv_type",
                  cli_kv_type_names[opt.model.kv_type], "isa", info.isa, "tokens", tokens,
                  "positions", positions, "config", config, "build", GEM_BUILD_COMMIT);
    char *text = doc ? json_dumps(doc, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    gem_bytes path = {0};
    gem_bytes_printf(&path, "%s.json", opt.out);
    gem_status st = text && !path.failed
                        ? gem_file_write_atomic(path.data, text, strlen(text), err)
                        : gem_fail(err, GEM_E_NOMEM, "no memory for the description");
    gem_bytes_free(&path);
    free(text);
    free(config_text);
    json_decref(doc);
    return st;
}

/* Everything behind the options. */
static gem_status run(const char *arg, gem_error *err)
{
    char path[4096];
    gem_model *m = NULL, *words = NULL;
    gem_model_options mo;
    int32_t *ids = NULL;
    uint8_t *want = NULL;
    size_t n = 0;
    FILE *f = NULL;
    gem_bytes part = {0};
    gem_status st = cli_model_path(arg, path, sizeof(path), err);
    if (st != GEM_OK) return st;
    if (opt.tokens) {
        st = read_ids(opt.tokens, &ids, &n, err);
    } else { /* the count decides how large a context is opened, so the words come first */
        mo = (gem_model_options){.vocab_only = true, .log = cli_log};
        st = gem_model_open(&words, path, &mo, err);
        if (st == GEM_OK)
            st = gem_tokenize(words, opt.prompt, strlen(opt.prompt),
                              (opt.no_bos ? 0 : GEM_TOK_BOS) | (opt.special ? GEM_TOK_SPECIAL : 0),
                              &ids, &n, err);
        gem_model_close(words);
        if (st == GEM_OK && n == 0) st = gem_fail(err, GEM_E_ARG, "the text gives no tokens");
    }
    if (st != GEM_OK) goto done;
    want = malloc(n);
    st = want ? parse_positions(opt.positions, n, want, err)
              : gem_fail(err, GEM_E_NOMEM, "no memory for %zu positions", n);
    if (st != GEM_OK) goto done;

    cli_model_options(&mo, &opt.model);
    if (!mo.n_ctx) mo.n_ctx = (int32_t)GEM_MIN(n, (size_t)INT32_MAX);
    if (!mo.n_batch) mo.n_batch = 64; /* every row may want logits, a megabyte each */
    mo.n_sessions = 1;
    gem_engine_options engine = {.n_logits = mo.n_batch, .ops = gem_backend_find(mo.backend)};
    if (!engine.ops) {
        st = gem_fail(err, GEM_E_UNSUPPORTED, "backend %.64s is not in this build; it has: %s",
                      mo.backend, gem_backend_names());
        goto done;
    }
    st = gem_model_open_engine(&m, path, &mo, &engine, err);
    cli_end_progress();
    if (st != GEM_OK) goto done;
    gem_bytes_printf(&part, "%s.part", opt.out);
    f = part.failed ? NULL : fopen(part.data, "wbe");
    if (!f) {
        st = gem_fail(err, GEM_E_IO, "%s.part: %s", opt.out, strerror(errno));
        goto done;
    }
    st = write_rows(m, ids, n, want, (size_t)mo.n_batch, f, err);
    if (fclose(f) != 0 && st == GEM_OK)
        st = gem_fail(err, GEM_E_DEVICE, "%s: %s", opt.out, strerror(errno));
    if (st == GEM_OK) st = write_description(m, path, ids, n, want, err);
    if (st == GEM_OK && rename(part.data, opt.out) != 0)
        st = gem_fail(err, GEM_E_IO, "%s: %s", opt.out, strerror(errno));
    if (st != GEM_OK) remove(part.data);
done:
    gem_bytes_free(&part);
    gem_model_close(m);
    free(want);
    free(ids);
    return st;
}

int gem_logits_main(int argc, char **argv)
{
    const cli_command *c = &gem_logits_command;
    char **args;
    int n_args;
    gem_error err;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (!opt.out) return cli_usage(c, "--out FILE is needed");
    if (!opt.prompt == !opt.tokens) return cli_usage(c, "either --prompt or --tokens is needed");
    cli_catch_interrupt();
    return run(args[0], &err) == GEM_OK ? CLI_DONE : cli_fail(c, &err);
}
