/* baseline_run.h - run one command between two windows of sampling and write down what was seen. */
#ifndef GEM_FAK_BASELINE_RUN_H
#define GEM_FAK_BASELINE_RUN_H

#include "fak/axes.h"

typedef struct fak_baseline_options {
    uint64_t baseline_ns, interval_ns, timeout_ns; /* timeout 0: none */
    double max_non_sut_percent, max_duty_percent;
    bool require_memory, top_consumers, v2, pass_stdout;
    char **argv; /* the command, NULL-terminated */
} fak_baseline_options;

typedef struct fak_baseline_run {
    fak_window baseline, command;
    char started[2][32], ended[2][32]; /* RFC 3339, of the two windows */
    int exit_code;                     /* as recorded: 128+N for a signal, 124 for a timeout */
    bool timed_out;
    int spawn_error;     /* errno when the command could not be started: no attestation */
    const char *failure; /* the wrapper itself failed; static text */
    /* v2 */
    uint64_t wait_user_us, wait_system_us, reaped, still_running, cadence_ns;
    bool wait_ok, coverage_limited;
    fak_cgroup cgroup;
    bool cgroup_cpu_ok;
    uint64_t cgroup_cpu_us;
    fak_pressure pressure_from, pressure_to;
    fak_context context;
    fak_exits exits;
    fak_gpus *gpus;
    const char *no_gpu; /* why there are none */
} fak_baseline_run;

void fak_baseline_execute(const fak_baseline_options *o, const fak_probe *probe,
                          fak_baseline_run *r);
void fak_baseline_run_free(fak_baseline_run *r);

/* The attestation, sealed; text goes to out, its digest and verdict word to the caller. */
bool fak_baseline_write(const fak_baseline_options *o, const fak_baseline_run *r, gem_bytes *out,
                        char *digest, const char **verdict);

#endif
