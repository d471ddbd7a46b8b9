/* gem_synth_model.c - `gem-synth-model`: writes a random-weight GGUF of a supported family and any
 * shape, at the speed of the disk and in little memory, so that a machine can be measured before
 * gigabytes are downloaded. Same arguments, same bytes. What fills the file: src/cmd/synth_model.
 */
#include "cmd/cli/cli.h"
#include "cmd/synth_model/synth.h"

#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

static struct {
    const char *preset, *arch, *quant, *out, *vocab_from;
    uint64_t seed;
    int32_t jobs, layers, d_model, d_ff, heads, kv_heads, head_dim, window, ctx, vocab;
    int32_t global_kv_heads, global_head_dim, k_heads, v_heads, state_dim;
    float rope_theta;
    bool nextn, tied, untied, expand, sparse, dry_run, list, quiet;
} opt;

#define DIM(name, field, max, text)                                                                \
    {                                                                                              \
        name, 0, CLI_INT, "N", &opt.field, 1, max, text, NULL                                      \
    }
static const cli_option options[] = {
    {"preset", 'p', CLI_TEXT, "NAME", &opt.preset, 0, 0, "shape to start from; see --list", NULL},
    {"arch", 'a', CLI_TEXT, "NAME", &opt.arch, 0, 0,
     "family, such as gemma3; without --preset its tiny shape", NULL},
    {"quant", 'q', CLI_TEXT, "MIX", &opt.quant, 0, 0,
     "types of the matrices; default: the preset's, or q4_k_m; see --list", NULL},
    {"out", 'o', CLI_TEXT, "FILE", &opt.out, 0, 0,
     "file to write; replaced in one step when all is done", NULL},
    {"seed", 's', CLI_U64, "N", &opt.seed, 0, 0, "seed of all random numbers; default 0", NULL},
    {"jobs", 'j', CLI_INT, "N", &opt.jobs, 1, 1024, "threads; default: the cores we may use", NULL},
    {"vocab-from", 0, CLI_TEXT, "MODEL", &opt.vocab_from, 0, 0, "take the tokenizer of this model",
     NULL},
    {"vocab", 0, CLI_INT, "N", &opt.vocab, 1, 1 << 24, "tokens of the synthetic vocabulary", NULL},
    DIM("layers", layers, 1024, "layers"),
    DIM("d-model", d_model, 1 << 18, "width of the residual"),
    DIM("d-ff", d_ff, 1 << 20, "width of the feed-forward part"),
    DIM("heads", heads, 1024, "heads of queries"),
    DIM("kv-heads", kv_heads, 1024, "heads of keys and values"),
    DIM("head-dim", head_dim, 1024, "dims of a head; default for qwen2: d-model / heads"),
    DIM("global-kv-heads", global_kv_heads, 1024, "heads of keys of layers that see all (gemma4)"),
    DIM("global-head-dim", global_head_dim, 1024, "dims of a head of such a layer (gemma4)"),
    DIM("k-heads", k_heads, 1024, "heads of keys of recurrent layers (qwen35)"),
    DIM("v-heads", v_heads, 1024, "heads of values of recurrent layers (qwen35)"),
    DIM("state-dim", state_dim, 1024, "dims of a recurrent head (qwen35)"),
    {"nextn", 0, CLI_FLAG, NULL, &opt.nextn, 0, 0,
     "add the block that predicts the token after the next (qwen35)", NULL},
    DIM("window", window, 1 << 24, "positions a sliding layer sees (gemma3, gemma4)"),
    DIM("ctx", ctx, 1 << 24, "positions the model says it was trained for"),
    {"rope-theta", 0, CLI_FLOAT, "X", &opt.rope_theta, 1, 1e12, "base of the rotary frequencies",
     NULL},
    {"tied", 0, CLI_FLAG, NULL, &opt.tied, 0, 0, "the head is the embedding", NULL},
    {"untied", 0, CLI_FLAG, NULL, &opt.untied, 0, 0, "the head is its own matrix", NULL},
    {"expand-f32", 0, CLI_FLAG, NULL, &opt.expand, 0, 0,
     "store the exact values of the mix as F32: the twin to judge a quantised run by", NULL},
    {"sparse", 0, CLI_FLAG, NULL, &opt.sparse, 0, 0,
     "leave the matrices as holes that read as zeros: a whole header and the vectors, no data",
     NULL},
    {"dry-run", 'n', CLI_FLAG, NULL, &opt.dry_run, 0, 0, "list the tensors, write nothing", NULL},
    {"list", 'l', CLI_FLAG, NULL, &opt.list, 0, 0, "list presets and mixes", NULL},
    {"quiet", 0, CLI_FLAG, NULL, &opt.quiet, 0, 0, "no progress on stderr", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

static const cli_command command = {
    "gem-synth-model",
    "",
    "write a random-weight model file of any shape, the same bytes for the same arguments",
    "Prints one JSON summary. Examples:\n"
    "  gem-synth-model --preset gemma3-270m --out synthetic.gguf\n"
    "  gem-synth-model --arch qwen2 --layers 8 --d-model 1024 --quant q8_0 --out small.gguf\n",
    0,
    0,
    options};

/* ---- what is asked for ---- */

static gem_status read_shape(synth_shape *s, gem_error *err)
{
    char tiny[64];
    const char *name = opt.preset;
    if (!name && !opt.arch) return gem_fail(err, GEM_E_ARG, "--preset or --arch is needed");
    if (!name) {
        snprintf(tiny, sizeof(tiny), "%.40s-tiny", opt.arch);
        name = tiny;
    }
    const synth_shape *preset = synth_preset(name);
    if (!preset && opt.preset)
        return gem_fail(err, GEM_E_ARG, "there is no preset '%.60s'; see --list", name);
    if (!preset)
        return gem_fail(err, GEM_E_ARG, "family '%.60s' is not supported; see --list", opt.arch);
    if (opt.arch && strcmp(preset->arch, opt.arch) != 0)
        return gem_fail(err, GEM_E_ARG, "preset %s is of family %s, not %.60s", preset->name,
                        preset->arch, opt.arch);
    if (opt.tied && opt.untied)
        return gem_fail(err, GEM_E_ARG, "--tied and --untied exclude each other");
    *s = *preset;
    if (opt.window && s->window == 0)
        return gem_fail(err, GEM_E_ARG, "--window: no layer of a %s model slides", s->arch);
    if ((opt.global_kv_heads || opt.global_head_dim) && s->global_head_dim == 0)
        return gem_fail(err, GEM_E_ARG,
                        "--global-...: all layers of a %s model have the same heads", s->arch);
    if ((opt.k_heads || opt.v_heads || opt.state_dim || opt.nextn) && s->k_heads == 0)
        return gem_fail(err, GEM_E_ARG,
                        "--k-heads, --v-heads, --state-dim, --nextn: a %s model is not recurrent",
                        s->arch);
    if (opt.k_heads) s->k_heads = opt.k_heads;
    if (opt.v_heads) s->v_heads = opt.v_heads;
    if (opt.state_dim) s->state_dim = opt.state_dim;
    s->nextn = opt.nextn;
    if (opt.global_kv_heads) s->global_kv_heads = opt.global_kv_heads;
    if (opt.global_head_dim) s->global_head_dim = opt.global_head_dim;
    if (opt.layers) s->n_layers = opt.layers;
    if (opt.d_model) s->d_model = opt.d_model;
    if (opt.d_ff) s->d_ff = opt.d_ff;
    if (opt.heads) s->n_heads = opt.heads;
    if (opt.kv_heads) s->n_kv_heads = opt.kv_heads;
    if (opt.head_dim)
        s->head_dim = opt.head_dim;
    else if (s->window == 0 && s->k_heads == 0 && (opt.d_model || opt.heads))
        s->head_dim = s->d_model / s->n_heads;
    if (opt.window) s->window = opt.window;
    if (opt.ctx) s->n_ctx = opt.ctx;
    if (opt.vocab) s->n_vocab = opt.vocab;
    if (opt.rope_theta > 0) s->rope_theta = opt.rope_theta;
    if (opt.tied || opt.untied) s->tied = opt.tied;
    return GEM_OK;
}

/* The tokenizer's file, if one was named; its size replaces that of the shape. */
static gem_status open_vocab(gem_gguf **from, synth_shape *s, gem_error *err)
{
    char path[4096];
    gem_status st;
    if (!opt.vocab_from) return GEM_OK;
    if (opt.vocab) return gem_fail(err, GEM_E_ARG, "--vocab and --vocab-from exclude each other");
    if ((st = cli_model_path(opt.vocab_from, path, sizeof(path), err)) != GEM_OK) return st;
    if ((st = gem_gguf_open(from, path, err)) != GEM_OK) return st;
    return synth_vocab_size(*from, s->arch, &s->n_vocab, err);
}

/* ---- keys and tensors ---- */

static gem_status put_text(gem_gguf_writer *w, const char *key, const char *text, gem_error *err)
{
    return gem_gguf_put_str(w, key, text, strlen(text), err);
}

/* The type a tensor has in the file. */
static gem_dtype stored(const synth_model *m, size_t i)
{
    return m->expand ? GEM_DTYPE_F32 : m->tensors[i].dtype;
}

static gem_status put_header(gem_gguf_writer *w, const synth_model *m, const synth_mix *mix,
                             const gem_gguf *vocab, gem_error *err)
{
    gem_status st;
    char name[96];
    snprintf(name, sizeof(name), "Synthetic %s, seed %llu", m->shape.name,
             (unsigned long long)m->seed);
    if ((st = put_text(w, "general.architecture", m->shape.arch, err)) != GEM_OK) return st;
    if ((st = put_text(w, "general.type", "model", err)) != GEM_OK) return st;
    if ((st = put_text(w, "general.name", name, err)) != GEM_OK) return st;
    if ((st = put_text(w, "general.description",
                       "random weights by gem-synth-model, not a trained model", err)) != GEM_OK)
        return st;
    if ((st = synth_put_family_keys(w, &m->shape, err)) != GEM_OK) return st;
    st = vocab ? synth_copy_vocab(w, vocab, err) : synth_put_vocab(w, &m->shape, m->seed, err);
    if (st != GEM_OK) return st;
    if ((st = gem_gguf_put_u32(w, "general.quantization_version", 2, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_u32(w, "general.file_type", m->expand ? 0 : mix->file_type, err)) !=
        GEM_OK)
        return st;
    for (size_t i = 0; i < m->n_tensors && st == GEM_OK; i++)
        st = gem_gguf_declare_tensor(w, m->tensors[i].name, stored(m, i), m->tensors[i].n_dims,
                                     m->tensors[i].dim, err);
    return st;
}

static gem_status check_room(const char *path, uint64_t needed, gem_error *err)
{
    struct statvfs v;
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    if (statvfs(folder, &v) != 0) return GEM_OK; /* opening the file will say what is wrong */
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (free_bytes >= needed) return GEM_OK;
    return gem_fail(err, GEM_E_IO, "%s: %.1f GB are needed, %.1f GB are free", path,
                    (double)needed / 1e9, (double)free_bytes / 1e9);
}

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    static uint64_t shown;
    uint64_t start = *(uint64_t *)user, now = gem_now_ns();
    uint64_t every = isatty(STDERR_FILENO) ? 200000000u : 5000000000u;
    if (!opt.quiet && now - GEM_MAX(shown, start) >= every) {
        shown = now;
        fprintf(stderr, "%s%5.1f %%  %.2f GB/s%s", isatty(STDERR_FILENO) ? "\r" : "",
                100.0 * (double)done / (double)total, (double)done / (double)(now - start),
                isatty(STDERR_FILENO) ? "" : "\n");
    }
    return !cli_interrupted;
}

/* ---- summaries ---- */

static json_t *shape_json(const synth_shape *s)
{
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b}", "preset",
        s->name, "arch", s->arch, "about", s->about, "n_layers", (int)s->n_layers, "d_model",
        (int)s->d_model, "d_ff", (int)s->d_ff, "n_heads", (int)s->n_heads, "n_kv_heads",
        (int)s->n_kv_heads, "head_dim", (int)s->head_dim, "window", (int)s->window, "n_ctx",
        (int)s->n_ctx, "n_vocab", (int)s->n_vocab, "rope_theta", (double)s->rope_theta,
        "rope_factor", s->rope_factor > 0 ? (double)s->rope_factor : 1.0, "tied", (int)s->tied);
    if (j && s->global_head_dim) {
        json_object_set_new(j, "global_kv_heads", json_integer(s->global_kv_heads));
        json_object_set_new(j, "global_head_dim", json_integer(s->global_head_dim));
    }
    if (j && s->k_heads) {
        json_object_set_new(j, "k_heads", json_integer(s->k_heads));
        json_object_set_new(j, "v_heads", json_integer(s->v_heads));
        json_object_set_new(j, "state_dim", json_integer(s->state_dim));
        json_object_set_new(j, "nextn", json_boolean(s->nextn));
    }
    return j;
}

static int print_list(void)
{
    json_t *presets = json_array(), *mixes = json_array();
    for (const synth_shape *s = synth_presets; s->name; s++)
        json_array_append_new(presets, shape_json(s));
    for (const synth_mix *m = synth_mixes; m->name; m++)
        json_array_append_new(mixes, json_string(m->name));
    return cli_print_json(&command, json_pack("{s:o, s:o}", "presets", presets, "quants", mixes));
}

static json_t *types_json(const synth_model *m)
{
    json_t *all = json_object();
    for (size_t i = 0; i < m->n_tensors; i++) {
        const char *name = gem_dtype_get((uint32_t)stored(m, i))->name;
        json_int_t n = json_integer_value(json_object_get(all, name));
        json_object_set_new(all, name, json_integer(n + 1));
    }
    return all;
}

static json_t *tensors_json(const synth_model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_tensors; i++) {
        const synth_tensor *t = &m->tensors[i];
        json_t *dims = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(dims, json_integer((json_int_t)t->dim[d]));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o}", "name", t->name, "type",
                                        gem_dtype_get((uint32_t)stored(m, i))->name, "dims", dims));
    }
    return list;
}

static json_t *summary(const synth_model *m, const synth_mix *mix, uint64_t bytes, int jobs,
                       double seconds)
{
    json_int_t parameters = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        parameters += (json_int_t)(m->tensors[i].dim[0] * m->tensors[i].dim[1]);
    json_t *doc =
        json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:o}", "shape", shape_json(&m->shape), "quant",
                  mix->name, "seed", (json_int_t)m->seed, "bytes", (json_int_t)bytes, "parameters",
                  parameters, "n_tensors", (json_int_t)m->n_tensors, "types", types_json(m));
    if (opt.dry_run) {
        json_object_set_new(doc, "tensors", tensors_json(m));
    } else {
        json_object_set_new(doc, "path", json_string(opt.out));
        json_object_set_new(doc, "jobs", json_integer(jobs));
        json_object_set_new(doc, "seconds", json_real(seconds));
        json_object_set_new(doc, "bytes_per_second", json_real((double)bytes / seconds));
    }
    return doc;
}

/* ---- main ---- */

static gem_status make(const synth_model *m, const synth_mix *mix, const gem_gguf *vocab, int jobs,
                       json_t **doc, gem_error *err)
{
    uint64_t start = gem_now_ns();
    gem_gguf_writer *w = NULL;
    gem_status st = gem_gguf_writer_new(&w, opt.out, err);
    if (st != GEM_OK) return st;
    if ((st = put_header(w, m, mix, vocab, err)) != GEM_OK) goto done;
    uint64_t bytes = gem_gguf_writer_file_bytes(w);
    if (!m->sparse && (st = check_room(opt.out, bytes, err)) != GEM_OK) goto done;
    if ((st = synth_write(w, m, jobs, show_progress, &start, err)) != GEM_OK) goto done;
    if ((st = gem_gguf_writer_finish(w, err)) != GEM_OK) goto done;
    if (!opt.quiet && isatty(STDERR_FILENO)) fputs("\r                        \r", stderr);
    *doc = summary(m, mix, bytes, jobs, (double)(gem_now_ns() - start) / 1e9);
done:
    gem_gguf_writer_free(w);
    return st;
}

/* Size of the file without writing one: the tensors' bytes, aligned, without the header. */
static uint64_t tensor_bytes(const synth_model *m)
{
    uint64_t total = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const synth_tensor *t = &m->tensors[i];
        const gem_dtype_info *info = gem_dtype_get((uint32_t)stored(m, i));
        total += gem_round_up(t->dim[0] / info->block_len * info->block_bytes * t->dim[1], 32);
    }
    return total;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    gem_gguf *vocab = NULL;
    json_t *doc = NULL;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (opt.list) return print_list();
    const synth_mix *mix = opt.quant ? synth_mix_by_name(opt.quant) : NULL;
    if (opt.quant && !mix)
        return cli_usage(&command, "--quant %s: there is no such mix; see --list", opt.quant);
    if (!opt.out && !opt.dry_run) return cli_usage(&command, "--out or --dry-run is needed");

    synth_model m = {.seed = opt.seed, .expand = opt.expand, .sparse = opt.sparse};
    gem_status st = read_shape(&m.shape, &err);
    if (st == GEM_OK) st = open_vocab(&vocab, &m.shape, &err);
    if (st == GEM_OK) st = synth_check_shape(&m.shape, &err);
    if (st != GEM_OK) goto done;
    if (!mix) mix = synth_mix_by_name(m.shape.quant ? m.shape.quant : "q4_k_m");
    synth_layout(&m);
    if (m.failed) {
        st = gem_fail(&err, GEM_E_NOMEM, "no memory for the list of tensors");
        goto done;
    }
    synth_assign_types(&m, mix);
    int jobs = opt.jobs ? opt.jobs : gem_cpu_count();
    cli_catch_interrupt();
    if (opt.dry_run)
        doc = summary(&m, mix, tensor_bytes(&m), jobs, 0);
    else
        st = make(&m, mix, vocab, jobs, &doc, &err);
    if (st == GEM_OK) code = cli_print_json(&command, doc);
done:
    if (st != GEM_OK) code = cli_fail(&command, &err);
    synth_free(&m);
    gem_gguf_close(vocab);
    return code;
}
