/* vocabulary.c - the two hash tables of a vocabulary: token by stored text, merge by its two
 * tokens. Built in one pass each when a model is opened, read-only afterwards. Both hash with a
 * seed drawn at open, so a file cannot be made to collide; results never depend on the seed. */
#include "tokenizer/vocabulary.h"

#include <stdlib.h>

/* Tables are larger than a core's cache: entries go in by blocks, so that their misses overlap. */
#define BLOCK 32

__extension__ typedef unsigned __int128 uint128;

static uint64_t fold(uint64_t a, uint64_t b)
{
    uint128 p = (uint128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t load64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint64_t load32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t hash_text(uint64_t seed, const char *p, size_t n)
{
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u), tail = 0;
    for (; n >= 8; n -= 8, p += 8)
        h = fold(h ^ load64(p), 0xD6E8FEB86659FD93u);
    if (n >= 4)
        tail = load32(p) | load32(p + n - 4) << 32;
    else if (n)
        tail = (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint64_t)(uint8_t)p[n - 1] << 16;
    return fold(h ^ tail, 0xA0761D6478BD642Fu ^ seed);
}

static uint64_t hash_pair(uint64_t seed, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return fold(key ^ seed, 0xE7037ED1A0B428DBu);
}

/* A power of two that keeps a table of n entries at most two thirds full. */
static size_t table_size(size_t n)
{
    size_t size = 64;
    while (size < n + n / 2)
        size *= 2;
    return size;
}

gem_str gem_vocab_text(const gem_tokenizer *t, int32_t id)
{
    const uint8_t *p = t->array + t->at[id];
    return gem_kv_string_next(&p);
}

static bool text_is(const gem_tokenizer *t, int32_t id, const char *text, size_t len)
{
    gem_str s = gem_vocab_text(t, id);
    return s.len == len && !memcmp(s.data, text, len);
}

/* The slot where `text` stands or would stand. */
static uint64_t *slot_of(const gem_tokenizer *t, uint64_t h, const char *text, size_t len)
{
    for (size_t i = h & t->by_text_mask;; i = (i + 1) & t->by_text_mask) {
        uint64_t *slot = &t->by_text[i];
        if (!*slot) return slot;
        if (*slot >> 32 == h >> 32 && text_is(t, (int32_t)((uint32_t)*slot - 1), text, len))
            return slot;
    }
}

gem_status gem_vocab_index(gem_tokenizer *t, gem_error *err)
{
    size_t size = table_size((size_t)t->n_vocab);
    t->by_text = calloc(size, sizeof(*t->by_text));
    if (!t->by_text)
        return gem_fail(err, GEM_E_NOMEM, "tokenizer: no memory for a table of %zu entries", size);
    t->by_text_mask = size - 1;

    for (int32_t first = 0; first < t->n_vocab; first += BLOCK) {
        int32_t n = GEM_MIN(BLOCK, t->n_vocab - first);
        uint64_t h[BLOCK];
        for (int32_t i = 0; i < n; i++) {
            gem_str s = gem_vocab_text(t, first + i);
            h[i] = hash_text(t->seed, s.data, s.len);
            __builtin_prefetch(&t->by_text[h[i] & t->by_text_mask], 1);
        }
        for (int32_t i = 0; i < n; i++) {
            gem_str s = gem_vocab_text(t, first + i);
            if (!s.len) continue; /* an empty text can be no part of any text */
            uint64_t *slot = slot_of(t, h[i], s.data, s.len);
            if (*slot)
                return gem_fail(err, GEM_E_FORMAT,
                                "tokenizer.ggml.tokens: entries %d and %d are the same text",
                                (int)((uint32_t)*slot - 1), (int)(first + i));
            *slot = (h[i] >> 32 << 32) | ((uint32_t)(first + i) + 1);
        }
    }
    return GEM_OK;
}

static int32_t find_hashed(const gem_tokenizer *t, uint64_t h, gem_str s)
{
    return s.len && s.len <= t->max_text ? (int32_t)((uint32_t)*slot_of(t, h, s.data, s.len) - 1)
                                         : -1;
}

int32_t gem_tokenizer_find(const gem_tokenizer *t, const char *text, size_t len)
{
    if (!len || len > t->max_text) return -1;
    return find_hashed(t, hash_text(t->seed, text, len), (gem_str){text, len});
}

const gem_merge_slot *gem_vocab_merge(const gem_tokenizer *t, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) return NULL;
    for (size_t i = hash_pair(t->seed, left, right) & t->merges_mask;;
         i = (i + 1) & t->merges_mask) {
        const gem_merge_slot *m = &t->merges[i];
        if (m->id < 0) return NULL;
        if (m->left == left && m->right == right) return m;
    }
}

/* One entry "left right" on its way into the table. */
typedef struct pending {
    gem_str left, right,
        joined; /* joined: in the block's scratch; empty when longer than any token */
    uint64_t left_hash, right_hash, joined_hash;
    gem_merge_slot m;
} pending;

static void hash_early(const gem_tokenizer *t, gem_str s, uint64_t *h)
{
    *h = hash_text(t->seed, s.data, s.len);
    __builtin_prefetch(&t->by_text[*h & t->by_text_mask]);
}

/* Cut at the first space behind the first byte. */
static gem_status cut_entry(const gem_tokenizer *t, gem_str s, uint32_t rank, pending *p,
                            char *scratch, gem_error *err)
{
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    *p = (pending){.m.rank = rank};
    if (!space)
        return gem_fail(err, GEM_E_FORMAT,
                        "tokenizer.ggml.merges: entry %u is not two texts with a space between",
                        rank);
    p->left = (gem_str){s.data, (size_t)(space - s.data)};
    p->right = (gem_str){space + 1, s.len - p->left.len - 1};
    if (s.len - 1 <= t->max_text) {
        memcpy(scratch, p->left.data, p->left.len);
        memcpy(scratch + p->left.len, p->right.data, p->right.len);
        p->joined = (gem_str){scratch, s.len - 1};
    }
    hash_early(t, p->left, &p->left_hash);
    hash_early(t, p->right, &p->right_hash);
    if (t->kind == GEM_VOCAB_CHARS) hash_early(t, p->joined, &p->joined_hash);
    return GEM_OK;
}

/* Bring in what the comparison of a candidate's text will read: where it is, then itself. */
static void prefetch_text(const gem_tokenizer *t, uint64_t h, bool place)
{
    uint32_t id = (uint32_t)t->by_text[h & t->by_text_mask];
    if (!id) return;
    if (place)
        __builtin_prefetch(&t->at[id - 1]);
    else
        __builtin_prefetch(t->array + t->at[id - 1]);
}

/* Vocabularies of words list the merged tokens in the order of their merges: the token after the
 * one before is nearly always it, and no hash is needed. */
static int32_t find_joined(const gem_tokenizer *t, const pending *p, int32_t *guess)
{
    gem_str s = p->joined;
    int32_t id = *guess;
    if (t->kind == GEM_VOCAB_CHARS)
        id = find_hashed(t, p->joined_hash, s);
    else if (id >= t->n_vocab || !text_is(t, id, s.data, s.len))
        id = gem_tokenizer_find(t, s.data, s.len);
    *guess = id + 1;
    return id;
}

static gem_status resolve(const gem_tokenizer *t, pending *p, int32_t *guess, gem_error *err)
{
    gem_merge_slot *m = &p->m;
    m->left = find_hashed(t, p->left_hash, p->left);
    m->right = find_hashed(t, p->right_hash, p->right);
    m->id = find_joined(t, p, guess);
    if (m->left < 0 || m->right < 0 || m->id < 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "tokenizer.ggml.merges: %s of entry %u is not among the tokens",
                        m->left < 0    ? "the left part"
                        : m->right < 0 ? "the right part"
                                       : "the joined text",
                        m->rank);
    if (t->type[m->id] != GEM_TOKEN_NORMAL)
        return gem_fail(
            err, GEM_E_FORMAT,
            "tokenizer.ggml.merges: entry %u makes token %d, which is of type %d, not 1 (normal)",
            m->rank, (int)m->id, t->type[m->id]);
    __builtin_prefetch(&t->merges[hash_pair(t->seed, m->left, m->right) & t->merges_mask], 1);
    return GEM_OK;
}

static gem_status insert(gem_tokenizer *t, const gem_merge_slot *m, gem_error *err)
{
    size_t i = hash_pair(t->seed, m->left, m->right) & t->merges_mask;
    for (; t->merges[i].id >= 0; i = (i + 1) & t->merges_mask)
        if (t->merges[i].left == m->left && t->merges[i].right == m->right)
            return gem_fail(err, GEM_E_FORMAT,
                            "tokenizer.ggml.merges: entries %u and %u are the same",
                            t->merges[i].rank, m->rank);
    t->merges[i] = *m;
    return GEM_OK;
}

/* A block of entries, step by step, so that the memory each step needs is already on its way. */
static gem_status add_block(gem_tokenizer *t, const uint8_t **array, uint32_t rank, uint32_t n,
                            int32_t *guess, char *scratch, gem_error *err)
{
    pending p[BLOCK];
    gem_status st;
    for (uint32_t i = 0; i < n; i++)
        if ((st = cut_entry(t, gem_kv_string_next(array), rank + i, &p[i],
                            scratch + (size_t)i * t->max_text, err)) != GEM_OK)
            return st;
    for (int place = 1; place >= 0; place--)
        for (uint32_t i = 0; i < n; i++) {
            prefetch_text(t, p[i].left_hash, place);
            prefetch_text(t, p[i].right_hash, place);
            if (t->kind == GEM_VOCAB_CHARS) prefetch_text(t, p[i].joined_hash, place);
        }
    for (uint32_t i = 0; i < n; i++)
        if ((st = resolve(t, &p[i], guess, err)) != GEM_OK) return st;
    for (uint32_t i = 0; i < n; i++)
        if ((st = insert(t, &p[i].m, err)) != GEM_OK) return st;
    return GEM_OK;
}

gem_status gem_vocab_merges(gem_tokenizer *t, const uint8_t *array, uint64_t n, gem_error *err)
{
    if (n > 1u << 24)
        return gem_fail(err, GEM_E_FORMAT,
                        "tokenizer.ggml.merges: %llu entries, at most 16777216 are read",
                        (unsigned long long)n);
    gem_status st = GEM_OK;
    size_t size = table_size((size_t)n);
    char *scratch = malloc((size_t)BLOCK * t->max_text + 1);
    t->merges = malloc(size * sizeof(*t->merges));
    if (!t->merges || !scratch) {
        st = gem_fail(err, GEM_E_NOMEM, "tokenizer: no memory for a table of %zu merges", size);
        goto done;
    }
    t->merges_mask = size - 1;
    memset(t->merges, 0xFF, size * sizeof(*t->merges)); /* id -1 everywhere */

    int32_t guess = 256;
    for (uint32_t rank = 0; rank < n && st == GEM_OK; rank += BLOCK)
        st = add_block(t, &array, rank, GEM_MIN((uint32_t)BLOCK, (uint32_t)n - rank), &guess,
                       scratch, err);
done:
    free(scratch);
    return st;
}
