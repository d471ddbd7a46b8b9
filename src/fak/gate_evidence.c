/* gate_evidence.c - do the attestations of both arms qualify their repetitions? First hit decides,
 * in the order accepted 0..n, candidate 0..n. Evidence qualifies or not; it never corrects a
 * number. */
#include "fak/attestation.h"
#include "fak/gate.h"

#include <stdio.h>

typedef struct arm {
    const char *name;
    const gem_json *receipt;
} arm;

static bool hit(gem_bytes *detail, const arm *a, size_t i, const char *what)
{
    gem_bytes_printf(detail, "%s attestation %zu: %s", a->name, i, what);
    return false;
}

static double limit(const gem_json *policy, const char *name, double standard)
{
    const gem_json *v = gem_json_get(policy, name);
    return v ? v->number : standard;
}

static const char *why_not(const gem_json *policy, const gem_json *x)
{
    const gem_json *at = gem_json_get(x, "attribution"), *own = gem_json_get(x, "policy");
    const char *coverage = fak_str(gem_json_get(x, "coverage"), "descendant_attribution");
    fak_findings f = {0};
    if (!fak_coverage_known(x, coverage)) return "unknown coverage";
    fak_attestation_validate(x, &f);
    bool broken = f.n || f.failed;
    fak_findings_free(&f);
    if (broken) return "does not verify";
    if (strcmp(fak_str(x, "verdict"), "clean") != 0)
        return strcmp(fak_str(x, "verdict"), "invalid") == 0 ? "verdict invalid"
                                                             : "verdict investigate";
    if (!fak_metric_available(
            gem_json_get(gem_json_get(x, "baseline_host_totals"), "cpu_percent")) ||
        !fak_metric_available(gem_json_get(gem_json_get(x, "host_totals"), "cpu_percent")) ||
        !fak_metric_available(gem_json_get(at, "sut_cpu_percent_of_host")) ||
        !fak_metric_available(gem_json_get(at, "non_sut_cpu_percent_of_host")))
        return "a required axis is unavailable";
    if (fak_int(gem_json_get(x, "baseline_window"), "samples") < 2)
        return "fewer than two baseline samples";
    if (fak_count(x, "top_non_sut_consumers")) return "names other processes";
    if (fak_num(own, "maximum_non_sut_cpu_percent") >
            limit(policy, "maximum_attested_non_sut_cpu_percent", 20) ||
        fak_num(own, "maximum_sampler_duty_percent") >
            limit(policy, "maximum_attested_sampler_duty_percent", 10))
        return "its own policy is laxer than the gate's";
    if (!fak_coverage_exact(coverage) && !fak_bool(policy, "allow_sampled_system_baseline"))
        return "sampled coverage without allow_sampled_system_baseline";
    return NULL;
}

static bool seen_before(const gem_json *list, const gem_json *stop, const char *digest)
{
    for (const gem_json *m = list; m && m != stop; m = m->next)
        if (strcmp(fak_str(m, "digest"), digest) == 0) return true;
    return false;
}

static bool arm_qualifies(const gem_json *policy, const arm *a, const gem_json *earlier,
                          gem_bytes *detail)
{
    const gem_json *list = gem_json_get(a->receipt, "system_baselines"),
                   *reps = gem_json_get(a->receipt, "repetitions");
    size_t n = list ? list->n : 0;
    if (gem_json_is(gem_json_get(a->receipt, "schema"), fak_doc_receipt_v1.schema)) {
        gem_bytes_printf(detail, "%s is a v1 receipt without attestations", a->name);
        return false;
    }
    if (n != reps->n || n > 4096) {
        gem_bytes_printf(detail, "%s has %zu attestations for %zu repetitions", a->name, n,
                         reps->n);
        return false;
    }
    const gem_json *rep = reps->first;
    for (const gem_json *x = list ? list->first : NULL; x; x = x->next, rep = rep->next) {
        const char *digest = fak_str(x, "digest"), *why = why_not(policy, x);
        if (why) return hit(detail, a, x->index, why);
        if (strcmp(fak_str(rep, "system_baseline_digest"), digest) != 0)
            return hit(detail, a, x->index, "its repetition is bound to another digest");
        if (seen_before(list->first, x, digest) || seen_before(earlier, NULL, digest))
            return hit(detail, a, x->index, "used more than once");
    }
    return true;
}

bool fak_gate_evidence(const gem_json *policy, const gem_json *accepted, const gem_json *candidate,
                       gem_bytes *detail)
{
    arm arms[] = {{"accepted", accepted}, {"candidate", candidate}};
    if (!arm_qualifies(policy, &arms[0], NULL, detail) ||
        !arm_qualifies(policy, &arms[1], fak_list(accepted, "system_baselines"), detail))
        return false;
    gem_bytes_printf(detail, "%zu and %zu clean attestations", fak_count(accepted, "repetitions"),
                     fak_count(candidate, "repetitions"));
    return true;
}
