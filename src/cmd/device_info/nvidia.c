/* nvidia.c - NVIDIA devices, by the driver's interface and by NVML, both found at run time: no header
 * and no library at build time. The declarations are those of the CUDA driver API reference. */
#include "base/base.h"
#include "base/json_reader.h"
#include "cmd/device_info/device_info.h"
#include "fak/axes.h"

#include <dlfcn.h>
#include <stdlib.h>

/* CUdevice_attribute, by number */
static const struct {
    const char *name;
    int attribute;
} attributes[] = {
    {"max_threads_per_block", 1},
    {"max_shared_memory_per_block", 8},
    {"warp_size", 10},
    {"max_registers_per_block", 12},
    {"clock_khz", 13},
    {"multiprocessors", 16},
    {"memory_clock_khz", 36},
    {"memory_bus_bits", 37},
    {"l2_bytes", 38},
    {"max_threads_per_multiprocessor", 39},
    {"ecc", 32},
    {"compute_major", 75},
    {"compute_minor", 76},
    {"max_shared_memory_per_multiprocessor", 81},
    {"max_registers_per_multiprocessor", 82},
    {"max_shared_memory_per_block_optin", 97},
    {"max_blocks_per_multiprocessor", 106},
};

typedef struct driver {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*count)(int *);
    int (*get)(int *, int);
    int (*name)(char *, int, int);
    int (*memory)(size_t *, int);
    int (*attribute)(int *, int, int);
} driver;

/* A function's address through dlsym, which returns an object pointer. */
static bool symbol(void *library, const char *name, void *slot)
{
    void *p = dlsym(library, name);
    memcpy(slot, &p, sizeof(p));
    return p != NULL;
}

static json_t *device_json(const driver *d, int ordinal)
{
    int device;
    char name[256] = "";
    size_t bytes = 0;
    if (d->get(&device, ordinal) || d->name(name, sizeof(name), device)) return NULL;
    bool sized = d->memory(&bytes, device) == 0;
    json_t *o = json_pack("{s:i, s:s, s:o}", "ordinal", ordinal, "name", name, "memory_bytes",
                          sized ? json_integer((json_int_t)bytes) : json_null());
    for (size_t i = 0; i < ARRAY_LEN(attributes); i++) {
        int value;
        bool ok = d->attribute(&value, attributes[i].attribute, device) == 0;
        json_object_set_new(o, attributes[i].name, ok ? json_integer(value) : json_null());
    }
    return o;
}

json_t *device_cuda_json(void)
{
    driver d = {0};
    int n = 0, version = 0;
    void *l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *reason = "libcuda.so.1 is not there: no NVIDIA driver";
    json_t *devices = json_array();
    bool ok = l && symbol(l, "cuInit", &d.init) && symbol(l, "cuDriverGetVersion", &d.version) &&
              symbol(l, "cuDeviceGetCount", &d.count) && symbol(l, "cuDeviceGet", &d.get) &&
              symbol(l, "cuDeviceGetName", &d.name) &&
              symbol(l, "cuDeviceTotalMem_v2", &d.memory) &&
              symbol(l, "cuDeviceGetAttribute", &d.attribute);
    if (l) reason = "the driver does not start a device";
    ok = ok && d.init(0) == 0 && d.version(&version) == 0 && d.count(&n) == 0;
    for (int i = 0; ok && i < n; i++) {
        json_t *o = device_json(&d, i);
        if (o) json_array_append_new(devices, o);
    }
    /* the library stays loaded: a driver that ran must not be unmapped under its own threads */
    return ok ? json_pack("{s:i, s:o}", "driver_version", version, "devices", devices)
              : json_pack("{s:s, s:o}", "unavailable", reason, "devices", devices);
}

json_t *device_nvml_json(void)
{
    const char *reason = NULL;
    fak_window nobody;
    fak_probe probe;
    fak_gpus *g = fak_gpus_open(&reason);
    if (!g) return json_pack("{s:s, s:[]}", "unavailable", reason, "gpus");
    gem_json_doc *doc = gem_json_new();
    gem_bytes text = {0};
    json_t *list = NULL;
    fak_probe_system(&probe);
    fak_window_init(&nobody, &probe); /* every process on a device is another's */
    fak_gpus_sample(g, &nobody);
    if (doc) {
        gem_json *root = gem_json_put(doc, NULL, NULL, GEM_JSON_OBJECT);
        fak_gpus_put(g, doc, gem_json_put(doc, root, "gpus", GEM_JSON_ARRAY));
        if (root) gem_json_write(&text, root);
        list = text.data ? json_loads(text.data, 0, NULL) : NULL;
    }
    gem_bytes_free(&text);
    gem_json_free(doc);
    fak_window_free(&nobody);
    fak_gpus_close(g);
    return list ? list : json_null();
}
