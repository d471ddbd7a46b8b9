/* fuzz_evidence.c - every judge on any document, and the host parsers on any text. The first byte
 * chooses; the rest is the input. A judge may refuse whatever it likes, but it must survive, and a
 * report that promotes must have checked something. */
#include "evidence/analyzers.h"
#include "evidence/gate_folder.h"
#include "evidence/server_gate.h"
#include "evidence/speed_gate.h"
#include "evidence/stream_sample.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 10 };

static void judge_all(int which, const ev_doc in[SLOTS])
{
    const ev_bench_options o = {which & 1, which & 2};
    const ev_host_policy p = EV_HOST_POLICY_DEFAULT;
    ev_judge j;
    if (!ev_judge_init(&j, "fuzz/1")) return;
    switch (which % 11) {
    case 0:
        ev_judge_benchmarks(&j, &in[0], &in[1], &o);
        break;
    case 1:
        ev_judge_kernel_benchmarks(&j, &in[0], &in[1]);
        break;
    case 2:
        if (ev_judge_decode_abba(&j, in, NULL) != GEM_OK) abort();
        break;
    case 3:
        ev_judge_attention_traffic(&j, &in[0]);
        break;
    case 4:
        ev_judge_prefill_stages(&j, &in[0], EV_31B_LAYERS, EV_31B_FULL);
        break;
    case 5:
        ev_judge_decode_residual(&j, &in[0], &in[0]);
        break;
    case 6:
        ev_judge_split_kv_ceiling(&j, in);
        break;
    case 7:
        ev_judge_split_kv_resources(&j, &in[0]);
        break;
    case 8:
        ev_judge_split_kv_correctness(&j, in);
        break;
    case 9:
        ev_judge_online_merge(&j, in);
        break;
    default:
        ev_judge_host(&j, in[0].root, &p);
    }
    ev_judge_finish(&j, "yes");
    gem_bytes b = {0};
    gem_json_write(&b, j.root);
    if (!j.n_checks) abort();
    gem_bytes_free(&b);
    ev_judge_free(&j);
}

static void parse_host(const char *text)
{
    double load[3], a, b;
    bool warning;
    ev_parse_loadavg(text, load);
    ev_parse_stat(text, &a, &b);
    ev_parse_top(text, &a);
    ev_parse_batt(text);
    ev_parse_therm(text, &warning);
    ev_parse_supplies(text);
    for (int macos = 0; macos < 2; macos++) {
        ev_host_recording r = {.macos = macos};
        gem_json_doc *d = gem_json_new();
        if (!d) return;
        for (size_t i = 0; i < EV_HOST_TEXTS; i++)
            r.text[i] = strdup(text);
        ev_host_put(&r, d, gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT));
        gem_json_free(d);
        ev_host_recording_free(&r);
    }
}

/* Streams and logs as a client and a server leave them. */
static void parse_stream(const char *text, size_t len)
{
    ev_stream s;
    ev_stream_log l;
    gem_bytes answer = {0}, messages = {0};
    ev_stream_read(&s, text, len);
    ev_stream_log_read(&l, text, *s.request ? s.request : "req-1");
    if (ev_stream_log_steps(text, "req-1", 4096) && l.complete > len) abort();
    if (!ev_stream_answer(&answer, text, len) || answer.len > len) abort(); /* JSON only shrinks */
    if (!ev_messages(&messages, text, len, text, len, "Go on.")) abort();
    gem_bytes_free(&answer);
    gem_bytes_free(&messages);
}

/* Any document as a configuration, a snapshot of a host, and what a run is resumed by. */
static void judge_gate(const ev_doc in[SLOTS])
{
    ev_judge j;
    ev_host_policy p;
    const ev_gate g = {&j, "/nonexistent"};
    if (!ev_judge_init(&j, "fuzz/1")) return;
    ev_gate_policy(&g, in[0].root, &p);
    ev_gate_snapshot(&g, in[0].root, &p, EV_HOST_ALL);
    ev_gate_kv_bytes(&g, &in[0]);
    ev_judge_server_resume(&j, in);
    ev_judge_server_gate(&j, g.dir);
    if (!j.n_failed) abort(); /* there is no such folder */
    ev_judge_free(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    if (data[0] == 's') {
        char *text = strndup((const char *)data + 1, size - 1);
        if (text) parse_stream(text, strlen(text));
        free(text);
        return 0;
    }
    if (data[0] == 'h') {
        char *text = strndup((const char *)data + 1, size - 1);
        if (text) parse_host(text);
        free(text);
        return 0;
    }
    gem_json_error e;
    gem_json_doc *doc = gem_json_read((const char *)data + 1, size - 1, 64, &e);
    if (doc && gem_json_root(doc)) {
        ev_doc in[SLOTS];
        for (size_t i = 0; i < SLOTS; i++)
            in[i] = (ev_doc){.path = (char *)"a.json",
                             .name = "a.json",
                             .json = doc,
                             .root = gem_json_root(doc)};
        if (data[0] == 'g')
            judge_gate(in);
        else
            judge_all(data[0], in);
    }
    gem_json_free(doc);
    return 0;
}
