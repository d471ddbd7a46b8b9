/* params.h - sampling, stops and limits of a request: the fields that every dialect shares. */
#ifndef GEM_PARAMS_H
#define GEM_PARAMS_H

#include "server/field.h"
#include "server/messages.h"
#include "server/serve.h"

/* The server's defaults, then the body's fields: temperature, top_p, top_k, min_p, penalties, seed,
 * stop, n, logit_bias, max_tokens and its synonyms, stream, stream_options, return_progress,
 * timings_per_token, cache_prompt. Deinit *p in any case. */
bool gem_params_read(gem_server *s, const json_t *body, gem_params *p, gem_fault *f);
/* logprobs, top_logprobs as chat has them. */
bool gem_params_read_logprobs(const json_t *body, gem_params *p, gem_fault *f);
/* Refuse what would change the answer and is not served: the field must be absent, null, or equal
 * to one of the neutral values. */
bool gem_params_refuse(const json_t *body, gem_fault *f);

/* A job from tokens: checks that every prompt fits the context, sets the limits. Takes *p and
 * prompt[n] in any case. NULL with the fault. */
gem_job *gem_params_job(gem_server *s, const gem_wire *w, gem_params *p, gem_job_prompt *prompt,
                        size_t n_prompts, gem_fault *f);

/* A job from a conversation; id: prefix and random digits. Takes *p and d in any case. */
gem_job *gem_params_talk(gem_server *s, const gem_wire *w, gem_params *p, gem_dialogue *d,
                         const char *id_prefix, gem_fault *f);

/* A job from a request that was rewritten as a chat request (NULL: f says why). Takes chat and state,
 * the wire's own, in any case; state NULL: there was no memory for it. */
gem_job *gem_params_chat(gem_server *s, const gem_wire *w, json_t *chat, void *state,
                         const char *id_prefix, gem_fault *f);

/* ---- pieces that wires write ---- */
/* {"prompt_tokens":..,...}: usage as chat and completions have it. */
void gem_put_usage(const gem_job *j, gem_bytes *out);
void gem_put_timings(const gem_job *j, gem_bytes *out);
/* ,"prompt_progress":{..}: done of the prompt's tokens are there. */
void gem_put_progress(const gem_answer *a, size_t done, gem_bytes *out);
/* ,"gem_receipt":{..} when it was asked for: what made these answers, to make them again. */
void gem_put_receipt(const gem_job *j, gem_bytes *out);
/* Token counts over the answers of a job. */
void gem_job_counts(const gem_job *j, size_t *prompt, size_t *cached, size_t *generated);
const char *gem_finish_name(gem_finish f);

#endif
