/* soak_cuda.c - prefill, decode, batches, going back, forks, images and cancelled prompts, mixed
 * for as long as is asked, on any backend. There is a fixed set of scenarios, each a pure function
 * of its number; they come round in another order every time, and the bits of their logits must be
 * those of the first time, whatever ran before. Between two scenarios nothing may be left behind
 * but a bystander, a session whose next logits must not change either; from the second round on
 * memory must not grow. Its digest of all scenarios is that of every run of the same model and
 * options, so that a long soak may be made of pieces. One JSON line a minute and one at the end.
 * exit codes  0 fine, 1 a failure (or nothing came round again), 2 usage, 3 cannot run here */
#include "cmd/cli/cli.h"
#include "memory.h"
#include "soak.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    BYSTANDER = 127 /* its positions; a fork of it writes into a shared page */
};
/* Memory may grow by less than the least leak that matters and more than allocators' own noise: the
 * driver hands out 2 MiB pieces. */
static const int64_t device_slack = 4 << 20, host_slack = 8 << 20;

static struct {
    cli_model_flags model;
    uint64_t seed;
    int32_t watch_s;
} opt;

static const cli_option options[] = {
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1024, INT32_MAX,
     "positions a session may hold; default 4096", NULL},
    {"seed", 's', CLI_U64, "N", &opt.seed, 0, 0, "of the order of scenarios; default 0", NULL},
    {"watch", 'w', CLI_INT, "SECONDS", &opt.watch_s, 1, 3600,
     "a scenario that takes longer hangs; default 60", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "soak_cuda",
    .args = "MODEL SECONDS",
    .summary = "mix all that sessions can do, and look for leaks, hangs and changed bits",
    .min_args = 2,
    .max_args = 2,
    .option = options,
};

/* ---- what may go wrong ---- */

static char watch_text[128];
static volatile sig_atomic_t watch_left; /* ticks until it hangs; 0: not watched */

/* Once a second: time in which the process is stopped does not count. */
static void on_tick(int sig)
{
    (void)sig;
    if (watch_left == 0 || --watch_left > 0) return;
    ssize_t n = write(STDERR_FILENO, watch_text, strlen(watch_text));
    (void)n;
    _exit(CLI_FALSE);
}

static void watch(const char *what, int i)
{
    watch_left = 0;
    snprintf(watch_text, sizeof(watch_text), "soak_cuda: %s %d hangs: not done after %d s\n", what,
             i, opt.watch_s);
    watch_left = opt.watch_s;
}

/* ---- between scenarios ---- */

static void held(const soak *k, int32_t *pages, int32_t *states)
{
    *pages = 0;
    for (int i = 0; i < k->m->layout.n_pools; i++)
        *pages += gem_kv_used(k->m->kv, i);
    *states = k->m->states ? gem_state_used(k->m->states) : 0;
}

/* The bystander's next logits, by a fork of it. */
static bool look_at_bystander(soak *k, uint64_t *bits)
{
    const float *x;
    int32_t best;
    bool ok = soak_done(k, gem_session_fork(&k->s[0], k->bystander, &k->err)) &&
              soak_done(k, gem_session_decode(k->s[0], BYSTANDER, &x, &k->err));
    if (ok) *bits = soak_digest(k->m, x, &best);
    gem_session_free(k->s[0]);
    k->s[0] = NULL;
    return ok;
}

static bool open_bystander(soak *k)
{
    const float *x;
    k->random = 77;
    if (!soak_done(k, gem_session_new(&k->bystander, k->m, &k->err)) ||
        !soak_done(k, gem_session_prefill(k->bystander, soak_prompt(k, BYSTANDER), BYSTANDER, NULL,
                                          NULL, &x, &k->err)))
        return false;
    held(k, &k->held_pages, &k->held_states);
    return look_at_bystander(k, &k->bystander_bits);
}

/* Further growth is another failure. */
static void check_growth(soak *k, const char *whose, int64_t bytes, int64_t slack, int64_t *most)
{
    if (bytes <= *most) return;
    soak_failed(k, "the %s's memory grew to %lld bytes; %lld were allowed", whose, (long long)bytes,
                (long long)*most);
    *most = bytes + slack;
}

static void check_left(soak *k)
{
    int32_t pages, states;
    uint64_t bits;
    held(k, &pages, &states);
    if (pages != k->held_pages || states != k->held_states || k->m->n_open != 1)
        k->fatal = true,
        soak_failed(k, "left behind: %d pages, %d states, %d sessions", pages - k->held_pages,
                    states - k->held_states, k->m->n_open - 1);
    else if (look_at_bystander(k, &bits) && bits != k->bystander_bits)
        soak_failed(k, "the bystander's bits changed: digest %016llx, at first %016llx",
                    (unsigned long long)bits, (unsigned long long)k->bystander_bits);
    if (k->rounds == 0 || k->fatal) return;
    check_growth(k, "device", device_bytes(k->backend), device_slack, &k->device_most);
    check_growth(k, "host", host_bytes(), host_slack, &k->host_most);
}

static void scenario(soak *k, int i)
{
    watch("scenario", i);
    soak_scenario(k, i);
    for (int j = 0; j < COMPANY; j++) {
        gem_session_free(k->s[j]);
        k->s[j] = NULL;
    }
    gem_checkpoint_free(k->c);
    k->c = NULL;
    k->scenarios++;
    if (!k->fatal) check_left(k);
    watch_left = 0;
}

static void report(soak *k, const char *event)
{
    uint64_t now = gem_now_ns(), digest = 0;
    const unsigned long long count[] = {k->rounds,    k->scenarios, k->prefilled, k->decoded,
                                        k->rollbacks, k->cancels,   k->forks,     k->images,
                                        k->unchanged, k->failures};
    static const char *const name[] = {"rounds",    "scenarios", "prefilled", "decoded",
                                       "rollbacks", "cancels",   "forks",     "images",
                                       "unchanged", "failures"};
    for (int i = 0; i < SCENARIOS; i++)
        for (size_t t = 0; t < k->past[i].n; t++)
            digest = (digest ^ k->past[i].step[t]) * 0x9E3779B97F4A7C15u;
    printf("{\"event\": \"%s\"", event);
    for (size_t i = 0; i < ARRAY_LEN(count); i++)
        printf(", \"%s\": %llu", name[i], count[i]);
    if (k->rounds > 0) printf(", \"digest\": \"%016llx\"", (unsigned long long)digest);
    printf(", \"device_bytes\": {\"opened\": %lld, \"first_round\": %lld, \"now\": %lld}",
           (long long)k->device_opened, (long long)k->device_first,
           (long long)device_bytes(k->backend));
    printf(", \"host_bytes\": {\"opened\": %lld, \"first_round\": %lld, \"now\": %lld}",
           (long long)k->host_opened, (long long)k->host_first, (long long)host_bytes());
    printf(", \"seconds\": %.1f}\n", (double)(now - k->start_ns) * 1e-9);
    fflush(stdout);
    k->report_ns = now;
}

static void run(soak *k, uint64_t seconds)
{
    int order[SCENARIOS];
    uint64_t random = opt.seed;
    for (int i = 0; i < SCENARIOS; i++)
        order[i] = i;
    while (!k->fatal) {
        for (int i = SCENARIOS - 1; i > 0; i--) {
            int j = (int)(gem_splitmix64(&random) % (uint64_t)(i + 1)), t = order[i];
            order[i] = order[j], order[j] = t;
        }
        for (int i = 0; i < SCENARIOS && !k->fatal; i++) {
            if (gem_now_ns() - k->start_ns >= seconds * 1000000000u) return;
            scenario(k, order[i]);
            if (gem_now_ns() - k->report_ns >= 60000000000u) report(k, "minute");
        }
        if (k->fatal || k->rounds++ > 0) continue;
        k->device_first = device_bytes(k->backend);
        k->host_first = host_bytes();
        k->device_most = k->device_first + device_slack;
        k->host_most = k->host_first + host_slack;
    }
}

int main(int argc, char **argv)
{
    soak k = {.start_ns = gem_now_ns()};
    gem_model_options o;
    char path[4096], **args, *end;
    int n_args, code;
    opt.model.ctx = 4096;
    opt.watch_s = 60;
    if ((code = cli_parse(&command, argc, argv, &args, &n_args)) >= 0) return code;
    uint64_t seconds = strtoull(args[1], &end, 10);
    if (*end || seconds == 0) return cli_usage(&command, "%s is no number of seconds", args[1]);
    cli_model_options(&o, &opt.model);
    o.n_sessions = COMPANY + 2; /* the bystander, and one in reserve */
    o.progress = NULL;
    k.backend = o.backend;
    signal(SIGALRM, on_tick);
    setitimer(ITIMER_REAL, &(struct itimerval){{1, 0}, {1, 0}}, NULL);
    device_bytes(k.backend);
    gem_status st = cli_model_path(args[0], path, sizeof(path), &k.err);
    if (st == GEM_OK) st = gem_model_open(&k.m, path, &o, &k.err);
    if (st == GEM_OK && !(k.prompt = malloc((size_t)k.m->n_ctx * sizeof(*k.prompt))))
        st = gem_fail(&k.err, GEM_E_NOMEM, "no memory for %d tokens", k.m->n_ctx);
    if (st != GEM_OK) {
        gem_model_close(k.m);
        return cli_fail(&command, &k.err);
    }
    k.start_ns = k.report_ns = gem_now_ns();
    k.device_opened = device_bytes(k.backend);
    k.host_opened = host_bytes();
    if (open_bystander(&k)) run(&k, seconds);
    if (k.unchanged == 0 && k.failures == 0) {
        fprintf(stderr, "soak_cuda: no scenario came round again in %s s\n", args[1]);
        k.failures++;
    }
    watch("closing after scenario", k.now);
    gem_session_free(k.bystander);
    report(&k, "end");
    gem_model_close(k.m);
    watch_left = 0;
    for (int i = 0; i < SCENARIOS; i++)
        free(k.past[i].step);
    free(k.prompt);
    return k.failures ? CLI_FALSE : CLI_DONE;
}
