/* render_gemma3.c - Gemma 3: turns of user and model. There is no system turn: system texts,
 * wherever they stand, open the first user turn. No tools, no thinking. */
#include "chat/chat.h"
#include "chat/text.h"

static void put_system_texts(gem_chat_job *j)
{
    for (size_t i = 0; i < j->c->n_messages; i++) {
        if (j->c->message[i].role != GEM_ROLE_SYSTEM) continue;
        gem_put_str(j->p, gem_message_text(&j->c->message[i], &j->scratch));
        gem_put_words(j->p, "\n\n");
    }
}

/* Parts of a list are trimmed one by one. */
static void put_trimmed_parts(gem_prompt *p, const gem_chat_message *m)
{
    for (size_t i = 0; i < m->n_parts; i++)
        gem_put_str(p, gem_trim(m->part[i]));
}

gem_status gem_render_gemma3(gem_chat_job *j, gem_error *err)
{
    const gem_conversation *c = j->c;
    bool first_user = true;
    (void)err;
    gem_put_marker(j->p, "<bos>");
    for (size_t i = 0; i < c->n_messages; i++) {
        const gem_chat_message *m = &c->message[i];
        bool user = m->role == GEM_ROLE_USER, last = i + 1 == c->n_messages;
        if (m->role == GEM_ROLE_SYSTEM) continue;
        gem_put_marker(j->p, "<start_of_turn>");
        gem_put_words(j->p, user ? "user\n" : "model\n");
        if (user && first_user) put_system_texts(j);
        first_user &= !user;
        if (last && j->s->resume) {
            gem_put_str(j->p, gem_message_text(m, &j->scratch));
            return GEM_OK;
        }
        put_trimmed_parts(j->p, m);
        gem_put_marker(j->p, "<end_of_turn>");
        gem_put_words(j->p, "\n");
    }
    if (!j->s->generation) return GEM_OK;
    gem_put_marker(j->p, "<start_of_turn>");
    gem_put_words(j->p, "model\n");
    return GEM_OK;
}
