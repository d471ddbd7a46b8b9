/* vocabulary.h - what the tokenizer's own files share: the tables built from a model file and the
 * steps of encoding. Nothing outside src/tokenizer includes it.
 *
 * Life of a text: gem_special_next cuts out markers, the rest goes in fragments to tokenizer.c,
 * which turns a fragment into symbols (characters, or the bytes of one word), gem_merge joins
 * neighbours, and what is left is the answer. */
#ifndef GEM_VOCABULARY_H
#define GEM_VOCABULARY_H

#include "tokenizer/tokenizer.h"

typedef enum gem_vocab_kind {
    GEM_VOCAB_SCORE, /* "llama": characters, best score first */
    GEM_VOCAB_CHARS, /* "gemma4": characters, lowest rank of `merges` first */
    GEM_VOCAB_WORDS  /* "gpt2": words cut by a pattern, bytes, lowest rank first */
} gem_vocab_kind;

/* When a marker's text is taken as the marker. A file's type numbers do not decide this alone:
 * Gemma 4 types its tool and channel markers as it would type a run of spaces. */
typedef enum gem_marker_level {
    GEM_MARKER_ALWAYS, /* runs of spaces and newlines, HTML tags: plain text with an id of its own
                        */
    GEM_MARKER_TEXT, /* markers of a protocol that plain text may spell (not with GEM_TOK_PLAIN) */
    GEM_MARKER_CONTROL, /* only with GEM_TOK_SPECIAL */
    GEM_MARKER_LEVELS
} gem_marker_level;

typedef struct gem_marker {
    const char *text; /* borrowed from the file */
    uint32_t len;
    int32_t id;
    gem_marker_level level;
} gem_marker;

typedef struct gem_merge_slot { /* one entry of `merges`; id < 0: an empty slot */
    int32_t left, right, id;
    uint32_t rank;
} gem_merge_slot;

#define GEM_MAX_ENDS 16

struct gem_tokenizer {
    gem_vocab_kind kind;
    bool marks_in_words; /* pre "qwen35": combining marks are letters of a word */
    bool add_bos;
    int32_t n_vocab;
    int32_t bos, eos, pad, unk;
    int32_t end[GEM_MAX_ENDS];
    int n_end;
    gem_str chat_template; /* borrowed from the file; {NULL, 0}: none */
    uint64_t seed;         /* of both hash tables, so that no file can be made to collide */

    /* stored text: at[id] is where the string of `id` starts in the file's array */
    const uint8_t *array; /* borrowed from the file */
    uint32_t *at;         /* owned */
    uint8_t *type;        /* owned; gem_token_type */
    uint32_t max_text;    /* bytes of the longest stored text */

    /* decoded bytes: arena[bytes_at[id] .. bytes_at[id + 1]) */
    char *arena;        /* owned */
    uint32_t *bytes_at; /* owned; n_vocab + 1 */
    uint32_t max_bytes; /* of one token, markers included */

    uint64_t *by_text; /* owned; hash table: upper half of the hash, then id + 1; 0 is empty */
    size_t by_text_mask;
    int32_t byte_id[256];  /* the token of a single byte */
    int32_t ascii_id[128]; /* characters: the token of that character, or -1 */

    uint32_t *prio; /* owned; SCORE only: 0 is the best; GEM_NO_MERGE for what no merge makes */
    gem_merge_slot *merges; /* owned; hash table by (left, right); CHARS and WORDS only */
    size_t merges_mask;

    gem_marker *markers; /* owned; sorted by text */
    size_t n_markers;
    uint32_t first[257]; /* markers that begin with byte b: first[b] .. first[b + 1] */
    bool begins[GEM_MARKER_LEVELS][256]; /* is there one of at most this level? */
};

#define GEM_NO_MERGE UINT32_MAX

gem_str gem_vocab_text(const gem_tokenizer *t, int32_t id);
/* Build the text table; GEM_E_FORMAT when two tokens have one text. */
gem_status gem_vocab_index(gem_tokenizer *t, gem_error *err);
/* Build the merge table out of n strings "left right". */
gem_status gem_vocab_merges(gem_tokenizer *t, const uint8_t *array, uint64_t n, gem_error *err);
/* The entry that joins two tokens; NULL when none. */
const gem_merge_slot *gem_vocab_merge(const gem_tokenizer *t, int32_t left, int32_t right);

/* ---- markers ---- */
/* Sort and index t->markers. */
void gem_special_index(gem_tokenizer *t);
/* First marker of at most `level` at or after text[pos]; at one place the longest. False: none.
 * *at and *found are set on true. */
bool gem_special_next(const gem_tokenizer *t, const char *text, size_t len, size_t pos,
                      gem_marker_level level, size_t *at, const gem_marker **found);

/* ---- words ---- */
/* End of the word that starts at text[pos], pos < len: the Qwen pattern, one alternative a branch.
 */
size_t gem_word_end(const char *text, size_t len, size_t pos, bool marks_in_words);

/* ---- merging ---- */
typedef struct gem_symbol {
    uint32_t start, len; /* bytes of the fragment; len 0: merged into the symbol before it */
    uint32_t prev, next; /* neighbours still alive; UINT32_MAX at the ends */
    int32_t id;          /* token, GEM_SYMBOL_NONE or GEM_SYMBOL_INVALID */
} gem_symbol;
#define GEM_SYMBOL_NONE (-1)    /* a character without a token */
#define GEM_SYMBOL_INVALID (-2) /* a byte that is no UTF-8: joins nothing */

typedef struct gem_merge_entry {
    uint64_t key; /* priority, then place: smaller is earlier */
    int32_t id;   /* what the pair becomes */
    uint32_t len; /* bytes of the pair: tells an entry whose symbols have changed since */
} gem_merge_entry;

typedef struct gem_merge_work { /* scratch of one encode call; zero-initialise */
    gem_symbol *sym;
    size_t n_sym, cap_sym;
    gem_merge_entry *heap;
    size_t n_heap, cap_heap;
} gem_merge_work;

bool gem_merge_reserve(gem_merge_work *w, size_t n_sym); /* false: no memory */
void gem_merge_free(gem_merge_work *w);
/* Join neighbours in w->sym[0 .. n_sym), best pair first, until none is left. The symbols cover
 * `text` without gaps and are linked in order. O(n log n). False: no memory. */
bool gem_merge(const gem_tokenizer *t, const char *text, gem_merge_work *w);

#endif
