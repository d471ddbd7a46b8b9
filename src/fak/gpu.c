/* gpu.c - GPUs through NVML, found at run time: no header and no library at build time. The few
 * declarations below are the stable C interface of libnvidia-ml.so.1 (NVIDIA NVML API reference).
 */
#include "fak/axes.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef void *nvml_device;
typedef struct nvml_utilization {
    unsigned gpu, memory;
} nvml_utilization;
typedef struct nvml_process { /* nvmlProcessInfo_t since version 2 of its calls */
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} nvml_process;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0, MAX_GPUS = 64, MAX_PROCESSES = 256 };

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*clock)(nvml_device, int, unsigned *);
    int (*utilization)(nvml_device, nvml_utilization *);
    int (*power)(nvml_device, unsigned *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*reasons)(nvml_device, unsigned long long *);
    int (*processes)(nvml_device, unsigned *, nvml_process *);
} nvml;

/* A reading over the window: the largest (or, for clocks, least) value seen. */
typedef struct reading {
    bool ok;
    double value;
} reading;

typedef struct gpu {
    nvml_device device;
    bool open;
    reading sm_clock, memory_clock, utilization, power, temperature, others, others_memory;
    bool reasons_ok;
    unsigned long long reasons;
} gpu;

struct fak_gpus {
    nvml api;
    unsigned n;
    gpu gpu[MAX_GPUS];
};

/* A function's address through dlsym, which returns an object pointer. */
static void *symbol(void *library, const char *name, const char *older, void *slot)
{
    void *p = dlsym(library, name);
    if (!p && older) p = dlsym(library, older);
    memcpy(slot, &p, sizeof(p));
    return p;
}

static bool load(nvml *a)
{
    a->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!a->library) return false;
    void *l = a->library;
    bool core = symbol(l, "nvmlInit_v2", NULL, &a->init) &&
                symbol(l, "nvmlShutdown", NULL, &a->shutdown) &&
                symbol(l, "nvmlDeviceGetCount_v2", NULL, &a->count) &&
                symbol(l, "nvmlDeviceGetHandleByIndex_v2", NULL, &a->handle);
    symbol(l, "nvmlDeviceGetClockInfo", NULL, &a->clock);
    symbol(l, "nvmlDeviceGetUtilizationRates", NULL, &a->utilization);
    symbol(l, "nvmlDeviceGetPowerUsage", NULL, &a->power);
    symbol(l, "nvmlDeviceGetTemperature", NULL, &a->temperature);
    symbol(l, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
           &a->reasons);
    symbol(l, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
           &a->processes);
    return core;
}

fak_gpus *fak_gpus_open(const char **reason)
{
    fak_gpus *g = calloc(1, sizeof(*g));
    *reason = "no NVML library";
    if (!g) return NULL;
    if (!load(&g->api)) goto fail;
    *reason = "NVML could not be initialised";
    if (g->api.init() != 0) goto fail;
    *reason = "NVML names no device";
    if (g->api.count(&g->n) != 0 || g->n == 0) {
        g->api.shutdown();
        goto fail;
    }
    if (g->n > MAX_GPUS) g->n = MAX_GPUS;
    for (unsigned i = 0; i < g->n; i++)
        g->gpu[i].open = g->api.handle(i, &g->gpu[i].device) == 0;
    return g;
fail:
    if (g->api.library) dlclose(g->api.library);
    free(g);
    return NULL;
}

static void keep(reading *r, bool ok, double v, bool least)
{
    if (!ok) return;
    if (!r->ok || (least ? v < r->value : v > r->value)) r->value = v;
    r->ok = true;
}

static bool in_tree(const fak_window *w, unsigned pid)
{
    for (size_t i = 0; i < w->cap_track; i++)
        if (w->track[i].sut && (unsigned)w->track[i].pid == pid) return true;
    return false;
}

static void sample_processes(fak_gpus *g, gpu *u, const fak_window *w)
{
    nvml_process p[MAX_PROCESSES];
    unsigned n = MAX_PROCESSES;
    double others = 0, memory = 0;
    if (!g->api.processes || g->api.processes(u->device, &n, p) != 0) return;
    for (unsigned i = 0; i < n && i < MAX_PROCESSES; i++) {
        if (in_tree(w, p[i].pid)) continue;
        others++;
        if (p[i].used_memory != ~0ull) memory += (double)p[i].used_memory;
    }
    keep(&u->others, true, others, false);
    keep(&u->others_memory, true, memory, false);
}

void fak_gpus_sample(fak_gpus *g, const fak_window *w)
{
    for (unsigned i = 0; g && i < g->n; i++) {
        gpu *u = &g->gpu[i];
        const nvml *a = &g->api;
        unsigned v = 0;
        nvml_utilization rate = {0, 0};
        unsigned long long reasons = 0;
        if (!u->open) continue;
        /* call first, then read v: the order of arguments is not the order of evaluation */
        bool ok = a->clock && a->clock(u->device, CLOCK_SM, &v) == 0;
        keep(&u->sm_clock, ok, v, true);
        ok = a->clock && a->clock(u->device, CLOCK_MEMORY, &v) == 0;
        keep(&u->memory_clock, ok, v, true);
        ok = a->utilization && a->utilization(u->device, &rate) == 0;
        keep(&u->utilization, ok, rate.gpu, false);
        ok = a->power && a->power(u->device, &v) == 0;
        keep(&u->power, ok, v, false);
        ok = a->temperature && a->temperature(u->device, TEMPERATURE_GPU, &v) == 0;
        keep(&u->temperature, ok, v, false);
        if (a->reasons && a->reasons(u->device, &reasons) == 0) {
            u->reasons_ok = true;
            u->reasons |= reasons;
        }
        sample_processes(g, u, w);
    }
}

static void put(gem_json_doc *d, gem_json *o, const char *name, const reading *r, const char *unit)
{
    fak_put_metric(d, o, name, r->ok, r->value, unit, "nvml", "the driver does not tell");
}

void fak_gpus_put(const fak_gpus *g, gem_json_doc *d, gem_json *list)
{
    for (unsigned i = 0; g && i < g->n; i++) {
        const gpu *u = &g->gpu[i];
        reading reasons = {u->reasons_ok, (double)(u->reasons & 0xffffffffull)};
        gem_json *o = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_int(d, o, "index", (int64_t)i);
        gem_json_put_string(d, o, "status",
                            !u->open                         ? "failed"
                            : u->sm_clock.ok || u->others.ok ? "observed"
                                                             : "unreadable");
        put(d, o, "sm_clock_mhz", &u->sm_clock, "megahertz");
        put(d, o, "memory_clock_mhz", &u->memory_clock, "megahertz");
        put(d, o, "utilization_percent", &u->utilization, "percent");
        put(d, o, "power_mw", &u->power, "milliwatts");
        put(d, o, "temperature_c", &u->temperature, "celsius");
        put(d, o, "throttle_reasons", &reasons, "bits");
        put(d, o, "non_sut_process_count", &u->others, "processes");
        put(d, o, "non_sut_memory_bytes", &u->others_memory, "bytes");
    }
}

void fak_gpus_close(fak_gpus *g)
{
    if (!g) return;
    g->api.shutdown();
    dlclose(g->api.library);
    free(g);
}
