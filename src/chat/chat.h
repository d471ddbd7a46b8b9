/* chat.h - messages -> tokens, per family. Rendering is native: templates in files are never run.
 * Message text is tokenized with control tokens off, so it can never forge a turn. */
#ifndef GEM_CHAT_H
#define GEM_CHAT_H

#include "tokenizer/tokenizer.h"

typedef enum gem_chat_family { GEM_CHAT_NONE, GEM_CHAT_GEMMA3, GEM_CHAT_CHATML, GEM_CHAT_GEMMA4 } gem_chat_family;
/* By what the vocabulary holds (<start_of_turn>; <|im_start|>; <|turn>). */
gem_chat_family gem_chat_detect(const gem_tokenizer *t);
/* Whole conversation, BOS included where the family has one, ending with the assistant's opener (Gemma 4:
 * and an empty thought, since thinking is off). "developer" is another name of "system". System texts
 * stand where the family puts them: Gemma 3 opens the first user turn with them, Gemma 4 has one system
 * turn in front, ChatML keeps them in place and adds the template's own when a conversation begins
 * without.
 * errors GEM_E_ARG (no user message, unknown role, ...), GEM_E_UNSUPPORTED (family without a format) */
gem_status gem_chat_render(const gem_tokenizer *t, gem_chat_family f, const gem_message *messages,
                           size_t n_messages, int32_t **ids, size_t *n, gem_error *err);

#endif
