/* gem_host_state.c - `gem-host-state`: one JSON snapshot of how busy, hot and powered this machine
 * is, with the policy it was judged by. */
#include "base/base.h"
#include "cmd/cli/cli.h"
#include "cmd/host_state/collect.h"
#include "fak/axes.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>

static struct {
    float max_load, max_busy;
    int32_t interval_ms, streak;
    int platform;
    bool platform_seen, allow_battery, any_governor, at_work, check, compact, no_gpu;
    const char *recorded, *record;
} opt = {.max_load = 1.0f, .max_busy = 10.0f, .interval_ms = 1000, .streak = -1};

static const cli_option options[] = {
    {"check", 0, CLI_FLAG, NULL, &opt.check, 0, 0, "exit 1 when the policy is broken", NULL},
    {"max-load-per-cpu", 0, CLI_FLOAT, "X", &opt.max_load, 0, 1000,
     "one-minute load a logical CPU; default 1.0", NULL},
    {"max-busy-percent", 0, CLI_FLOAT, "X", &opt.max_busy, 0, 100,
     "busy share of all CPUs in the window; default 10", NULL},
    {"allow-battery", 0, CLI_FLAG, NULL, &opt.allow_battery, 0, 0,
     "running on battery is no violation", NULL},
    {"any-governor", 0, CLI_FLAG, NULL, &opt.any_governor, 0, 0,
     "powersave and conservative governors are no violation", NULL},
    {"at-work", 0, CLI_FLAG, NULL, &opt.at_work, 0, 0,
     "the measured work is running: its own busy share and GPU processes are no violation", NULL},
    {"interval-ms", 0, CLI_INT, "N", &opt.interval_ms, 10, 60000,
     "window of the busy share; default 1000", NULL},
    {"streak", 0, CLI_INT, "N", &opt.streak, 0, INT32_MAX,
     "clean snapshots in a row before this one; recorded", NULL},
    {"compact", 0, CLI_FLAG, NULL, &opt.compact, 0, 0, "one line, for NDJSON", NULL},
    {"no-gpu", 0, CLI_FLAG, NULL, &opt.no_gpu, 0, 0, "do not ask NVML", NULL},
    {"record", 0, CLI_TEXT, "DIR", &opt.record, 0, 0, "keep what the system's tools said in DIR",
     NULL},
    {"recorded", 0, CLI_TEXT, "DIR", &opt.recorded, 0, 0, "read such a recording instead of asking",
     NULL},
    {"platform", 0, CLI_CHOICE, "linux|macos", &opt.platform, 0, 0,
     "of the recording; default: of this machine", &opt.platform_seen},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-host-state",
    .args = "",
    .summary = "snapshot of load, power, heat and other work on this machine",
    .text = "Load and busy share are of the whole machine. A host is clean when none of its checks "
            "fails.\n"
            "Exit codes: 0 done (with --check: clean), 1 not clean, 2 usage, 3 cannot be read.\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

static void put_gpus(gem_json_doc *d, gem_json *o)
{
    const char *reason;
    fak_window nobody;
    fak_probe probe;
    fak_gpus *g = opt.no_gpu || opt.recorded ? NULL : fak_gpus_open(&reason);
    if (opt.no_gpu || opt.recorded) reason = "not asked";
    gem_json *list = gem_json_put(d, o, "gpus", GEM_JSON_ARRAY);
    if (g) {
        fak_probe_system(&probe);
        fak_window_init(&nobody, &probe); /* every process on a device is another's */
        fak_gpus_sample(g, &nobody);
        fak_gpus_put(g, d, list);
        fak_window_free(&nobody);
        fak_gpus_close(g);
    } else {
        gem_json_put_string(d, o, "gpus_unavailable", reason);
    }
}

static void put_time(gem_json_doc *d, gem_json *o)
{
    char text[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    gem_json_put_string(d, o, "time", text);
}

static double decimal(float x)
{
    char text[32];
    snprintf(text, sizeof(text), "%.7g", (double)x);
    return strtod(text, NULL);
}

/* Write the snapshot; returns the exit code. */
static int report(const ev_host_recording *r)
{
    ev_judge j;
    const ev_host_policy p = {decimal(opt.max_load), decimal(opt.max_busy), opt.allow_battery,
                              opt.any_governor, opt.at_work};
    if (!ev_judge_init(&j, "gem-host-state/1")) return CLI_CANNOT;
    put_time(j.json, j.root);
    ev_host_put(r, j.json, j.root);
    put_gpus(j.json, j.root);
    gem_json *policy = gem_json_put(j.json, j.root, "policy", GEM_JSON_OBJECT);
    gem_json_put_number(j.json, policy, "max_load_per_cpu", p.max_load_per_cpu);
    gem_json_put_number(j.json, policy, "max_busy_percent", p.max_busy_percent);
    gem_json_put_bool(j.json, policy, "allow_battery", p.allow_battery);
    gem_json_put_bool(j.json, policy, "any_governor", p.any_governor);
    gem_json_put_bool(j.json, policy, "at_work", p.at_work);
    gem_json_put_number(j.json, policy, "interval_ms", opt.interval_ms);
    ev_judge_host(&j, j.root, &p);
    bool clean = ev_holds(&j);
    gem_json_put_bool(j.json, j.root, "clean", clean);
    if (opt.streak >= 0)
        gem_json_put_int(j.json, j.root, "clean_streak", clean ? opt.streak + 1 : 0);
    ev_judge_finish(&j, "clean");
    gem_bytes b = {0};
    if (opt.compact) {
        gem_json_write_canonical(&b, j.root, NULL);
        gem_bytes_put(&b, "\n", 1);
    } else {
        gem_json_write(&b, j.root);
    }
    int code = CLI_FAULT;
    if (!b.failed && !gem_json_failed(j.json)) {
        fwrite(b.data, 1, b.len, stdout);
        code = cli_flush(&command);
    }
    if (code == CLI_DONE && opt.check && !clean) {
        if (j.refusals.data) fputs(j.refusals.data, stderr);
        code = CLI_FALSE;
    }
    gem_bytes_free(&b);
    ev_judge_free(&j);
    return code;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    struct utsname u;
    gem_error err;
    gem_status st = GEM_OK;
    ev_host_recording r = {0};
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    bool darwin = uname(&u) == 0 && strcmp(u.sysname, "Darwin") == 0;
    if (opt.recorded) {
        r.macos = opt.platform_seen ? opt.platform == 1 : darwin;
        st = host_collect_folder(&r, opt.recorded, &err);
    } else if (opt.platform_seen) {
        return cli_usage(&command, "--platform goes with --recorded");
    } else if (darwin) {
        host_collect_macos(&r);
    } else {
        host_collect_linux(&r, opt.interval_ms);
    }
    if (st == GEM_OK && opt.record) st = host_save_folder(&r, opt.record, &err);
    code = st == GEM_OK ? report(&r) : cli_fail(&command, &err);
    ev_host_recording_free(&r);
    return code;
}
