/* write.c - `gem-analyze document` and `messages`: the files that scripts have to write, whole or
 * not at all. */
#include "cmd/analyze/analyze.h"
#include "evidence/server_gate.h"

#include <stdlib.h>

static const cli_option no_options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

const cli_command analyze_document_command = {
    .program = "gem-analyze document",
    .args = "OUT.json NAME=TEXT|NAME:=JSON|NAME:@FILE...",
    .summary = "write a JSON object of these members, in this order",
    .text =
        "A dot in a name goes into an object: host.load:=0.5. NAME=TEXT is a string whatever it "
        "looks like;\n"
        "FILE holds JSON.\n",
    .min_args = 2,
    .max_args = 200,
    .option = no_options};
const cli_command analyze_messages_command = {
    .program = "gem-analyze messages",
    .args = "PROMPT.txt [STREAM.sse TEXT] OUT.json",
    .summary = "messages of a first turn; or of a second: prompt, streamed answer, next words",
    .min_args = 2,
    .max_args = 4,
    .option = no_options};

/* The object that `name` goes into; *name becomes its last part. NULL: a part is no object. */
static gem_json *place(gem_json_doc *d, gem_json *root, char **name)
{
    char *dot;
    while (root && (dot = strchr(*name, '.')) != NULL) {
        *dot = 0;
        gem_json *next = (gem_json *)gem_json_get(root, *name);
        if (!next) next = gem_json_put(d, root, *name, GEM_JSON_OBJECT);
        root = next && next->type == GEM_JSON_OBJECT ? next : NULL;
        *name = dot + 1;
    }
    return root;
}

static const char *put_json(gem_json_doc *d, gem_json *o, const char *name, const char *text,
                            size_t len)
{
    gem_json_error e;
    gem_json_doc *v = gem_json_read(text, len, 32, &e);
    bool ok = v && e.fault == GEM_JSON_OK && gem_json_root(v);
    if (ok) gem_json_put_copy(d, o, name, gem_json_root(v));
    gem_json_free(v);
    return ok ? NULL : "no JSON behind it";
}

static const char *put_file(gem_json_doc *d, gem_json *o, const char *name, const char *path)
{
    char *text = NULL;
    size_t len;
    const char *why = "a file that cannot be read";
    if (gem_file_read(path, EV_MAX_DOCUMENT, &text, &len, NULL) == GEM_OK)
        why = put_json(d, o, name, text, len);
    free(text);
    return why;
}

/* NULL, or what is wrong with the member. */
static const char *add(gem_json_doc *d, gem_json *root, char *member)
{
    size_t n = strcspn(member, "=:");
    char kind = member[n] == ':' ? member[n + 1] : member[n], *name = member,
         *value = member + n + 1 + (member[n] == ':');
    if (!n || !kind || (member[n] == ':' && kind != '=' && kind != '@')) return "no NAME=TEXT";
    bool text = member[n] == '=';
    member[n] = 0;
    gem_json *o = place(d, root, &name);
    if (!o || !*name || gem_json_get(o, name)) return "a name that is taken or empty";
    if (text) {
        gem_json_put_string(d, o, name, value);
        return NULL;
    }
    return kind == '@' ? put_file(d, o, name, value) : put_json(d, o, name, value, strlen(value));
}

int analyze_document_main(int argc, char **argv)
{
    const cli_command *c = &analyze_document_command;
    char **args;
    int n_args, code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    gem_json_doc *d = gem_json_new();
    gem_json *root = d ? gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT) : NULL;
    code = root ? -1 : CLI_FAULT;
    for (int i = 1; code < 0 && i < n_args; i++) {
        const char *why = add(d, root, args[i]);
        if (why) code = cli_usage(c, "'%.60s': %s", args[i], why);
    }
    if (code < 0) code = gem_json_failed(d) ? CLI_FAULT : analyze_write(c, root, args[0]);
    gem_json_free(d);
    return code;
}

static gem_status messages(gem_bytes *out, char **args, bool second, gem_error *err)
{
    char *prompt = NULL, *stream = NULL;
    size_t n_prompt, n_stream = 0;
    gem_status st = gem_file_read(args[0], EV_MAX_DOCUMENT, &prompt, &n_prompt, err);
    if (st == GEM_OK && second)
        st = gem_file_read(args[1], EV_MAX_DOCUMENT, &stream, &n_stream, err);
    if (st == GEM_OK &&
        !ev_messages(out, prompt, n_prompt, stream, n_stream, second ? args[2] : NULL))
        st = gem_fail(err, GEM_E_NOMEM, "no memory for the messages");
    free(prompt);
    free(stream);
    return st;
}

int analyze_messages_main(int argc, char **argv)
{
    const cli_command *c = &analyze_messages_command;
    char **args;
    int n_args, code = cli_parse(c, argc, argv, &args, &n_args);
    gem_error err;
    gem_bytes out = {0};
    if (code >= 0) return code;
    if (n_args == 3) return cli_usage(c, "STREAM and TEXT go together");
    gem_status st = messages(&out, args, n_args == 4, &err);
    if (st == GEM_OK) st = gem_file_write_atomic(args[n_args - 1], out.data, out.len, &err);
    gem_bytes_free(&out);
    return st == GEM_OK ? CLI_DONE : cli_fail(c, &err);
}
