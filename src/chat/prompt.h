/* prompt.h - a rendered conversation: one text, cut into control pieces (which become special
 * tokens) and plain text (which never does). Renderers append to it; whatever a message spells,
 * only gem_put_marker and gem_put_template make control pieces. */
#ifndef GEM_CHAT_PROMPT_H
#define GEM_CHAT_PROMPT_H

#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"

typedef struct gem_prompt_cut { /* one control piece of the text */
    size_t start, len;
    const int32_t *tokens; /* borrowed until the prompt is tokenized: these instead; NULL */
    size_t n_tokens;
} gem_prompt_cut;

/* Where a reader of the answer begins. */
typedef enum gem_prompt_end {
    GEM_PROMPT_CONTENT,  /* at content, or wherever the model goes */
    GEM_PROMPT_REASONING /* the prompt ends inside an open thought */
} gem_prompt_end;

struct gem_prompt {
    gem_bytes text;
    gem_prompt_cut *cut; /* owned; in order */
    size_t n_cuts, cap_cuts;
    gem_prompt_piece *piece; /* owned; made once the text is complete */
    size_t n_pieces;
    int32_t *tokens; /* owned; made by gem_prompt_tokenize */
    size_t n_tokens;
    gem_prompt_end end;
    bool failed; /* out of memory */
};

/* ---- appending ---- */
void gem_put(gem_prompt *p, const char *text, size_t len);
void gem_put_str(gem_prompt *p, gem_str s);
void gem_put_words(gem_prompt *p, const char *text); /* a literal without markers */
void gem_put_marker(gem_prompt *p, const char *marker);
/* A literal of a template: every marker of the NULL-ended list in it becomes a control piece. */
void gem_put_template(gem_prompt *p, const char *const *markers, const char *text);
/* A stretch whose tokens are known. */
void gem_put_tokens(gem_prompt *p, const int32_t *tokens, size_t n, const char *text, size_t len);
bool gem_prompt_ends_with(const gem_prompt *p, const char *tail);

/* ---- closing ---- */
gem_status gem_prompt_close(gem_prompt *p, gem_error *err); /* makes the pieces */
/* Token ids: control pieces by their text, what is between two of them in one go. A control piece
 * that the vocabulary does not have is plain text. */
gem_status gem_prompt_tokenize(gem_prompt *p, const gem_tokenizer *t, gem_error *err);
void gem_prompt_clear(gem_prompt *p);

#endif
