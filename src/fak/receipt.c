/* receipt.c - the rules of one receipt (NPR codes). */
#include "fak/receipt.h"

#include "fak/attestation.h"
#include "fak/scrub.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const unchanged[] = {"artifact_sha256", "machine",     "prompt_tokens",
                                        "decode_tokens",   "batch",       "context_tokens",
                                        "temperature",     "sampling",    "cache_state",
                                        "warmups",         "repetitions", "execution_identity"};

/* A text that a person fills in: no placeholder, not blank, nothing private. */
static void rule_text(fak_findings *f, const gem_json *v, bool may_be_blank)
{
    const char *why = fak_private(v->text);
    if (strncmp(v->text, "FILL_", 5) == 0)
        fak_find(f, "NPR-004", v, "still the placeholder \"%s\"", v->text);
    else if (!may_be_blank && fak_blank(v->text))
        fak_find(f, "NPR-004", v, "must not be blank");
    if (why) fak_find(f, "NPR-005", v, "private syntax: %s", why);
}

static void rule_texts(fak_findings *f, const gem_json *r)
{
    const gem_json *identity = gem_json_get(r, "resolved_identity"),
                   *machine = gem_json_get(r, "machine");
    const gem_json *controls = gem_json_get(r, "controls");
    const gem_json *id = gem_json_get(machine, "scrubbed_id");
    rule_text(f, gem_json_get(r, "revision"), false);
    rule_text(f, id, false);
    if (strchr(id->text, ':') && !fak_private(id->text))
        fak_find(f, "NPR-005", id, "private syntax: a colon");
    rule_text(f, gem_json_get(controls, "sampling"), false);
    rule_text(f, gem_json_get(controls, "cache_state"), false);
    rule_text(f, gem_json_get(gem_json_get(r, "quality"), "name"), true);
    if (identity) {
        rule_text(f, gem_json_get(identity, "model_repository"), false);
        rule_text(f, gem_json_get(identity, "model_revision"), false);
    }
    for (const gem_json *m = fak_list(r, "module_versions"); m; m = m->next) {
        rule_text(f, gem_json_get(m, "module"), false);
        rule_text(f, gem_json_get(m, "revision"), false);
    }
    for (const gem_json *c = fak_list(r, "commands"); c; c = c->next)
        rule_text(f, c, false);
    for (const gem_json *p = fak_list(r, "profiler_artifacts"); p; p = p->next)
        rule_text(f, gem_json_get(p, "path"), true);
}

static bool real_hash(const char *s)
{
    return fak_hex64(s) && strspn(s, "0") != 64;
}

static void rule_identity(fak_findings *f, const gem_json *r, const gem_json *e)
{
    const gem_json *sha = gem_json_get(r, "artifact_sha256"),
                   *identity = gem_json_get(r, "resolved_identity");
    bool unresolved = fak_envelope_unresolved(e);
    if (strncmp(sha->text, "FILL_", 5) == 0)
        fak_find(f, "NPR-004", sha, "still the placeholder \"%s\"", sha->text);
    if (!real_hash(sha->text))
        fak_find(f, "NPR-006", sha, "must be 64 lowercase hexadecimal digits, not all zero");
    else if (strcmp(sha->text, fak_str(e, "artifact_sha256")) != 0 &&
             !fak_issue_placeholder(fak_str(e, "artifact_sha256"), "artifact"))
        fak_find(f, "NPR-006", sha, "is not the envelope's artifact");
    if (unresolved != (identity != NULL))
        fak_find_in(f, "NPR-031", r, "resolved_identity", "%s",
                    unresolved ? "required while the envelope is unresolved"
                               : "the envelope is resolved");
    else if (identity && fak_int(identity, "device_memory_gib") <= 0)
        fak_find_in(f, "NPR-031", identity, "device_memory_gib", "must be positive");
}

static void rule_machine(fak_findings *f, const gem_json *r, const gem_json *lever)
{
    static const char *const member[] = {"platform", "backend"};
    const gem_json *machine = gem_json_get(r, "machine"), *a = gem_json_get(lever, "applicability");
    for (size_t i = 0; i < ARRAY_LEN(member); i++)
        if (strcmp(fak_str(machine, member[i]), fak_str(a, member[i])) != 0)
            fak_find_in(f, "NPR-007", machine, member[i], "the lever applies to \"%s\"",
                        fak_str(a, member[i]));
}

static void rule_execution(fak_findings *f, const gem_json *r, const gem_json *e)
{
    const gem_json *x = gem_json_get(r, "execution");
    if (strcmp(fak_str(x, "engine"), fak_str(e, "engine")) != 0)
        fak_find_in(f, "NPR-008", x, "engine", "the envelope requires \"%s\"",
                    fak_str(e, "engine"));
    if (fak_int(x, "fallback_count") != 0)
        fak_find_in(f, "NPR-009", x, "fallback_count", "must be 0");
    if (strcmp(fak_str(x, "forward_path"), fak_str(e, "forward_path")) != 0)
        fak_find_in(f, "NPR-010", x, "forward_path", "the envelope requires \"%s\"",
                    fak_str(e, "forward_path"));
}

static void rule_controls(fak_findings *f, const gem_json *r, const gem_json *e)
{
    static const char *const positive[] = {"prompt_tokens", "decode_tokens", "batch",
                                           "context_tokens", "repetitions"};
    static const char *const pinned[] = {"prompt_tokens", "decode_tokens", "temperature",
                                         "repetitions"};
    const gem_json *c = gem_json_get(r, "controls");
    for (size_t i = 0; i < ARRAY_LEN(positive); i++)
        if (fak_int(c, positive[i]) <= 0)
            fak_find_in(f, "NPR-011", c, positive[i], "must be positive");
    if (fak_num(c, "temperature") < 0)
        fak_find_in(f, "NPR-011", c, "temperature", "must be 0 or more");
    if (fak_int(c, "warmups") < 0) fak_find_in(f, "NPR-011", c, "warmups", "must be 0 or more");
    if (fak_num(c, "context_tokens") < fak_num(c, "prompt_tokens") + fak_num(c, "decode_tokens"))
        fak_find_in(f, "NPR-011", c, "context_tokens", "must hold prompt and decoded tokens");
    for (size_t i = 0; e && i < ARRAY_LEN(pinned); i++) {
        const gem_json *want = gem_json_get(e, pinned[i]);
        if (want->type != GEM_JSON_NULL && want->number != fak_num(c, pinned[i]))
            fak_find_in(f, "NPR-012", c, pinned[i], "the envelope pins %s", want->text);
    }
}

static void rule_unchanged(fak_findings *f, const gem_json *r)
{
    const gem_json *list = gem_json_get(r, "unchanged_controls");
    bool seen[ARRAY_LEN(unchanged)] = {false}, ok = list->n == ARRAY_LEN(unchanged);
    for (const gem_json *m = list->first; ok && m; m = m->next) {
        size_t i = 0;
        while (i < ARRAY_LEN(unchanged) && strcmp(unchanged[i], m->text) != 0)
            i++;
        ok = i < ARRAY_LEN(unchanged) && !seen[i];
        if (ok) seen[i] = true;
    }
    if (!ok)
        fak_find(f, "NPR-017", list, "must name the %zu controls, each once", ARRAY_LEN(unchanged));
}

static void rule_axes(fak_findings *f, const gem_json *r)
{
    const gem_json *axes = gem_json_get(r, "changed_axes");
    const char *lever = fak_str(r, "changed_lever_id");
    bool ok;
    if (strcmp(fak_str(r, "role"), "candidate") == 0)
        ok = axes->n == 1 && strncmp(axes->first->text, "lever:", 6) == 0 &&
             strcmp(axes->first->text + 6, lever) == 0;
    else
        ok = axes->n == 0;
    if (!ok)
        fak_find(f, "NPR-018", axes, "a baseline changes nothing, a candidate exactly its lever");
}

static void rule_repetitions(fak_findings *f, const gem_json *r)
{
    static const char *const stage[] = {"ttft_milliseconds", "prefill_milliseconds",
                                        "decode_milliseconds"};
    const gem_json *list = gem_json_get(r, "repetitions");
    if ((int64_t)list->n != fak_int(gem_json_get(r, "controls"), "repetitions"))
        fak_find(f, "NPR-013", list, "the controls promise another number of repetitions");
    for (const gem_json *m = list->first; m; m = m->next) {
        double e2e = fak_num(m, "end_to_end_milliseconds"),
               parts = fak_num(m, stage[1]) + fak_num(m, stage[2]);
        if (!(e2e > 0)) fak_find_in(f, "NPR-014", m, "end_to_end_milliseconds", "must be positive");
        double rate = fak_num(m, "tokens_per_second");
        if (!(rate > 0))
            fak_find_in(f, "NPR-014", m, "tokens_per_second", "must be positive");
        else if (rate < 1e-9 ||
                 rate > 1e15) /* keeps means, squares and ratios of any two arms finite */
            fak_find_in(f, "NPR-014", m, "tokens_per_second", "must lie between 1e-9 and 1e15");
        for (size_t i = 0; i < ARRAY_LEN(stage); i++)
            if (gem_json_get(m, stage[i]) && !(fak_num(m, stage[i]) > 0))
                fak_find_in(f, "NPR-015", m, stage[i], "must be positive");
        if (fak_num(m, stage[0]) > e2e)
            fak_find_in(f, "NPR-015", m, stage[0], "longer than the whole repetition");
        if (parts > e2e * (1 + 1e-6))
            fak_find_in(f, "NPR-015", m, gem_json_get(m, stage[1]) ? stage[1] : stage[2],
                        "prefill and decode take longer than the whole repetition");
    }
}

static void rule_lists(fak_findings *f, const gem_json *r)
{
    const gem_json *modules = gem_json_get(r, "module_versions"),
                   *memory = gem_json_get(r, "memory");
    if (fak_int(memory, "peak_bytes") <= 0)
        fak_find_in(f, "NPR-016", memory, "peak_bytes", "must be positive");
    if (fak_int(memory, "resident_bytes") <= 0 ||
        fak_int(memory, "resident_bytes") > fak_int(memory, "peak_bytes"))
        fak_find_in(f, "NPR-016", memory, "resident_bytes",
                    "must be positive and at most the peak");
    if (fak_blank(fak_str(gem_json_get(r, "quality"), "name")))
        fak_find_in(f, "NPR-019", gem_json_get(r, "quality"), "name", "must not be blank");
    if (!modules->n) fak_find(f, "NPR-020", modules, "must name at least one module");
    if (modules->n > 4096) fak_find(f, "NPR-020", modules, "more than 4096 modules");
    for (const gem_json *m = modules->first; m && modules->n <= 4096; m = m->next)
        for (const gem_json *q = modules->first; q != m; q = q->next)
            if (strcmp(fak_str(q, "module"), fak_str(m, "module")) == 0) {
                fak_find_in(f, "NPR-020", m, "module", "\"%s\" stands twice", fak_str(m, "module"));
                break;
            }
    if (!fak_count(r, "commands"))
        fak_find_in(f, "NPR-021", r, "commands", "must hold at least one command");
    if (!fak_count(r, "profiler_artifacts"))
        fak_find_in(f, "NPR-022", r, "profiler_artifacts", "must hold at least one artifact");
    for (const gem_json *p = fak_list(r, "profiler_artifacts"); p; p = p->next) {
        const char *path = fak_str(p, "path");
        if (fak_blank(path) || path[0] == '/')
            fak_find_in(f, "NPR-022", p, "path", "must be a relative path");
        if (!real_hash(fak_str(p, "sha256")))
            fak_find_in(f, "NPR-022", p, "sha256",
                        "must be 64 lowercase hexadecimal digits, not all zero");
    }
}

/* ---- embedded attestations ---- */
static void rule_embedded(fak_findings *f, const gem_json *a)
{
    fak_findings inner = {0};
    gem_bytes text = {0};
    fak_attestation_validate(a, &inner);
    if (inner.n || inner.failed) {
        fak_findings_print(&inner, "", &text);
        char *end = text.data ? strchr(text.data, '\n') : NULL; /* the first one speaks for all */
        if (end) *end = 0;
        fak_find(f, "NPR-024", a, "%zu finding%s, first%s", inner.n, inner.n == 1 ? "" : "s",
                 text.data ? text.data : "");
    }
    gem_bytes_free(&text);
    fak_findings_free(&inner);
    if (fak_count(a, "top_non_sut_consumers"))
        fak_find_in(f, "NPR-025", a, "top_non_sut_consumers",
                    "names of other processes stay out of receipts");
}

static void rule_baselines(fak_findings *f, const gem_json *r)
{
    const gem_json *list = gem_json_get(r, "system_baselines"),
                   *reps = gem_json_get(r, "repetitions");
    bool v1 = gem_json_is(gem_json_get(r, "schema"), fak_doc_receipt_v1.schema);
    if (v1 && list) fak_find(f, "NPR-023", list, "a v1 receipt carries no attestations");
    if (list && list->n > reps->n)
        fak_find(f, "NPR-027", list, "more attestations than repetitions");
    const gem_json *a = list ? list->first : NULL;
    for (const gem_json *m = reps->first; m; m = m->next) {
        const gem_json *bound = gem_json_get(m, "system_baseline_digest");
        if (bound && v1) fak_find(f, "NPR-023", bound, "a v1 receipt carries no digests");
        if (a && (!bound || strcmp(bound->text, fak_str(a, "digest")) != 0))
            fak_find_in(f, "NPR-028", m, "system_baseline_digest",
                        "is not the digest of attestation %zu", a->index);
        if (!a && bound)
            fak_find(f, "NPR-029", bound, "there is no attestation for this repetition");
        if (a) a = a->next;
    }
    size_t n = 0;
    for (a = list ? list->first : NULL; a && n < 4096; a = a->next, n++) {
        rule_embedded(f, a);
        for (const gem_json *q = list->first; q != a; q = q->next)
            if (strcmp(fak_str(q, "digest"), fak_str(a, "digest")) == 0) {
                fak_find_in(f, "NPR-026", a, "digest", "the same as attestation %zu", q->index);
                break;
            }
    }
    if (a) fak_find(f, "NPR-027", list, "more than 4096 attestations");
}

void fak_receipt_validate(const fak_graph *g, const gem_json *r, unsigned skip, fak_findings *f)
{
    const char *schema = fak_str(r, "schema"), *role = fak_str(r, "role");
    const gem_json *e = fak_graph_envelope(g, fak_str(r, "envelope_id"));
    const gem_json *lever = fak_graph_lever(g, fak_str(r, "changed_lever_id"));
    if (strcmp(schema, fak_doc_receipt_v1.schema) != 0 &&
        strcmp(schema, fak_doc_receipt_v2.schema) != 0)
        fak_find_in(f, "NPR-001", r, "schema", "must be %s or v1", fak_doc_receipt_v2.schema);
    if (strcmp(role, "baseline") != 0 && strcmp(role, "candidate") != 0)
        fak_find_in(f, "NPR-002", r, "role", "must be baseline or candidate");
    if (!e)
        fak_find_in(f, "NPR-003", r, "envelope_id", "there is no envelope \"%s\"",
                    fak_str(r, "envelope_id"));
    if (!lever)
        fak_find_in(f, "NPR-003", r, "changed_lever_id", "there is no lever \"%s\"",
                    fak_str(r, "changed_lever_id"));
    else if (e && fak_lever_envelope(g, lever) != e)
        fak_find_in(f, "NPR-003", r, "changed_lever_id", "the lever belongs to another envelope");
    else
        rule_machine(f, r, lever);
    if (e) {
        rule_identity(f, r, e);
        if (!(skip & FAK_SKIP_EXECUTION)) rule_execution(f, r, e);
    }
    rule_texts(f, r);
    rule_controls(f, r, e);
    rule_unchanged(f, r);
    rule_axes(f, r);
    rule_repetitions(f, r);
    rule_lists(f, r);
    if (!(skip & FAK_SKIP_BASELINES)) rule_baselines(f, r);
    if (gem_json_get(r, "ambient_evidence"))
        fak_find_in(f, "NPR-030", r, "ambient_evidence", "superseded by system_baselines");
}

/* ---- template ---- */
static void template_controls(gem_json_doc *d, gem_json *root, const gem_json *e)
{
    bool decode = gem_json_get(e, "decode_tokens")->type != GEM_JSON_NULL;
    int64_t p = fak_int(e, "prompt_tokens"), t = fak_int(e, "decode_tokens");
    gem_json *c = gem_json_put(d, root, "controls", GEM_JSON_OBJECT);
    gem_json_put_int(d, c, "prompt_tokens", p);
    gem_json_put_int(d, c, "decode_tokens", decode ? t : 0);
    gem_json_put_int(d, c, "batch", 1);
    gem_json_put_int(d, c, "context_tokens", decode ? p + t : 0);
    gem_json_put_number(d, c, "temperature", fak_num(e, "temperature"));
    gem_json_put_string(d, c, "sampling", "greedy");
    gem_json_put_string(d, c, "cache_state", "cold");
    gem_json_put_int(d, c, "warmups", 1);
    gem_json_put_int(d, c, "repetitions", fak_int(e, "repetitions"));
    gem_json *list = gem_json_put(d, root, "unchanged_controls", GEM_JSON_ARRAY);
    for (size_t i = 0; i < ARRAY_LEN(unchanged); i++)
        gem_json_put_string(d, list, NULL, unchanged[i]);
    gem_json_put(d, root, "changed_axes", GEM_JSON_ARRAY);
    list = gem_json_put(d, root, "repetitions", GEM_JSON_ARRAY);
    for (int64_t i = 0; i < fak_int(e, "repetitions") && i < 4096; i++) {
        gem_json *m = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_int(d, m, "end_to_end_milliseconds", 0);
        gem_json_put_int(d, m, "tokens_per_second", 0);
    }
}

static void template_rest(gem_json_doc *d, gem_json *root, const gem_json *e)
{
    char zeros[65];
    memset(zeros, '0', 64);
    zeros[64] = 0;
    gem_json *m = gem_json_put(d, root, "memory", GEM_JSON_OBJECT);
    gem_json_put_int(d, m, "peak_bytes", 0);
    gem_json_put_int(d, m, "resident_bytes", 0);
    m = gem_json_put(d, root, "execution", GEM_JSON_OBJECT);
    gem_json_put_string(d, m, "engine", fak_str(e, "engine"));
    gem_json_put_string(d, m, "forward_path", fak_str(e, "forward_path"));
    gem_json_put_int(d, m, "fallback_count", 0);
    m = gem_json_put(d, root, "quality", GEM_JSON_OBJECT);
    gem_json_put_string(d, m, "name", "FILL_QUALITY_METRIC");
    gem_json_put_int(d, m, "score", 0);
    gem_json_put_bool(d, m, "higher_is_better", true);
    m = gem_json_put(d, gem_json_put(d, root, "module_versions", GEM_JSON_ARRAY), NULL,
                     GEM_JSON_OBJECT);
    gem_json_put_string(d, m, "module", "FILL_MODULE");
    gem_json_put_string(d, m, "revision", "FILL_MODULE_REVISION");
    m = gem_json_put(d, root, "commands", GEM_JSON_ARRAY);
    gem_json_put_string(d, m, NULL, "FILL_SCRUBBED_CAPTURE_COMMAND");
    m = gem_json_put(d, gem_json_put(d, root, "profiler_artifacts", GEM_JSON_ARRAY), NULL,
                     GEM_JSON_OBJECT);
    gem_json_put_string(d, m, "path", "FILL_RELATIVE_PROFILE_PATH");
    gem_json_put_string(d, m, "sha256", zeros);
}

void fak_receipt_template(const gem_json *lever, const gem_json *e, gem_bytes *out)
{
    gem_json_doc *d = gem_json_new();
    if (!d) {
        out->failed = true;
        return;
    }
    const gem_json *a = gem_json_get(lever, "applicability");
    const char *sha = fak_str(e, "artifact_sha256");
    gem_json *root = gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(d, root, "schema", fak_doc_receipt_v2.schema);
    gem_json_put_string(d, root, "role", "baseline");
    gem_json_put_string(d, root, "envelope_id", fak_str(e, "id"));
    gem_json_put_string(d, root, "changed_lever_id", fak_str(lever, "id"));
    gem_json_put_string(d, root, "revision", "FILL_COMMITTED_REVISION");
    gem_json_put_string(d, root, "artifact_sha256",
                        fak_issue_placeholder(sha, "artifact") ? "FILL_ARTIFACT_SHA256" : sha);
    if (fak_envelope_unresolved(e)) {
        gem_json *id = gem_json_put(d, root, "resolved_identity", GEM_JSON_OBJECT);
        gem_json_put_string(d, id, "model_repository", "FILL_MODEL_REPOSITORY");
        gem_json_put_string(d, id, "model_revision", "FILL_MODEL_REVISION");
        gem_json_put_int(d, id, "device_memory_gib", 0);
    }
    gem_json *m = gem_json_put(d, root, "machine", GEM_JSON_OBJECT);
    gem_json_put_string(d, m, "scrubbed_id", "FILL_SCRUBBED_MACHINE_ID");
    gem_json_put_string(d, m, "platform", fak_str(a, "platform"));
    gem_json_put_string(d, m, "backend", fak_str(a, "backend"));
    template_controls(d, root, e);
    template_rest(d, root, e);
    gem_json_write(out, root);
    if (gem_json_failed(d)) out->failed = true;
    gem_json_free(d);
}
