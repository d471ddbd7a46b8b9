/* format.c - which chat format a model speaks, and the way from a conversation to a prompt. */
#include "chat/chat.h"
#include "chat/text.h"

#define TEMPLATE_BYTES 65536u /* of a template that are looked at; the longest known has 19 KB */
#define CHATML_SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

static bool has(const gem_tokenizer *t, const char *text)
{
    return gem_tokenizer_find(t, text, strlen(text)) >= 0;
}

static gem_chat_family family_of(const gem_tokenizer *t, gem_str source)
{
    if (has(t, "<|turn>") && has(t, "<turn|>") && has(t, "<|channel>") && has(t, "<channel|>") &&
        has(t, "<bos>"))
        return GEM_CHAT_GEMMA4;
    if (has(t, "<start_of_turn>") && has(t, "<end_of_turn>") && has(t, "<bos>"))
        return GEM_CHAT_GEMMA3;
    if (!has(t, "<|im_start|>") || !has(t, "<|im_end|>")) return GEM_CHAT_NONE;
    bool thinks = has(t, "<think>") && has(t, "</think>") && has(t, "<tool_call>");
    if (thinks && (!source.data || gem_find(source, 0, "<function=") != SIZE_MAX))
        return GEM_CHAT_QWEN35;
    return GEM_CHAT_CHATML;
}

/* Of a stretch of template source: does it stand for itself, or is there an expression in it? */
static bool is_literal(gem_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (strchr("'\"{}\\", s.data[i])) return false;
    return s.len > 0;
}

/* The system text that a template puts when a conversation brings none: the first literal between
 * the opener of a system turn and its end. */
static gem_str default_system(gem_str source)
{
    static const char opener[] = "<|im_start|>system";
    const gem_str none = {"", 0}, usual = {CHATML_SYSTEM, sizeof(CHATML_SYSTEM) - 1};
    if (!source.data) return usual;
    for (size_t at = 0; (at = gem_find(source, at, opener)) != SIZE_MAX;) {
        at += sizeof(opener) - 1;
        gem_str rest = {source.data + at, source.len - at};
        size_t skip = gem_starts_with(rest, "\\n") ? 2 : gem_starts_with(rest, "\n") ? 1 : 0;
        if (!skip) continue;
        at += skip;
        size_t stop = gem_find(source, at, "<|im_end|>");
        if (stop == SIZE_MAX) break;
        gem_str s = {source.data + at, stop - at};
        if (is_literal(s)) return s;
    }
    return none;
}

static void read_qwen35(gem_chat_format *f, gem_str source)
{
    bool none = !source.data;
    f->thinks = f->tools = true;
    f->efforts = none || gem_find(source, 0, "reasoning_effort") != SIZE_MAX;
    f->preserve_option = none || gem_find(source, 0, "preserve_thinking") != SIZE_MAX;
    f->preserve_unasked = none || gem_find(source, 0, "preserve_thinking is undefined") != SIZE_MAX;
    f->json_scalars =
        none || gem_find(source, 0, "if args_value is string else args_value | tojson") != SIZE_MAX;
    f->thoughts_in_text = !none && gem_find(source, 0, "'</think>' in content") != SIZE_MAX;
    f->empty_system_turn = !f->efforts && gem_find(source, 0, "merged_system") == SIZE_MAX;
    f->thinks_unasked =
        f->efforts ||
        gem_find(source, 0, "enable_thinking is defined and enable_thinking is true") == SIZE_MAX;
    f->name = f->efforts ? "qwen3.8" : f->preserve_option ? "qwen3.6" : "qwen3.5";
}

void gem_chat_format_read(gem_chat_format *f, gem_chat_family family, gem_str source)
{
    memset(f, 0, sizeof(*f));
    f->family = family;
    f->name = "none";
    source.len = GEM_MIN(source.len, TEMPLATE_BYTES);
    switch (family) {
    case GEM_CHAT_GEMMA3:
        f->name = "gemma3";
        break;
    case GEM_CHAT_GEMMA4:
        f->name = "gemma4";
        f->thinks = f->tools = true;
        f->empty_thought =
            !source.data || gem_find(source, 0, "<|channel>thought\\n<channel|>") != SIZE_MAX;
        break;
    case GEM_CHAT_CHATML:
        f->name = "chatml";
        f->system = default_system(source);
        f->tools = !source.data || gem_find(source, 0, "<tool_call>") != SIZE_MAX;
        break;
    case GEM_CHAT_QWEN35:
        read_qwen35(f, source);
        break;
    case GEM_CHAT_NONE:
        break;
    }
}

void gem_chat_format_of(gem_chat_format *f, const gem_tokenizer *t)
{
    gem_str source = gem_tokenizer_chat_template(t), head = source;
    head.len = GEM_MIN(head.len, TEMPLATE_BYTES);
    gem_chat_format_read(f, family_of(t, head), source);
}

/* ---- options ---- */

static bool is_one_of(const char *text, const char *a, const char *b)
{
    return !strcmp(text, a) || !strcmp(text, b);
}

/* An effort is a level for some families and a switch for others. */
static gem_status read_effort(gem_chat_settings *s, const gem_chat_options *opt, gem_error *err)
{
    const char *e = opt->reasoning_effort;
    bool off = false;
    s->effort = "xhigh";
    if (!e) return GEM_OK;
    if (is_one_of(e, "none", "minimal"))
        off = true;
    else if (is_one_of(e, "low", "medium"))
        s->effort = e;
    else if (!is_one_of(e, "high", "xhigh") && strcmp(e, "max") != 0)
        return gem_fail(err, GEM_E_ARG,
                        "reasoning_effort: \"%.32s\" is not one of none, minimal, low, medium, "
                        "high, xhigh, max",
                        e);
    if (opt->thinking == GEM_THINKING_DEFAULT) s->thinking = !off;
    return GEM_OK;
}

gem_status gem_chat_settings_of(gem_chat_settings *s, const gem_chat_format *f,
                                const gem_chat_options *opt, gem_error *err)
{
    static const gem_chat_options plain;
    if (!opt) opt = &plain;
    memset(s, 0, sizeof(*s));
    s->thinking = opt->thinking == GEM_THINKING_DEFAULT ? f->thinks_unasked
                                                        : opt->thinking == GEM_THINKING_ON;
    gem_status st = read_effort(s, opt, err);
    s->thinking &= f->thinks;
    s->preserve = f->preserve_unasked;
    if (opt->preserve_thinking) s->preserve = opt->preserve_thinking > 0;
    s->generation = !opt->no_generation_prompt && !opt->continue_final;
    s->resume = opt->continue_final;
    if (st == GEM_OK && opt->continue_final && opt->no_generation_prompt)
        st = gem_fail(err, GEM_E_ARG, "continue_final and no_generation_prompt exclude each other");
    return st;
}

/* ---- rendering ---- */

static gem_status check_resume(const gem_conversation *c, gem_error *err)
{
    const gem_chat_message *last = &c->message[c->n_messages - 1];
    if (last->role != GEM_ROLE_ASSISTANT)
        return gem_fail(err, GEM_E_ARG, "the final message is not the assistant's to continue");
    if (last->n_calls)
        return gem_fail(err, GEM_E_ARG, "a message with tool calls cannot be continued");
    if (c->n_messages > 1 && c->message[c->n_messages - 2].role == GEM_ROLE_ASSISTANT)
        return gem_fail(err, GEM_E_ARG,
                        "a message that follows another of the assistant cannot be continued");
    return GEM_OK;
}

static bool uses_tools(const gem_conversation *c)
{
    if (c->tools) return true;
    for (size_t i = 0; i < c->n_messages; i++)
        if (c->message[i].n_calls || c->message[i].role == GEM_ROLE_TOOL) return true;
    return false;
}

gem_status gem_chat_render(gem_prompt *p, const gem_chat_format *f, const gem_conversation *c,
                           const gem_chat_options *opt, gem_error *err)
{
    gem_chat_settings s;
    gem_chat_job j = {.p = p, .f = f, .c = c, .s = &s};
    memset(p, 0, sizeof(*p));
    gem_bytes_put(&p->text, "", 0);
    if (f->family == GEM_CHAT_NONE)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "chat: the vocabulary has neither Gemma turns nor ChatML; use the model without chat");
    gem_status st = gem_chat_settings_of(&s, f, opt, err);
    if (st == GEM_OK && !f->tools && uses_tools(c))
        st = gem_fail(err, GEM_E_UNSUPPORTED, "chat: the %s format has no tools", f->name);
    if (st == GEM_OK && s.resume) st = check_resume(c, err);
    if (st != GEM_OK) return st;
    switch (f->family) {
    case GEM_CHAT_GEMMA3:
        st = gem_render_gemma3(&j, err);
        break;
    case GEM_CHAT_GEMMA4:
        st = gem_render_gemma4(&j, err);
        break;
    case GEM_CHAT_CHATML:
        st = gem_render_chatml(&j, err);
        break;
    default:
        st = gem_render_qwen35(&j, err);
    }
    p->failed |= j.scratch.failed;
    gem_bytes_free(&j.scratch);
    return st == GEM_OK ? gem_prompt_close(p, err) : st;
}
