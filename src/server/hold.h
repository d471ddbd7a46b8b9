/* hold.h - an answer held to a grammar while it is drawn: a schema from its first character, or a
 * tool's schema from where a call begins. A token that does not fit is taken out of the logits and
 * the draw repeated, which costs nothing when the model goes along; where few characters can
 * follow, all tokens that do not fit go at once. Engine thread only. */
#ifndef GEM_HOLD_H
#define GEM_HOLD_H

#include "server/grammar.h"
#include "server/serve.h"

/* What a job's answers are held to; made with the request, read-only then. */
typedef struct gem_hold_rules {
    gem_schema *format;    /* owned: response_format; NULL: none */
    gem_schema *calls;     /* owned: of the declared tools; NULL: none */
    bool must_call;        /* the answer is a call */
    int32_t open_tag;      /* <tool_call>; -1: the format has none */
    int32_t *open, *close; /* owned: tokens written for the model at a forced call, and behind it */
    size_t n_open, n_close;
} gem_hold_rules;

/* From response_format and the dialogue's tools. False with the fault. */
bool gem_hold_rules_read(gem_server *s, const json_t *body, struct gem_dialogue *d, gem_fault *f);
void gem_hold_rules_free(gem_hold_rules *r);

typedef struct gem_hold gem_hold;
/* The order is of the model's vocabulary. NULL: no memory. */
gem_hold *gem_hold_new(const gem_hold_rules *r, const gem_model *m, const gem_token_order *order);
void gem_hold_free(gem_hold *h);
/* The next token has to fit, or is written for the model; else gem_hold_draw only draws. */
bool gem_hold_holds(const gem_hold *h);
/* The next token, drawn or written for the model. GEM_E_RANGE: no token fits. */
gem_status gem_hold_draw(gem_hold *h, gem_sampler *sampler, const float *logits, int32_t *token,
                         gem_error *err);
/* It was taken; pending: the tool that a call without tags names so far, NULL: none. */
void gem_hold_take(gem_hold *h, int32_t token, const char *pending);
/* A call without tags is being drawn to its schema: it cannot become anything else. */
bool gem_hold_certain(const gem_hold *h);
/* The value is complete and nothing may follow. */
bool gem_hold_ended(const gem_hold *h);

#endif
