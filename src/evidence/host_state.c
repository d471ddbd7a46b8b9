/* host_state.c - outputs of the systems' tools into one snapshot. */
#include "evidence/host_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const ev_host_text_names[EV_HOST_TEXTS] = {
    "loadavg",          "stat.before", "stat.after", "power_supplies", "throttle.before",
    "throttle.after",   "governors",   "top",        "pmset-batt",     "pmset-therm",
    "pmset-assertions", "processes",   "cpus"};

void ev_host_recording_free(ev_host_recording *r)
{
    for (size_t i = 0; i < EV_HOST_TEXTS; i++)
        free(r->text[i]);
    memset(r, 0, sizeof(*r));
}

/* ---- parsers ---- */
bool ev_parse_loadavg(const char *text, double load[3])
{
    while (text && (*text == '{' || *text == ' '))
        text++;
    if (!text || sscanf(text, "%lf %lf %lf", &load[0], &load[1], &load[2]) != 3) return false;
    return load[0] >= 0 && load[1] >= 0 && load[2] >= 0;
}

bool ev_parse_stat(const char *text, double *busy, double *total)
{
    double v[8] = {0}; /* user nice system idle iowait irq softirq steal; proc_stat(5) */
    const char *line = text ? strstr(text, "cpu ") : NULL;
    if (!line || (line != text && line[-1] != '\n')) return false;
    int n = sscanf(line + 4, "%lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4],
                   &v[5], &v[6], &v[7]);
    if (n < 4) return false;
    *total = 0;
    for (int i = 0; i < 8; i++)
        *total += v[i];
    *busy = *total - v[3] - v[4];
    return true;
}

bool ev_parse_top(const char *text, double *busy_percent)
{
    double user, sys, idle;
    const char *first = text ? strstr(text, "CPU usage:") : NULL;
    const char *second = first ? strstr(first + 1, "CPU usage:") : NULL;
    if (!second) return false;
    if (sscanf(second, "CPU usage: %lf%% user, %lf%% sys, %lf%% idle", &user, &sys, &idle) != 3)
        return false;
    if (!(idle >= 0 && idle <= 100)) return false;
    *busy_percent = 100 - idle;
    return true;
}

const char *ev_parse_batt(const char *text)
{
    const char *p = text ? strstr(text, "Now drawing from '") : NULL;
    if (!p) return NULL;
    p += strlen("Now drawing from '");
    if (strncmp(p, "AC Power'", 9) == 0) return "ac";
    if (strncmp(p, "Battery Power'", 14) == 0) return "battery";
    return strncmp(p, "UPS Power'", 10) == 0 ? "ups" : NULL;
}

bool ev_parse_therm(const char *text, bool *warning)
{
    static const char *const limits[] = {"CPU_Scheduler_Limit", "CPU_Speed_Limit"};
    if (!text || !*text) return false;
    *warning = !(strstr(text, "No thermal warning level has been recorded") &&
                 strstr(text, "No performance warning level has been recorded"));
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const char *p = strstr(text, limits[i]);
        double v = 0;
        if (!p) continue;
        p += strlen(limits[i]);
        p += strspn(p, " \t=");
        if (sscanf(p, "%lf", &v) != 1 || v < 100) *warning = true;
    }
    return true;
}

const char *ev_parse_supplies(const char *text)
{
    bool battery = false, discharging = false, mains = false;
    char type[32], online[32], status[32];
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (sscanf(p, "%31s %31s %31s", type, online, status) != 3) continue;
        battery = battery || !strcmp(type, "Battery");
        discharging = discharging || (!strcmp(type, "Battery") && !strcmp(status, "Discharging"));
        mains = mains || (strcmp(type, "Battery") != 0 && !strcmp(online, "1"));
    }
    if (!battery) return "none";
    return mains && !discharging ? "ac" : "battery";
}

/* ---- the snapshot ---- */
static void put_number(gem_json_doc *d, gem_json *o, const char *name, bool known, double v)
{
    if (known && isfinite(v))
        gem_json_put_number(d, o, name, v);
    else
        gem_json_put(d, o, name, GEM_JSON_NULL);
}

static void put_text(gem_json_doc *d, gem_json *o, const char *name, const char *text)
{
    if (text)
        gem_json_put_string(d, o, name, text);
    else
        gem_json_put(d, o, name, GEM_JSON_NULL);
}

static void put_load(const ev_host_recording *r, gem_json_doc *d, gem_json *o)
{
    double load[3] = {NAN, NAN, NAN}, busy = NAN, b0, t0, b1, t1;
    const char *const *t = (const char *const *)r->text;
    double cpus = t[EV_HOST_CPUS] ? strtod(t[EV_HOST_CPUS], NULL) : 0;
    bool known = ev_parse_loadavg(t[EV_HOST_LOADAVG], load);
    put_number(d, o, "cpus", cpus >= 1, cpus);
    gem_json *list = gem_json_put(d, o, "load_average", GEM_JSON_ARRAY);
    for (int i = 0; known && i < 3; i++)
        gem_json_put_number(d, list, NULL, load[i]);
    put_number(d, o, "load_per_cpu", known && cpus >= 1, load[0] / cpus);
    if (r->macos)
        known = ev_parse_top(t[EV_HOST_TOP], &busy);
    else if ((known = ev_parse_stat(t[EV_HOST_STAT_BEFORE], &b0, &t0) &&
                      ev_parse_stat(t[EV_HOST_STAT_AFTER], &b1, &t1) && t1 > t0))
        busy = 100 * (b1 - b0) / (t1 - t0);
    put_number(d, o, "busy_percent", known, busy);
}

static void put_thermal(const ev_host_recording *r, gem_json_doc *d, gem_json *o)
{
    bool warning = false;
    gem_json *v = gem_json_put(d, o, "thermal", GEM_JSON_OBJECT);
    if (r->macos) {
        bool known = ev_parse_therm(r->text[EV_HOST_THERM], &warning);
        gem_json_put_string(d, v, "source", "pmset -g therm");
        if (known)
            gem_json_put_bool(d, v, "warning", warning);
        else
            gem_json_put(d, v, "warning", GEM_JSON_NULL);
        return;
    }
    const char *a = r->text[EV_HOST_THROTTLE_BEFORE], *b = r->text[EV_HOST_THROTTLE_AFTER];
    double events = a && b ? strtod(b, NULL) - strtod(a, NULL) : 0;
    gem_json_put_string(d, v, "source",
                        a && b ? "thermal_throttle counters" : "no throttle counters here");
    gem_json_put_bool(d, v, "counters", a && b);
    if (a && b) gem_json_put_number(d, v, "throttle_events", events);
    gem_json_put_bool(d, v, "warning", events != 0);
}

/* "PID %CPU NAME" lines; the first eight, and the sum of all. */
static void put_processes(const ev_host_recording *r, gem_json_doc *d, gem_json *o)
{
    double sum = 0, pid, cpu;
    char name[128];
    const char *text = r->text[EV_HOST_PROCESSES];
    gem_json *list = gem_json_put(d, o, "busiest", GEM_JSON_ARRAY);
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (sscanf(p, "%lf %lf %127[^\n]", &pid, &cpu, name) != 3) continue; /* the heading */
        sum += cpu;
        if (list->n == 8) continue;
        gem_json *v = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_number(d, v, "pid", pid);
        gem_json_put_number(d, v, "cpu_percent", cpu);
        gem_json_put_string(d, v, "name", name);
    }
    put_number(d, o, "process_cpu_percent_sum", text != NULL, sum);
}

void ev_host_put(const ev_host_recording *r, gem_json_doc *d, gem_json *o)
{
    gem_json_put_string(d, o, "platform", r->macos ? "macos" : "linux");
    put_load(r, d, o);
    put_text(d, o, "power",
             r->macos                    ? ev_parse_batt(r->text[EV_HOST_BATT])
             : r->text[EV_HOST_SUPPLIES] ? ev_parse_supplies(r->text[EV_HOST_SUPPLIES])
                                         : NULL);
    put_thermal(r, d, o);
    gem_json *list = gem_json_put(d, o, "governors", GEM_JSON_ARRAY);
    char word[64];
    for (const char *p = r->text[EV_HOST_GOVERNORS]; p && sscanf(p, "%63s", word) == 1;) {
        bool known = false;
        for (const gem_json *m = list->first; m; m = m->next)
            known = known || gem_json_is(m, word);
        if (!known) gem_json_put_string(d, list, NULL, word);
        p = strstr(p, word) + strlen(word);
    }
    put_text(d, o, "power_assertions", r->text[EV_HOST_ASSERTIONS]);
    put_processes(r, d, o);
}

/* ---- policy ---- */
static void judge_gpus(ev_judge *j, const gem_json *gpus, bool at_work)
{
    for (const gem_json *g = gpus ? gpus->first : NULL; g; g = g->next) {
        /* NVML clocks event reasons: hardware slowdown, software and hardware thermal, power brake
         */
        enum { BAD = 0x8 | 0x20 | 0x40 | 0x80 };
        double reasons = ev_number(g, "throttle_reasons.value"),
               others = ev_number(g, "non_sut_process_count.value");
        /* a number that is no such mask is as bad as a slowdown; no number: the driver does not
         * tell */
        bool mask = reasons >= 0 && reasons < 4294967296.0;
        bool slowed = !isnan(reasons) && (!mask || ((uint64_t)reasons & BAD) != 0);
        ev_check(j, !slowed && (at_work || !(others > 0)), "host-gpu",
                 at_work ? "no thermal or hardware slowdown"
                         : "no thermal or hardware slowdown, no other process on the device",
                 "device %zu: reasons %.0f, %.0f processes", g->index, reasons, others);
    }
}

void ev_judge_host(ev_judge *j, const gem_json *s, const ev_host_policy *p)
{
    char required[64];
    double load = ev_number(s, "load_per_cpu"), busy = ev_number(s, "busy_percent");
    const char *power = ev_text(s, "power");
    snprintf(required, sizeof(required), "at most %g a logical CPU", p->max_load_per_cpu);
    ev_check(j, load <= p->max_load_per_cpu, "host-load", required, "%.3f", load);
    snprintf(required, sizeof(required), "at most %g %% in the window", p->max_busy_percent);
    if (!p->at_work)
        ev_check(j, busy <= p->max_busy_percent, "host-busy", required, "%.2f %%", busy);
    bool mains = !strcmp(power, "ac") || !strcmp(power, "none");
    ev_check(j, mains || (p->allow_battery && *power), "host-power", "mains, or no battery", "%s",
             *power ? power : "unknown");
    ev_check(j, ev_is_false(s, "thermal.warning"), "host-thermal",
             "no thermal or performance warning", "%s",
             ev_is_true(s, "thermal.warning")    ? "a warning or throttling"
             : ev_is_false(s, "thermal.warning") ? "none"
                                                 : "unknown");
    const gem_json *governors = ev_at(s, "governors");
    bool slow = !governors;
    for (const gem_json *m = governors ? governors->first : NULL; m; m = m->next)
        slow = slow || gem_json_is(m, "powersave") || gem_json_is(m, "conservative");
    ev_check(j, !slow || p->any_governor, "host-governor", "no powersave or conservative governor",
             "%s", slow ? "one is, or it is unknown" : "none");
    judge_gpus(j, ev_at(s, "gpus"), p->at_work);
}
