/* gem.h - the public C API of libgem: open a model, turn text into tokens, run it, draw tokens.
 *
 * Conventions. Whatever can fail returns gem_status (0 is GEM_OK) and takes a gem_error last; NULL
 * if the caller wants no text. Objects are opaque; `free` and `close` take NULL. A model's weights
 * are shared and read-only; a session belongs to one thread at a time, and the sessions of one
 * model share its workspace: run calls on them from one thread, or guard the model with a lock.
 * Libraries never print, exit or abort on input: text goes to the log callback of the options. */
#ifndef GEM_GEM_H
#define GEM_GEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GEM_API_VERSION_MAJOR 0
#define GEM_API_VERSION_MINOR 1

#if defined(__GNUC__)
#define GEM_API __attribute__((visibility("default")))
#define GEM_MUST_USE __attribute__((warn_unused_result))
#define GEM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define GEM_API
#define GEM_MUST_USE
#define GEM_PRINTF(fmt, args)
#endif

typedef enum gem_status {
    GEM_OK = 0,
    GEM_E_ARG,    /* the caller passed something that can never work */
    GEM_E_NOMEM,  /* memory could not be had; the text says how many bytes for what */
    GEM_E_IO,     /* a file could not be opened, read or mapped */
    GEM_E_FORMAT, /* a file breaks its format; the text names file, field and what was expected */
    GEM_E_UNSUPPORTED, /* well formed, but of a kind gem does not run; the text names what is
                          supported */
    GEM_E_RANGE,       /* a position, id or length outside what the object has */
    GEM_E_DEVICE,      /* the backend failed; the session may now only be freed */
    GEM_E_CANCELLED    /* a callback asked to stop */
} gem_status;

typedef struct gem_error {
    gem_status status;
    char text[512]; /* one sentence, UTF-8, NUL-terminated */
} gem_error;

/* "ok", "argument", ...: a stable word for a status. */
GEM_API const char *gem_status_name(gem_status st);
/* "0.1.0": the version of the library that runs, not of the header. */
GEM_API const char *gem_version(void);

typedef enum gem_log_level {
    GEM_LOG_ERROR,
    GEM_LOG_WARN,
    GEM_LOG_INFO,
    GEM_LOG_DEBUG
} gem_log_level;
typedef void (*gem_log_fn)(void *user, gem_log_level level, const char *text);

/* ---- model ------------------------------------------------------------------------------------
 */

typedef struct gem_model gem_model;

typedef enum gem_kv_type {
    GEM_KV_F32 = 0,   /* keys and values of every layer in f32 (default) */
    GEM_KV_F16,       /* every layer in f16 */
    GEM_KV_F16_FULL,  /* only full-attention layers in f16; window-bounded layers stay f32 */
    GEM_KV_F32_VALUES /* f32; layers whose keys follow from their values keep the values alone: the
                         same logits, half the memory of such layers, more arithmetic (gemma4) */
} gem_kv_type;

/* Zero-initialise, then set what differs: every zero means the default given. */
typedef struct gem_model_options {
    const char *backend; /* "cpu" (default); "cuda" in builds that have it */
    const char *isa;     /* "ref", "avx2", "avx512", "neon"; NULL: the best this CPU has */
    int n_threads;       /* 0: the cores this process may use */
    int32_t n_ctx;       /* positions a session may hold; 0: min(the model's context, 4096) */
    int n_sessions;      /* sessions that may be open at once; 0: 4 */
    int32_t n_batch;     /* rows of one forward pass; 0: 512 */
    gem_kv_type kv_type;
    /* Hybrid models: memory for states of past positions beyond the three a session always has, so
     * that going back far runs few tokens again; 0: 1 GiB; -1: none. Never more than one state in
     * 64 positions of n_ctx and n_sessions. */
    int64_t state_bytes;
    /* Most memory that opening may plan for, in bytes: weights, keys and values, recurrent states and
     * workspace of the CPU backend, counted before any of it is taken. More gives GEM_E_NOMEM with
     * the numbers. 0: no limit. Pages of the file that stay mapped do not count. */
    uint64_t max_bytes;
    bool exact;      /* f32 activations against exactly dequantised weights (slow, for oracles) */
    bool no_repack;  /* keep weights as mapped in the file instead of repacking them */
    bool drafter;    /* keep the drafter that the file brings, for speculation; GEM_E_UNSUPPORTED
                        when it brings none */
    const char *drafter_path; /* a drafter in a file of its own, made for this model (Gemma 4's
                                 assistant); NULL: none. GEM_E_UNSUPPORTED or GEM_E_FORMAT when it
                                 is for another model. Read at open; may change afterwards */
    bool vocab_only; /* tokenizer and metadata only: no weights, no sessions */
    gem_log_fn log;
    void *log_user;
    void (*progress)(void *user, double done); /* loading, 0..1; may be NULL */
    void *progress_user;
} gem_model_options;

/* Open a GGUF file (v2 or v3, also the first part of a split one).
 * errors GEM_E_IO, GEM_E_FORMAT, GEM_E_UNSUPPORTED, GEM_E_NOMEM. opt may be NULL. */
GEM_API GEM_MUST_USE gem_status gem_model_open(gem_model **out, const char *path,
                                               const gem_model_options *opt, gem_error *err);
/* Its sessions, checkpoints and detokenizers must have been freed. */
GEM_API void gem_model_close(gem_model *m);

typedef struct gem_model_info {
    const char *family; /* "gemma3", "qwen2", ...; borrowed from the model, as all strings here */
    const char *name;   /* general.name or "" */
    const char *backend;
    const char *isa;
    int32_t n_vocab, n_layers, d_model, n_ctx, n_ctx_train;
    int32_t bos, eos; /* -1 when the file has none */
    int n_threads;
    uint64_t file_bytes;    /* size of the file(s) */
    uint64_t weights_bytes; /* resident weights as laid out in memory */
    uint64_t kv_bytes;      /* KV memory reserved for all sessions */
    uint64_t workspace_bytes;
    uint64_t decode_bytes;    /* weight bytes that one decoded token reads */
    uint64_t recurrent_bytes; /* hybrid models: memory reserved for recurrent state; else 0 */
} gem_model_info;
GEM_API void gem_model_get_info(const gem_model *m, gem_model_info *out);
/* One JSON object: model, manifest digest, backend, ISA, routes, tile sizes, KV type and exact
 * bytes, threads, build. Caller frees with free(). NULL when out of memory. */
GEM_API char *gem_model_config_json(const gem_model *m);

/* ---- text and tokens --------------------------------------------------------------------------
 */

typedef enum gem_tokenize_flags {
    GEM_TOK_BOS = 1,    /* put the model's BOS in front if its file asks for one */
    GEM_TOK_SPECIAL = 2 /* markers such as <|im_start|> in the text become their control tokens */
} gem_tokenize_flags;

/* text     bytes, any content (invalid UTF-8 becomes byte tokens); borrowed
 * tokens   out, malloc'd int32[*n_tokens]; the caller frees it */
GEM_API GEM_MUST_USE gem_status gem_tokenize(const gem_model *m, const char *text, size_t text_len,
                                             int flags, int32_t **tokens, size_t *n_tokens,
                                             gem_error *err);
/* Bytes of one token; borrowed from the model, *len bytes, may be no valid UTF-8 by itself.
 * Control tokens give "" unless `special`. */
GEM_API const char *gem_token_bytes(const gem_model *m, int32_t token, bool special, size_t *len);
/* True for tokens that end a generation (EOS, end of turn). */
GEM_API bool gem_token_is_end(const gem_model *m, int32_t token);

typedef struct gem_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8, NUL-terminated */
} gem_message;
/* Render a conversation in the family's own format, ending with the opener of the assistant's turn.
 * Text of messages never yields control tokens. The caller frees *tokens. */
GEM_API GEM_MUST_USE gem_status gem_chat_tokens(const gem_model *m, const gem_message *messages,
                                                size_t n_messages, int32_t **tokens,
                                                size_t *n_tokens, gem_error *err);

/* Streaming detokeniser: bytes out are always whole UTF-8 characters. */
typedef struct gem_detokenizer gem_detokenizer;
GEM_API GEM_MUST_USE gem_status gem_detokenizer_new(gem_detokenizer **out, const gem_model *m,
                                                    bool special, gem_error *err);
GEM_API void gem_detokenizer_free(gem_detokenizer *d);
/* Text that `token` completes; borrowed until the next call; may be empty. */
GEM_API const char *gem_detokenizer_push(gem_detokenizer *d, int32_t token, size_t *len);
/* What is left at the end: an incomplete tail as U+FFFD. */
GEM_API const char *gem_detokenizer_finish(gem_detokenizer *d, size_t *len);

/* ---- conversations ----------------------------------------------------------------------------
 */

/* Messages and tools, read from the JSON of an OpenAI chat request and checked; read-only.
 * messages  JSON text of the array: role system, developer, user, assistant, tool or function;
 * content a string, null or a list of text parts; an assistant's reasoning_content (or reasoning)
 *           and tool_calls, their arguments as JSON text or as an object; a tool's tool_call_id,
 * name tools     JSON text of the array, each {"type": "function", "function": {...}}; NULL or
 * null: none Other members are ignored, null is absent. Texts are copied. errors    GEM_E_ARG
 * naming the place, as messages[2].content; GEM_E_UNSUPPORTED for parts that are no text;
 * GEM_E_NOMEM */
typedef struct gem_conversation gem_conversation;
GEM_API GEM_MUST_USE gem_status gem_conversation_read(gem_conversation **out, const char *messages,
                                                      size_t messages_len, const char *tools,
                                                      size_t tools_len, gem_error *err);
GEM_API void gem_conversation_free(gem_conversation *c);

typedef enum gem_thinking {
    GEM_THINKING_DEFAULT = 0, /* the family's own: Gemma 4 off, Qwen3.5 and later on */
    GEM_THINKING_OFF,
    GEM_THINKING_ON
} gem_thinking;

/* Zero-initialise, then set what differs. */
typedef struct gem_chat_options {
    gem_thinking thinking;
    const char *reasoning_effort; /* NULL or none, minimal, low, medium, high, xhigh, max. Where a
                                     family has no levels: none and minimal switch thinking off, the
                                     others on, unless `thinking` says */
    int preserve_thinking;     /* thoughts of older turns: > 0 kept, < 0 dropped, 0 the family's */
    bool no_generation_prompt; /* end after the last message, without the answer's opener */
    bool continue_final;       /* the last message is the assistant's: the model goes on with it */
} gem_chat_options;

typedef struct gem_chat_info {
    const char *format;  /* "gemma3", "gemma4", "chatml", "qwen3.5", "qwen3.6", "qwen3.8"; "none" */
    bool thinks;         /* it can think, and thinking can be switched */
    bool thinks_unasked; /* GEM_THINKING_DEFAULT is on */
    bool tools;          /* tools can be declared */
} gem_chat_info;
/* Recognised by the vocabulary and by features of the file's template, which is never run. */
GEM_API void gem_chat_get_info(const gem_model *m, gem_chat_info *out);

/* A conversation in the model's own format: its text, and its tokens. Text of messages and tools
 * never yields control tokens, whatever it spells. */
typedef struct gem_prompt gem_prompt;
typedef struct gem_prompt_piece {
    const char *text; /* no NUL behind it */
    size_t len;
    bool control; /* written by the format: one special token. Else plain text */
} gem_prompt_piece;
/* errors GEM_E_ARG (unknown effort, nothing to continue), GEM_E_UNSUPPORTED (the model has no chat
 * format, or its format no tools), GEM_E_NOMEM */
GEM_API GEM_MUST_USE gem_status gem_prompt_render(gem_prompt **out, const gem_model *m,
                                                  const gem_conversation *c,
                                                  const gem_chat_options *opt, gem_error *err);
GEM_API void gem_prompt_free(gem_prompt *p);
/* Borrowed from the prompt; the text is followed by a NUL. */
GEM_API const char *gem_prompt_text(const gem_prompt *p, size_t *len);
GEM_API const gem_prompt_piece *gem_prompt_pieces(const gem_prompt *p, size_t *n);
GEM_API const int32_t *gem_prompt_tokens(const gem_prompt *p, size_t *n);

/* ---- answers ----------------------------------------------------------------------------------
 */

typedef enum gem_chat_event_type {
    GEM_EVENT_CONTENT,        /* text */
    GEM_EVENT_REASONING,      /* text */
    GEM_EVENT_CALL_BEGIN,     /* call, id, name, declared */
    GEM_EVENT_CALL_ARGUMENTS, /* call, text: the next part of one JSON object */
    GEM_EVENT_CALL_END,       /* call: its arguments are complete and well formed */
    GEM_EVENT_CALL_BROKEN,    /* reason; text: what the model wrote; call: as begun, or -1. Whatever
                                 was passed on of this call must not be executed */
    GEM_EVENT_FINISH          /* reason: "stop", "tool_calls" or "length"; the last event */
} gem_chat_event_type;

typedef struct gem_chat_event {
    gem_chat_event_type type;
    int call;         /* 0, 1, ... in the order of CALL_BEGIN */
    const char *text; /* whole UTF-8 characters, no NUL inside nor behind; never empty */
    size_t len;
    const char *id, *name;
    bool declared; /* the conversation has a tool of this name */
    const char *reason;
} gem_chat_event;
/* Pointers are borrowed for the call. */
typedef void (*gem_chat_event_fn)(void *user, const gem_chat_event *e);

/* Zero-initialise, then set what differs. */
typedef struct gem_chat_parser_options {
    gem_chat_event_fn fn; /* must be set */
    void *user;
    const char *id_seed;   /* ids of calls are made from it; NULL: random. At most 63 bytes count */
    size_t max_call_bytes; /* a longer call is broken; 0: 1 MiB */
    bool whole_calls;      /* BEGIN only once the call is complete, its arguments in one event */
} gem_chat_parser_options;

/* Reads one answer, token by token. Control tokens are recognised by their ids, so text that merely
 * spells a marker stays text. Markers, labels and half characters never reach content.
 * c  the conversation that was rendered, for its tools; NULL: none. Borrowed, as m
 * p  its prompt, for where the answer begins (inside a thought or not); NULL: at content. Not kept
 */
typedef struct gem_chat_parser gem_chat_parser;
GEM_API GEM_MUST_USE gem_status gem_chat_parser_new(gem_chat_parser **out, const gem_model *m,
                                                    const gem_conversation *c, const gem_prompt *p,
                                                    const gem_chat_parser_options *opt,
                                                    gem_error *err);
GEM_API void gem_chat_parser_free(gem_chat_parser *p);
/* GEM_E_NOMEM: events are incomplete from here on. */
GEM_API GEM_MUST_USE gem_status gem_chat_parser_push(gem_chat_parser *p, int32_t token,
                                                     gem_error *err);
/* The model has ended its answer: an end token came, or a turn that is not its own began. */
GEM_API bool gem_chat_parser_ended(const gem_chat_parser *p);
/* Lets go of what is held back and sends FINISH. cut: a limit ended the answer, not the model. */
GEM_API GEM_MUST_USE gem_status gem_chat_parser_finish(gem_chat_parser *p, bool cut,
                                                       gem_error *err);
/* While an answer so far can only become a call written as bare JSON (Qwen2.5): the declared tool
 * it names, borrowed from the conversation; else NULL. For constraining the rest to its schema. */
GEM_API const char *gem_chat_parser_pending_tool(const gem_chat_parser *p);
/* The caller holds the rest of that pending call to its schema: it is a call from here on, and its
 * events are sent as it arrives. Without a pending call nothing happens. */
GEM_API void gem_chat_parser_commit_call(gem_chat_parser *p);

/* ---- sessions ---------------------------------------------------------------------------------
 */

typedef struct gem_session gem_session;       /* one sequence: its positions and its KV pages */
typedef struct gem_checkpoint gem_checkpoint; /* a point a session can return to */
typedef struct gem_sampler gem_sampler;       /* see below */

GEM_API GEM_MUST_USE gem_status gem_session_new(gem_session **out, gem_model *m, gem_error *err);
GEM_API void gem_session_free(gem_session *s);
/* Positions filled so far: the next token gets this position. */
GEM_API int32_t gem_session_position(const gem_session *s);

/* Called after each completed batch of a prefill; return false to stop before the next one. With
 * n_done 0 while a hybrid model runs tokens again that an earlier trim, rollback or fork left. */
typedef bool (*gem_prefill_fn)(void *user, size_t n_done, size_t n_total);

/* Prefill: run prompt tokens and append their keys and values to the session's KV cache.
 * tokens  int32[n_tokens], ids in [0, n_vocab); borrowed for the call; n_tokens >= 1
 * logits  out, f32[n_vocab] of the last token; borrowed until the next call on any session. NULL:
 *         they may stay where they were made; gem_session_draw draws from them there
 * errors  GEM_E_RANGE   the context has fewer than n_tokens positions left; nothing was appended
 *         GEM_E_CANCELLED  `progress` returned false; batches already done stay appended
 *         GEM_E_NOMEM   checkpoints hold the KV pages it needs; batches already done stay appended
 *         GEM_E_DEVICE  the backend failed; `s` may now only be freed */
GEM_API GEM_MUST_USE gem_status gem_session_prefill(gem_session *s, const int32_t *tokens,
                                                    size_t n_tokens, gem_prefill_fn progress,
                                                    void *user, const float **logits,
                                                    gem_error *err);
/* One token: a prefill of length one without a callback. */
GEM_API GEM_MUST_USE gem_status gem_session_decode(gem_session *s, int32_t token,
                                                   const float **logits, gem_error *err);

/* Rows of several sessions in one forward pass. Rows of one session stand in order and take its
 * next positions. logits_out[i] is set to f32[n_vocab] for rows with GEM_ROW_LOGITS, else NULL;
 * borrowed until the next call; logits_out may be NULL. n_rows is at most the model's n_batch; at
 * most 64 of them want logits or a draw. errors  GEM_E_ARG, GEM_E_RANGE and GEM_E_NOMEM (no free KV
 * pages) before anything was appended; GEM_E_DEVICE  the backend failed; the sessions of the batch
 * may now only be freed */
typedef enum gem_row_want {
    GEM_ROW_NONE = 0,
    GEM_ROW_LOGITS, /* all of them, now */
    GEM_ROW_DRAW    /* gem_session_draw will draw from the row */
} gem_row_want;
typedef struct gem_row {
    gem_session *session;
    int32_t token;
    gem_row_want want;
} gem_row;
GEM_API GEM_MUST_USE gem_status gem_batch_run(gem_model *m, const gem_row *rows, size_t n_rows,
                                              const float **logits_out, gem_error *err);

/* Draw a token from the logits of the session's last row that wanted logits or a draw, in the last
 * call that ran rows: gem_sampler_draw on them, without bringing more of them to the host than this
 * sampler has to see (gem_sampler_needs_all).
 * errors  GEM_E_RANGE as gem_sampler_draw, and when other rows have run since; GEM_E_DEVICE */
GEM_API GEM_MUST_USE gem_status gem_session_draw(const gem_session *s, gem_sampler *sampler,
                                                 int32_t *token, gem_error *err);
/* Those logits, all of them: f32[n_vocab], borrowed until the next call on any session. Errors as
 * gem_session_draw. */
GEM_API GEM_MUST_USE gem_status gem_session_logits(const gem_session *s, const float **logits,
                                                   gem_error *err);

/* The ways back. Hybrid models (recurrent layers beside attention) hold the state of every 64th
 * position that their memory allows (state_bytes) and cannot cut it back in between. Their sessions
 * go anywhere all the same, at once: the tokens from the nearest held state up to the position are
 * run again inside the session's next prefill, decode or batch, with equal bytes (on CUDA with those
 * of the route that so many rows take: docs/cuda.md), which then takes that much longer. That is
 * nothing within 13 positions of the end, at most 63 tokens where the state of the position's page
 * is held, as it is for every page while memory lasts, for the last two pages of a session, and for
 * a checkpoint's until all others are given up; at worst the whole past.
 * A fork starts from the last held state.
 *
 * A checkpoint holds the session's pages (shared, copied only when written); rolling back is exact.
 * Checkpoints outlive further decoding, even their session, and may be used many times by any
 * session of the model. Each keeps the pages it shares from being reused: there is room for one a
 * session that lags behind; more take pages from what the sessions leave (else GEM_E_NOMEM when
 * running). */
GEM_API GEM_MUST_USE gem_status gem_session_checkpoint(const gem_session *s, gem_checkpoint **out,
                                                       gem_error *err);
GEM_API GEM_MUST_USE gem_status gem_session_rollback(gem_session *s, const gem_checkpoint *c,
                                                     gem_error *err);
GEM_API void gem_checkpoint_free(gem_checkpoint *c);
/* Cut back to `position` without a checkpoint. GEM_E_RANGE when a window-bounded layer has already
 * dropped pages that position needs; the session is unchanged then. */
GEM_API GEM_MUST_USE gem_status gem_session_trim(gem_session *s, int32_t position, gem_error *err);
/* A new session that continues from the same point, sharing pages. */
GEM_API GEM_MUST_USE gem_status gem_session_fork(gem_session **out, const gem_session *s,
                                                 gem_error *err);

/* ---- sampler ----------------------------------------------------------------------------------
 */

typedef struct gem_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY forbids the token */
} gem_logit_bias;

/* In this order: bias, penalties; then on the sorted distribution at temperature 1 top-k, top-p,
 * min-p; then temperature and one draw. */
typedef struct gem_sampler_options {
    float temperature;        /* below 1e-5: greedy, lowest id on ties */
    int32_t top_k;            /* 0: off */
    float top_p;              /* (0, 1]; 1: off; 0 is taken as "only the best" */
    float min_p;              /* [0, 1); 0: off */
    float repetition_penalty; /* 1: off; applied once per distinct token of the last n tokens */
    float presence_penalty;   /* 0: off; over tokens accepted since the last reset */
    float frequency_penalty;  /* 0: off; likewise */
    int32_t penalty_last_n;   /* tokens the repetition penalty looks back; 0: 64 */
    uint64_t seed;
    const gem_logit_bias *logit_bias; /* borrowed for the call to gem_sampler_new */
    size_t n_logit_bias;
} gem_sampler_options;
/* temperature 0, everything off. */
GEM_API void gem_sampler_defaults(gem_sampler_options *opt);

/* GEM_E_ARG for values that are no numbers or outside their range; the text names the field. */
GEM_API GEM_MUST_USE gem_status gem_sampler_new(gem_sampler **out, int32_t n_vocab,
                                                const gem_sampler_options *opt, gem_error *err);
GEM_API void gem_sampler_free(gem_sampler *s);
/* Draw from f32[n_vocab]; the same seed and logits give the same tokens on every machine.
 * Does not remember the token: see accept. GEM_E_RANGE when every logit is -inf, or one is NaN or
 * +inf. Allocates nothing. */
GEM_API GEM_MUST_USE gem_status gem_sampler_draw(gem_sampler *s, const float *logits,
                                                 int32_t *token, gem_error *err);
/* Its draws depend on all logits of a row: it neither is greedy nor keeps at most 64 by top_k, or
 * it has biases or penalties. A row that it draws from had better ask for its logits then; else
 * gem_session_draw has to fetch them. Never changes. */
GEM_API bool gem_sampler_needs_all(const gem_sampler *s);
/* Tell the sampler that `token` was taken (prompt tokens too, if penalties should see them). */
GEM_API void gem_sampler_accept(gem_sampler *s, int32_t token);

#ifdef __cplusplus
}
#endif
#endif
