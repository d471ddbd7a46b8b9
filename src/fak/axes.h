/* axes.h - what attestation v2 knows beyond the process census: exact CPU by wait4 and by a control
 * group of the command's own, pressure (PSI), host context, and GPUs through NVML when its library
 * is there. Each axis that cannot be had says why; none is ever an error. Linux only by nature. */
#ifndef GEM_FAK_AXES_H
#define GEM_FAK_AXES_H

#include "base/json_reader.h"
#include "fak/sampler.h"

/* ---- control group v2 ---- */
typedef struct fak_cgroup {
    char path[512];      /* own leaf; empty: none */
    const char *reason;  /* why there is none; static */
    bool placed;         /* the command was put in before it started */
    const char *cleanup; /* "none", "removed" or "failed" */
} fak_cgroup;
void fak_cgroup_open(fak_cgroup *c);
void fak_cgroup_place(fak_cgroup *c, int32_t pid);
/* usage_usec of cpu.stat. */
bool fak_cgroup_cpu(const fak_cgroup *c, uint64_t *usage_usec);
/* Write the object `cgroup_v2`; reads the files, so call it before fak_cgroup_close. */
gem_json *fak_cgroup_put(const fak_cgroup *c, gem_json_doc *d, gem_json *parent);
/* End what is left in it and remove it; waits at most 2 s. Sets cleanup. */
void fak_cgroup_close(fak_cgroup *c);

/* ---- pressure ---- */
typedef struct fak_pressure {
    bool ok[3][2]; /* cpu, memory, io; some, full */
    uint64_t total_us[3][2];
} fak_pressure;
/* folder: "/proc/pressure" (files cpu, memory, io) or a control group (cpu.pressure, ...). */
void fak_pressure_read(fak_pressure *p, const char *folder, const char *suffix);
void fak_pressure_put(gem_json_doc *d, gem_json *parent, const fak_pressure *from,
                      const fak_pressure *to);

/* ---- host context ---- */
typedef struct fak_context {
    bool mhz_ok, throttle_ok;
    double mhz_min, mhz_sum;
    size_t n_mhz;
    uint64_t throttle_first, throttle_last;
    size_t samples;
} fak_context;
void fak_context_sample(fak_context *c);

/* ---- GPUs ---- */
typedef struct fak_gpus fak_gpus;
fak_gpus *
fak_gpus_open(const char **reason); /* NULL and a static reason when there are none to see */
/* Sample; processes of the window's tree do not count as others. */
void fak_gpus_sample(fak_gpus *g, const fak_window *w);
void fak_gpus_put(const fak_gpus *g, gem_json_doc *d, gem_json *list);
void fak_gpus_close(fak_gpus *g);

/* ---- exits of processes by the kernel's process connector ---- */
typedef struct fak_exits {
    int fd;             /* -1: none */
    const char *reason; /* static */
    int32_t *pid;       /* owned: living processes of the command's tree */
    size_t n_pid, cap_pid;
    uint64_t count, lost;
} fak_exits;
void fak_exits_open(fak_exits *x);
void fak_exits_set_root(fak_exits *x, int32_t pid);
void fak_exits_drain(fak_exits *x);
void fak_exits_close(fak_exits *x);

/* A Metric object: available with value and source, or not with a reason. */
gem_json *fak_put_metric(gem_json_doc *d, gem_json *parent, const char *name, bool available,
                         double value, const char *unit, const char *source, const char *reason);

#endif
