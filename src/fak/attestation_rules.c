/* attestation_rules.c - what makes a recorded system baseline unbelievable (SBV codes). */
#include "fak/attestation.h"

#include <ctype.h>
#include <math.h>

/* ---- time stamps: RFC 3339 in UTC with 0 to 9 fraction digits ---- */
typedef struct instant {
    int64_t seconds, nanoseconds;
} instant;

static bool two(const char *s, int low, int high, int *v)
{
    if (!isdigit((unsigned char)s[0]) || !isdigit((unsigned char)s[1])) return false;
    *v = (s[0] - '0') * 10 + s[1] - '0';
    return *v >= low && *v <= high;
}

static bool parse_time(const char *s, instant *t)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int century, year2, month, day, hour, minute, second;
    if (strlen(s) < 20 || !two(s, 0, 99, &century) || !two(s + 2, 0, 99, &year2) || s[4] != '-' ||
        !two(s + 5, 1, 12, &month) || s[7] != '-' || !two(s + 8, 1, 31, &day) || s[10] != 'T' ||
        !two(s + 11, 0, 23, &hour) || s[13] != ':' || !two(s + 14, 0, 59, &minute) ||
        s[16] != ':' || !two(s + 17, 0, 60, &second))
        return false;
    int year = century * 100 + year2;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > days[month - 1] + (month == 2 && leap)) return false;
    s += 19;
    t->nanoseconds = 0;
    if (*s == '.') {
        int n = 0;
        int64_t scale = 100000000;
        for (s++; isdigit((unsigned char)*s) && n < 9; s++, n++, scale /= 10)
            t->nanoseconds += (*s - '0') * scale;
        if (n == 0) return false;
    }
    if (s[0] != 'Z' || s[1] != 0) return false;
    /* days since 1970-01-01 of the proleptic calendar: era arithmetic on years that start in March
     */
    int64_t y = year - (month <= 2), era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    t->seconds = ((era * 146097 + doe - 719468) * 24 + hour) * 3600 + minute * 60 + second;
    return true;
}

/* ---- rules ---- */
static void not_negative(fak_findings *f, const gem_json *obj)
{
    for (const gem_json *m = obj->first; m; m = m->next)
        if (m->type == GEM_JSON_NUMBER && m->number < 0)
            fak_find(f, "SBV-004", m, "must not be negative");
}

static void rule_window(fak_findings *f, const gem_json *w)
{
    instant from, to;
    bool ok_from = parse_time(fak_str(w, "started_at_utc"), &from),
         ok_to = parse_time(fak_str(w, "ended_at_utc"), &to);
    not_negative(f, w);
    if (!ok_from) fak_find_in(f, "SBV-012", w, "started_at_utc", "no RFC 3339 time in UTC");
    if (!ok_to) fak_find_in(f, "SBV-012", w, "ended_at_utc", "no RFC 3339 time in UTC");
    if (ok_from && ok_to &&
        (to.seconds < from.seconds ||
         (to.seconds == from.seconds && to.nanoseconds < from.nanoseconds)))
        fak_find_in(f, "SBV-012", w, "ended_at_utc", "ends before it starts");
}

static void rule_sampler(fak_findings *f, const gem_json *s, const gem_json *w)
{
    const gem_json *duty = gem_json_get(s, "duty_percent");
    int64_t samples = fak_int(w, "samples"), wall = fak_int(s, "wall_ns"),
            duration = fak_int(w, "duration_ns");
    not_negative(f, s);
    if (fak_int(s, "counted_samples") != GEM_MAX(samples - 1, 0))
        fak_find_in(f, "SBV-005", s, "counted_samples",
                    "must be one less than the window's samples");
    if (!fak_metric_available(duty)) {
        if (wall != 0)
            fak_find_in(f, "SBV-005", s, "duty_percent",
                        "unavailable although wall_ns is recorded");
    } else if (duration <= 0 ||
               !(fabs(fak_num(duty, "value") - (double)wall / (double)duration * 100) <= 1e-9)) {
        fak_find_in(f, "SBV-005", s, "duty_percent", "is not wall_ns / duration_ns * 100");
    }
}

static void rule_metric(fak_findings *f, const gem_json *m, const char *unit)
{
    bool available = fak_metric_available(m);
    const gem_json *value = gem_json_get(m, "value");
    if (strcmp(fak_str(m, "unit"), unit) != 0)
        fak_find_in(f, "SBV-006", m, "unit", "must be %s", unit);
    if (available) {
        if (!value) fak_find_in(f, "SBV-006", m, "value", "an available metric has a value");
        if (fak_blank(fak_str(m, "source")))
            fak_find_in(f, "SBV-006", m, "source", "an available metric has a source");
        if (gem_json_get(m, "reason"))
            fak_find_in(f, "SBV-006", m, "reason", "an available metric has no reason");
    } else {
        if (value) fak_find_in(f, "SBV-006", m, "value", "an unavailable metric has no value");
        if (gem_json_get(m, "source"))
            fak_find_in(f, "SBV-006", m, "source", "an unavailable metric has no source");
        if (fak_blank(fak_str(m, "reason")))
            fak_find_in(f, "SBV-006", m, "reason", "an unavailable metric has a reason");
    }
    if (value && value->number < 0) fak_find(f, "SBV-006", value, "must not be negative");
    if (value && strcmp(unit, "percent") == 0 && value->number > 100)
        fak_find(f, "SBV-013", value, "a percentage above 100");
}

static void rule_host(fak_findings *f, const gem_json *h)
{
    rule_metric(f, gem_json_get(h, "cpu_percent"), "percent");
    rule_metric(f, gem_json_get(h, "memory_total_bytes"), "bytes");
    rule_metric(f, gem_json_get(h, "memory_available_bytes"), "bytes");
    rule_metric(f, gem_json_get(h, "process_count"), "processes");
}

static void rule_attribution(fak_findings *f, const gem_json *a)
{
    const gem_json *at = gem_json_get(a, "attribution"),
                   *host = gem_json_get(gem_json_get(a, "host_totals"), "cpu_percent");
    const gem_json *sut = gem_json_get(at, "sut_cpu_percent_of_host");
    const gem_json *non = gem_json_get(at, "non_sut_cpu_percent_of_host");
    rule_metric(f, sut, "percent");
    rule_metric(f, non, "percent");
    rule_metric(f, gem_json_get(at, "sut_rss_bytes"), "bytes");
    rule_metric(f, gem_json_get(at, "non_sut_rss_bytes"), "bytes");
    if (fak_metric_available(sut) && fak_metric_available(non) && fak_metric_available(host) &&
        !(fabs(fak_num(sut, "value") + fak_num(non, "value") - fak_num(host, "value")) <= 1e-6))
        fak_find(f, "SBV-013", at, "command and other CPU do not add up to the host's");
}

static bool in_percent_range(double v)
{
    return v > 0 && v <= 100;
}

static void rule_policy(fak_findings *f, const gem_json *p)
{
    if (fak_int(p, "minimum_baseline_samples") != 2)
        fak_find_in(f, "SBV-014", p, "minimum_baseline_samples", "is 2");
    if (fak_int(p, "minimum_samples") != 2) fak_find_in(f, "SBV-014", p, "minimum_samples", "is 2");
    if (!fak_bool(p, "require_host_cpu"))
        fak_find_in(f, "SBV-014", p, "require_host_cpu", "is true");
    if (!fak_bool(p, "require_sut_cpu")) fak_find_in(f, "SBV-014", p, "require_sut_cpu", "is true");
    for (const gem_json *m = p->first; m; m = m->next)
        if (strncmp(m->name, "maximum_", 8) == 0 && !in_percent_range(m->number))
            fak_find(f, "SBV-014", m, "must be above 0 and at most 100");
}

static void rule_consumers(fak_findings *f, const gem_json *a)
{
    const gem_json *list = gem_json_get(a, "top_non_sut_consumers");
    if (list->n && !fak_bool(gem_json_get(a, "policy"), "include_top_consumers"))
        fak_find(f, "SBV-009", list, "recorded without the opt-in of the policy");
    if (list->n > FAK_MAX_CONSUMERS)
        fak_find(f, "SBV-010", list, "at most %d are recorded", FAK_MAX_CONSUMERS);
    for (const gem_json *c = list->first; c; c = c->next) {
        const char *image = fak_str(c, "image");
        double cpu = fak_num(c, "cpu_seconds");
        if (fak_blank(image) || strpbrk(image, "/\\"))
            fak_find_in(f, "SBV-011", c, "image", "must be a name without a folder");
        if (fak_int(c, "pid") <= 0) fak_find_in(f, "SBV-011", c, "pid", "must be positive");
        if (cpu < 0 || (!fak_bool(c, "cpu_available") && cpu != 0))
            fak_find_in(f, "SBV-011", c, "cpu_seconds",
                        "must not be negative, and 0 when unavailable");
        if (fak_int(c, "rss_bytes") < 0 ||
            (!fak_bool(c, "rss_available") && fak_int(c, "rss_bytes") != 0))
            fak_find_in(f, "SBV-011", c, "rss_bytes",
                        "must not be negative, and 0 when unavailable");
    }
}

static bool finding_codes_equal(const gem_json *a, const fak_verdict *v)
{
    size_t i = 0;
    for (const gem_json *m = fak_list(a, "findings"); m; m = m->next, i++)
        if (i >= v->n || strcmp(fak_str(m, "code"), v->code[i]) != 0) return false;
    return i == v->n;
}

/* Metrics of the v2 axes have free units; their shape is checked wherever they stand. */
static void rule_axes(fak_findings *f, const gem_json *v)
{
    for (const gem_json *m = v->first; m; m = m->next) {
        if (m->type == GEM_JSON_OBJECT && gem_json_get(m, "unit"))
            rule_metric(f, m, fak_str(m, "unit"));
        else if (m->type == GEM_JSON_OBJECT || m->type == GEM_JSON_ARRAY)
            rule_axes(f, m);
    }
}

static void rule_v2(fak_findings *f, const gem_json *a)
{
    static const char *const axes[] = {"wait4", "cgroup_v2", "pressure", "exits", "context", "gpu"};
    for (size_t i = 0; i < ARRAY_LEN(axes); i++)
        rule_axes(f, gem_json_get(a, axes[i]));
    if (fak_int(a, "effective_cadence_ns") < 0)
        fak_find_in(f, "SBV-004", a, "effective_cadence_ns", "must not be negative");
    if (fak_bool(gem_json_get(a, "gpu_axis"), "available") ==
        fak_blank(fak_str(gem_json_get(a, "gpu_axis"), "reason")))
        return;
    fak_find_in(f, "SBV-006", a, "gpu_axis",
                "an unavailable axis has a reason, an available one has none");
}

void fak_attestation_validate(const gem_json *a, fak_findings *f)
{
    const char *schema = fak_str(a, "schema"), *word = fak_str(a, "verdict");
    const gem_json *coverage = gem_json_get(a, "coverage");
    bool v2 = strcmp(schema, fak_doc_baseline_v2.schema) == 0;
    fak_verdict v;
    if (!v2 && strcmp(schema, fak_doc_baseline_v1.schema) != 0)
        fak_find_in(f, "SBV-001", a, "schema", "must be %s or v2", fak_doc_baseline_v1.schema);
    bool known = strcmp(word, "clean") == 0 || strcmp(word, "investigate") == 0 ||
                 strcmp(word, "invalid") == 0;
    if (!known) fak_find_in(f, "SBV-002", a, "verdict", "must be clean, investigate or invalid");
    if (fak_attestation_hashing(a) == FAK_HASH_NONE)
        fak_find_in(f, "SBV-003", a, "digest", "does not match the document");
    rule_window(f, gem_json_get(a, "baseline_window"));
    rule_window(f, gem_json_get(a, "command_window"));
    not_negative(f, coverage);
    rule_sampler(f, gem_json_get(a, "baseline_sampler"), gem_json_get(a, "baseline_window"));
    rule_sampler(f, gem_json_get(a, "command_sampler"), gem_json_get(a, "command_window"));
    rule_metric(f, gem_json_get(gem_json_get(a, "baseline_sampler"), "duty_percent"), "percent");
    rule_metric(f, gem_json_get(gem_json_get(a, "command_sampler"), "duty_percent"), "percent");
    rule_host(f, gem_json_get(a, "baseline_host_totals"));
    rule_host(f, gem_json_get(a, "host_totals"));
    rule_attribution(f, a);
    rule_policy(f, gem_json_get(a, "policy"));
    rule_consumers(f, a);
    if (v2) rule_v2(f, a);
    fak_attestation_evaluate(a, &v);
    if (known && strcmp(v.word, word) != 0)
        fak_find_in(f, "SBV-007", a, "verdict", "the recorded values give %s", v.word);
    if (!finding_codes_equal(a, &v))
        fak_find_in(f, "SBV-008", a, "findings", "the recorded values give other findings");
    if (!fak_coverage_known(a, fak_str(coverage, "descendant_attribution")))
        fak_find_in(f, "SBV-015", coverage, "descendant_attribution",
                    "\"%s\" is no kind of coverage", fak_str(coverage, "descendant_attribution"));
}
