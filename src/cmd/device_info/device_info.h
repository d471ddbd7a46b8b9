/* device_info.h - the parts of gem-device-info: each asks one kind of device what it exposes, and
 * what cannot be had is named with its reason. */
#ifndef GEM_DEVICE_INFO_H
#define GEM_DEVICE_INFO_H

#include <jansson.h>

/* New references. */
json_t *device_cpu_json(void);      /* model, instruction sets, caches */
json_t *device_counters_json(void); /* perf_event: each counter tried, and the PMUs there are */
json_t *device_cuda_json(void);     /* devices by the driver's own interface, loaded at run time */
json_t *device_nvml_json(void);     /* what NVML says of them now */

#endif
