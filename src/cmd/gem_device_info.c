/* gem_device_info.c - `gem-device-info`: what the devices of this machine expose to a profiler: CPU
 * counters, CUDA properties, NVML, Metal. One JSON document on stdout; only counters named here as
 * available can be sampled. */
#include "backend/backend.h"
#include "base/base.h"
#include "bench/bench.h"
#include "cmd/cli/cli.h"
#include "cmd/device_info/device_info.h"

static const cli_option options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

static const cli_command command = {
    .program = "gem-device-info",
    .args = "",
    .summary = "print as JSON what the devices here expose to a profiler",
    .text = "Each CPU counter is opened and read once: those that could not be say why. Nothing is "
            "loaded and\n"
            "no model is needed.\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    return cli_print_json(
        &command,
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:[]}}", "schema",
                  "gem-device-info/1", "backends", gem_backend_names(), "host", bench_host_json(),
                  "cpu", device_cpu_json(), "counters", device_counters_json(), "cuda",
                  device_cuda_json(), "nvml", device_nvml_json(), "metal", "unavailable",
                  "this build has no Metal: its counters can only be asked on a Mac",
                  "counter_sets"));
}
