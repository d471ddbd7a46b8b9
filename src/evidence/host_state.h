/* host_state.h - how busy, hot and powered a machine is: the texts its tools print, read into one
 * snapshot, and a policy that a snapshot keeps or breaks. Parsing is apart from asking, so that
 * recorded outputs of any platform can be read on any other, and an auditor can judge again. */
#ifndef GEM_EVIDENCE_HOST_STATE_H
#define GEM_EVIDENCE_HOST_STATE_H

#include "evidence/judge.h"

/* What a platform was asked; NULL: it gave no answer. Linux: /proc/loadavg; /proc/stat twice, one
 * window apart; "type online status" of each power supply, a line each ("" when there are none);
 * sum of the thermal throttle counters, twice; governors, a line each; processes as macOS prints
 * them. macOS: `sysctl -n vm.loadavg`; `top -l 2 -n 0 -s 1`; `pmset -g batt`; `pmset -g therm`;
 * `pmset -g assertions`; `ps -Aceo pid,pcpu,comm -r`. */
typedef enum ev_host_text {
    EV_HOST_LOADAVG,
    EV_HOST_STAT_BEFORE,
    EV_HOST_STAT_AFTER,
    EV_HOST_SUPPLIES,
    EV_HOST_THROTTLE_BEFORE,
    EV_HOST_THROTTLE_AFTER,
    EV_HOST_GOVERNORS,
    EV_HOST_TOP,
    EV_HOST_BATT,
    EV_HOST_THERM,
    EV_HOST_ASSERTIONS,
    EV_HOST_PROCESSES,
    EV_HOST_CPUS, /* a number */
    EV_HOST_TEXTS
} ev_host_text;
extern const char *const ev_host_text_names[EV_HOST_TEXTS]; /* file names of a recording */

typedef struct ev_host_recording {
    bool macos;
    char *text[EV_HOST_TEXTS]; /* owned */
} ev_host_recording;
void ev_host_recording_free(ev_host_recording *r);

/* {"platform", "cpus", "load_average", "load_per_cpu", "busy_percent", "power", "thermal",
 * "governors", "power_assertions", "process_cpu_percent_sum", "busiest"} into `parent`. What is not
 * known is null. */
void ev_host_put(const ev_host_recording *r, gem_json_doc *d, gem_json *parent);

typedef struct ev_host_policy {
    double max_load_per_cpu, max_busy_percent;
    bool allow_battery, any_governor;
    bool at_work; /* the measured work is running: the busy share and processes on a GPU are its own
                     and are not judged */
} ev_host_policy;
#define EV_HOST_POLICY_DEFAULT                                                                     \
    {                                                                                              \
        1.0, 10.0, false, false, false                                                             \
    }
/* Judge a snapshot (an object as ev_host_put writes it, with "gpus" beside it where there are any).
 * Rules: host-load, host-busy, host-power, host-thermal, host-governor, host-gpu. */
void ev_judge_host(ev_judge *j, const gem_json *snapshot, const ev_host_policy *p);

/* ---- the parsers; false when the text is not of that form ---- */
bool ev_parse_loadavg(const char *text,
                      double load[3]); /* Linux "1 2 3 ..." and macOS "{ 1 2 3 }" */
bool ev_parse_stat(const char *text, double *busy, double *total); /* ticks of all CPUs */
/* Busy share of the second observation, the first being an average since boot. */
bool ev_parse_top(const char *text, double *busy_percent);
/* "ac", "battery", "ups" or NULL. */
const char *ev_parse_batt(const char *text);
/* *warning false only when the tool says that neither a thermal nor a performance warning is
 * recorded and no speed or scheduler limit is below 100. */
bool ev_parse_therm(const char *text, bool *warning);
/* "ac", "battery" or "none". */
const char *ev_parse_supplies(const char *text);

#endif
