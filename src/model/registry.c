/* registry.c - the model families of this build, and why their relatives are refused. */
#include "model/families.h"

static const gem_family *const families[] = {&gem_family_gemma3, &gem_family_gemma4,
                                             &gem_family_qwen2, &gem_family_qwen35};

static const gem_beside *const beside[] = {&gem_beside_gemma4_assistant};

/* Files people are likely to try. Others are refused with the supported list alone. */
static const struct {
    const char *arch, *why;
} refused[] = {
    {"gemma", "Gemma 1 has neither query and key norms nor a sliding window"},
    {"gemma2", "Gemma 2 caps its attention scores"},
    {"gemma3n", "Gemma 3n has per-layer embeddings and shared KV layers"},
    {"gemma-embedding", "an embedding model, which generates no text"},
    {"gemma4-assistant", "a drafter, which runs only beside its target model: --draft FILE"},
    {"gemma4_mtp", "a drafter, which runs only beside its target model"},
    {"dflash", "a drafter, which runs only beside its target model"},
    {"llama", "Llama-like models rotate neighbouring dims, not halves"},
    {"qwen", "Qwen 1 has fused attention weights"},
    {"qwen2moe", "a mixture of experts"},
    {"qwen2vl", "its positions have several axes"},
    {"qwen3", "Qwen3 norms queries and keys and has no biases"},
    {"qwen3moe", "a mixture of experts"},
    {"qwen3next", "its projections are packed otherwise and its V heads stand in another order"},
    {"qwen35moe", "a mixture of experts; dense qwen35 files run"},
    {"qwen4exp", "another architecture"},
    {"eagle3", "a drafter, which runs only beside its target model"},
    {"clip", "a multimodal projector, not a language model"},
    {"bert", "an encoder, which generates no text"},
    {"nomic-bert", "an encoder, which generates no text"},
    {"whisper", "a speech model"},
};

const gem_family *gem_family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? families[i] : NULL;
}

static const char *reason(gem_str arch)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (gem_str_is(arch, refused[i].arch)) return refused[i].why;
    return NULL;
}

static void list_supported(char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        const char *sep = i ? ", " : "";
        size_t need = strlen(sep) + strlen(families[i]->arch);
        if (n + need + 1 > cap) return;
        memcpy(out + n, sep, strlen(sep));
        memcpy(out + n + strlen(sep), families[i]->arch, strlen(families[i]->arch) + 1);
        n += need;
    }
}

/* Adapters, projectors and importance matrices carry the architecture of their model. */
static gem_status check_type(const gem_gguf *g, gem_error *err)
{
    gem_str type = {0};
    gem_status st = gem_gguf_get_str(g, "general.type", false, &type, err);
    if (st != GEM_OK || type.len == 0 || gem_str_is(type, "model")) return st;
    return gem_fail(err, GEM_E_UNSUPPORTED, "%s: key general.type is %.*s; only model is supported",
                    gem_gguf_path(g), (int)GEM_MIN(type.len, (size_t)64), type.data);
}

gem_status gem_family_find(const gem_family **out, gem_gguf *g, gem_error *err)
{
    gem_str arch = {0};
    char supported[256];
    gem_status st = gem_gguf_get_str(g, "general.architecture", true, &arch, err);
    *out = NULL;
    if (st != GEM_OK) return st;
    list_supported(supported, sizeof(supported));

    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (gem_str_is(arch, families[i]->arch)) *out = families[i];
    if (!*out) {
        const char *why = reason(arch);
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: architecture %.*s is not supported%s%s%s; supported: %s",
                        gem_gguf_path(g), (int)GEM_MIN(arch.len, (size_t)64), arch.data,
                        why ? " (" : "", why ? why : "", why ? ")" : "", supported);
    }
    if ((st = check_type(g, err)) != GEM_OK) *out = NULL;
    return st;
}

gem_status gem_model_plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err)
{
    const gem_family *f;
    gem_status st = gem_family_find(&f, g, err);
    memset(out, 0, sizeof(*out));
    if (st != GEM_OK) return st;
    if (drafter && !f->drafts)
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s: files of architecture %s bring no drafter",
                        gem_gguf_path(g), f->arch);
    if ((st = f->plan(out, g, n_vocab, drafter, err)) != GEM_OK) return st;
    if ((st = gem_manifest_leftovers(f->manifest, g, err)) != GEM_OK) gem_plan_free(out);
    return st;
}

static const gem_beside *find_beside(gem_str arch)
{
    for (size_t i = 0; i < ARRAY_LEN(beside); i++)
        if (gem_str_is(arch, beside[i]->arch)) return beside[i];
    return NULL;
}

bool gem_model_is_beside(const gem_gguf *g)
{
    gem_str arch = {0};
    return gem_gguf_get_str(g, "general.architecture", true, &arch, NULL) == GEM_OK &&
           find_beside(arch);
}

gem_status gem_model_plan_beside(gem_plan *plan, gem_gguf *drafter, gem_error *err)
{
    gem_str arch = {0};
    gem_status st = gem_gguf_get_str(drafter, "general.architecture", true, &arch, err);
    if (st != GEM_OK) return st;
    const gem_beside *b = find_beside(arch);
    if (!b)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: architecture %.*s is no drafter that runs beside a model",
                        gem_gguf_path(drafter), (int)GEM_MIN(arch.len, (size_t)64), arch.data);
    if (strcmp(plan->family, b->target) != 0)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: a drafter for models of architecture %s, not %s",
                        gem_gguf_path(drafter), b->target, plan->family);
    if (plan->draft_op)
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s: the model brings a drafter already",
                        gem_gguf_path(drafter));
    if ((st = check_type(drafter, err)) != GEM_OK) return st;
    if ((st = b->attach(plan, drafter, err)) != GEM_OK) return st;
    return gem_manifest_leftovers(b->manifest, drafter, err);
}
