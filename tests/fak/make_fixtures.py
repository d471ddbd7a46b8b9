#!/usr/bin/env python3
"""Write tests/fak/fixtures: every document of the evidence rules, each rejection made by one small edit.

The files are committed; run this only to change them. Nothing here was measured: all numbers are made
up, which is what "synthetic" in the names and in FIXTURES.json says. Digests are computed here with
Python's json module, apart from the C code that they test."""
import copy
import hashlib
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "fixtures")
GRAPH = json.load(open(os.path.join(HERE, "../../data/native-performance/graph.json")))
TABLE = []


def jcs(v):
    # ASCII member names and short decimals only, where Python's form and RFC 8785 agree
    return json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seal(a):
    a["digest"] = ""
    a["digest"] = "sha256:" + hashlib.sha256(jcs(a).encode()).hexdigest()
    return a


def write(name, doc):
    path = os.path.join(ROOT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = doc if isinstance(doc, str) else json.dumps(doc, indent=2, ensure_ascii=False) + "\n"
    with open(path, "w", newline="\n") as f:
        f.write(text)


def entry(kind, file, args, exit_, codes=(), golden=None):
    e = {"file": file, "kind": kind, "synthetic": True, "args": args, "exit": exit_, "codes": [list(c) for c in codes]}
    if golden:
        e["golden"] = golden
    TABLE.append(e)


def put(doc, path, value):
    """Set the member at a /-separated path; DELETE removes it."""
    keys = path.split("/")[1:]
    at = doc
    for k in keys[:-1]:
        at = at[int(k)] if isinstance(at, list) else at[k]
    k = int(keys[-1]) if isinstance(at, list) else keys[-1]
    if value is DELETE:
        del at[k]
    else:
        at[k] = value
    return doc


DELETE = object()


def edited(doc, *edits):
    d = copy.deepcopy(doc)
    for path, value in edits:
        put(d, path, value)
    return d


def reject(kind, name, doc, codes, args=None):
    write(name, doc)
    entry(kind, name, args or ["--validate", name], 1, codes)


# ---- attestations ----------------------------------------------------------------------------------
def metric(value, unit, source):
    return {"available": True, "value": value, "unit": unit, "source": source}


def absent(unit, reason):
    return {"available": False, "unit": unit, "reason": reason}


def window(start, end, ns, samples):
    return {"started_at_utc": start, "ended_at_utc": end, "duration_ns": ns, "sample_interval_ns": 250000000, "samples": samples}


def host(cpu, available, processes):
    return {"cpu_percent": metric(cpu, "percent", "proc-stat"),
            "memory_total_bytes": metric(8589934592, "bytes", "proc-meminfo"),
            "memory_available_bytes": metric(available, "bytes", "proc-meminfo"),
            "process_count": metric(processes, "processes", "proc-census")}


def sampler(n, wall, duty):
    return {"counted_samples": n, "wall_ns": wall, "duty_percent": metric(duty, "percent", "census-wall")}


def attestation(minute=4):
    t = "2026-01-02T03:%02d:" % minute
    return seal({
        "schema": "fak.system-baseline/v1", "verdict": "clean",
        "baseline_window": window(t + "05Z", t + "06Z", 1000000000, 5),
        "command_window": window(t + "06Z", t + "08Z", 2000000000, 9),
        "baseline_host_totals": host(2.5, 4294967296, 40), "host_totals": host(40.5, 4026531840, 41),
        "baseline_sampler": sampler(4, 20000000, 2), "command_sampler": sampler(8, 50000000, 2.5),
        "coverage": {"process_snapshots": 9, "processes_observed": 369, "process_reads": 369, "process_unreadable": 0,
                     "host_cpu_samples": 9, "host_memory_samples": 9, "sut_root_pid": 4242,
                     "descendant_attribution": "sampled_pid_ppid_tree"},
        "attribution": {"sut_cpu_percent_of_host": metric(37.5, "percent", "pid-tree"),
                        "non_sut_cpu_percent_of_host": metric(3, "percent", "host-minus-sut"),
                        "sut_rss_bytes": metric(104857600, "bytes", "pid-tree-peak"),
                        "non_sut_rss_bytes": absent("bytes", "memory attribution incomplete")},
        "top_non_sut_consumers": [],
        "policy": {"minimum_baseline_samples": 2, "minimum_samples": 2, "maximum_non_sut_cpu_percent": 20,
                   "maximum_sampler_duty_percent": 10, "require_host_cpu": True, "require_sut_cpu": True,
                   "require_process_memory": False, "include_top_consumers": False},
        "findings": [], "command_exit_code": 0, "timed_out": False, "digest": ""})


UPSTREAM_ORDER = ["schema", "verdict", "baseline_window", "baseline_host_totals", "baseline_sampler", "command_window", "command_sampler",
                  "coverage", "host_totals", "attribution", "top_non_sut_consumers", "policy", "findings", "command_exit_code", "timed_out", "digest"]


def upstream_sealed(a):
    """The older hashing: compact JSON in declaration order with HTML-safe escapes."""
    a = {k: a[k] for k in UPSTREAM_ORDER}
    a["digest"] = ""
    text = json.dumps(a, separators=(",", ":"), ensure_ascii=False)
    for c in "<>&\u2028\u2029":
        text = text.replace(c, "\\u%04x" % ord(c))
    a["digest"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return a


def finding(*codes):
    return [{"code": c, "detail": "synthetic"} for c in codes]


CLEAN = attestation()
CONSUMER = {"image": "compiler", "pid": 77, "cpu_seconds": 0.5, "rss_bytes": 1048576, "cpu_available": True, "rss_available": True}
GONE = absent("percent", "process attribution incomplete")


def resealed(*edits):
    return seal(edited(CLEAN, *edits))


def judged(verdict, codes, *edits):
    return resealed(("/verdict", verdict), ("/findings", finding(*codes)), *edits)


def attestations():
    write("baseline/synthetic-clean.json", CLEAN)
    entry("baseline", "baseline/synthetic-clean.json", ["--validate", "baseline/synthetic-clean.json"], 0)
    good = {
        "investigate-host-unknown": judged("investigate", ["HOST_CPU_UNKNOWN", "SUT_CPU_UNKNOWN"],
            ("/host_totals/cpu_percent", GONE), ("/attribution/sut_cpu_percent_of_host", GONE),
            ("/attribution/non_sut_cpu_percent_of_host", GONE)),
        "investigate-baseline-unknown": judged("investigate", ["BASELINE_HOST_CPU_UNKNOWN"],
            ("/baseline_host_totals/cpu_percent", GONE)),
        "investigate-sut-unknown": judged("investigate", ["SUT_CPU_UNKNOWN"],
            ("/attribution/sut_cpu_percent_of_host", GONE), ("/attribution/non_sut_cpu_percent_of_host", GONE)),
        "investigate-memory-unknown": judged("investigate", ["PROCESS_MEMORY_UNKNOWN"], ("/policy/require_process_memory", True)),
        "investigate-duty-unknown": judged("investigate", ["SAMPLER_DUTY_UNKNOWN"],
            ("/command_sampler", {"counted_samples": 8, "wall_ns": 0, "duty_percent": absent("percent", "negative census time")})),
        "investigate-duty-high": judged("investigate", ["BASELINE_SAMPLER_DUTY_HIGH", "COMMAND_SAMPLER_DUTY_HIGH"],
            ("/baseline_sampler", sampler(4, 200000000, 20)), ("/command_sampler", sampler(8, 500000000, 25))),
        "investigate-busy": judged("investigate", ["BASELINE_HOST_CPU_HIGH", "NON_SUT_CPU_HIGH"],
            ("/baseline_host_totals/cpu_percent/value", 25), ("/attribution/sut_cpu_percent_of_host/value", 20),
            ("/attribution/non_sut_cpu_percent_of_host/value", 20.5)),
        "invalid-no-samples": judged("invalid", ["NO_SAMPLES"], ("/command_window/samples", 0), ("/command_sampler/counted_samples", 0)),
        "invalid-windows": judged("invalid", ["INVALID_BASELINE_WINDOW", "INVALID_WINDOW"], ("/baseline_window/samples", 1),
            ("/baseline_sampler/counted_samples", 0), ("/command_window/samples", 1), ("/command_sampler/counted_samples", 0)),
        "invalid-failed": judged("invalid", ["COMMAND_FAILED"], ("/command_exit_code", 3)),
        "invalid-timeout": judged("invalid", ["COMMAND_FAILED", "COMMAND_TIMEOUT"], ("/command_exit_code", 124), ("/timed_out", True)),
        "clean-top-consumers": resealed(("/policy/include_top_consumers", True), ("/top_non_sut_consumers", [CONSUMER])),
        "clean-equal-threshold": resealed(("/policy/maximum_non_sut_cpu_percent", 3), ("/policy/maximum_sampler_duty_percent", 2.5)),
    }
    for name, doc in good.items():
        write("baseline/synthetic-%s.json" % name, doc)
        entry("baseline", "baseline/synthetic-%s.json" % name, ["--validate", "baseline/synthetic-%s.json" % name], 0)
    odd = edited(CLEAN, ("/attribution/non_sut_rss_bytes/reason", "memory <attribution> & census \u2028 incomplete"))
    write("baseline/synthetic-upstream-hashing.json", upstream_sealed(odd))
    entry("baseline", "baseline/synthetic-upstream-hashing.json", ["--validate", "baseline/synthetic-upstream-hashing.json"], 0)
    reject("baseline", "baseline/reject-SBV-003-upstream-edited.json",
           dict(upstream_sealed(odd), timed_out=True, verdict="invalid", findings=finding("COMMAND_TIMEOUT")), [("SBV-003", "/digest")])
    five = [dict(CONSUMER, pid=i + 1) for i in range(6)]
    optin = ("/policy/include_top_consumers", True)
    bad = [
        ("001-schema", resealed(("/schema", "fak.system-baseline/v9")), None),
        ("002-verdict", resealed(("/verdict", "fine")), [("SBV-002", "/verdict")]),
        ("003-digest", edited(CLEAN, ("/command_window/ended_at_utc", "2026-01-02T03:04:09Z")), [("SBV-003", "/digest")]),
        ("004-negative", resealed(("/coverage/process_unreadable", -1)), [("SBV-004", "/coverage/process_unreadable")]),
        ("005-counted", resealed(("/command_sampler/counted_samples", 9)), [("SBV-005", "/command_sampler/counted_samples")]),
        ("005-duty", resealed(("/command_sampler/wall_ns", 50000001)), [("SBV-005", "/command_sampler/duty_percent")]),
        ("006-value", resealed(("/attribution/sut_rss_bytes/value", DELETE)), [("SBV-006", "/attribution/sut_rss_bytes/value")]),
        ("006-reason", resealed(("/attribution/sut_rss_bytes/reason", "x")), [("SBV-006", "/attribution/sut_rss_bytes/reason")]),
        ("006-unit", resealed(("/host_totals/process_count/unit", "bytes")), [("SBV-006", "/host_totals/process_count/unit")]),
        ("006-negative", resealed(("/attribution/sut_rss_bytes/value", -1)), [("SBV-006", "/attribution/sut_rss_bytes/value")]),
        ("006-hidden", resealed(("/attribution/non_sut_rss_bytes/value", 1)), [("SBV-006", "/attribution/non_sut_rss_bytes/value")]),
        ("007-verdict", resealed(("/command_exit_code", 1), ("/findings", finding("COMMAND_FAILED"))), [("SBV-007", "/verdict")]),
        ("007-loosened", resealed(("/policy/maximum_non_sut_cpu_percent", 2), ("/findings", finding("BASELINE_HOST_CPU_HIGH", "NON_SUT_CPU_HIGH"))), [("SBV-007", "/verdict")]),
        ("008-findings", resealed(("/findings", finding("COMMAND_FAILED"))), [("SBV-008", "/findings")]),
        ("009-consumers", resealed(("/top_non_sut_consumers", [CONSUMER])), [("SBV-009", "/top_non_sut_consumers")]),
        ("010-six", resealed(optin, ("/top_non_sut_consumers", five)), [("SBV-010", "/top_non_sut_consumers")]),
        ("011-image", resealed(optin, ("/top_non_sut_consumers", [dict(CONSUMER, image="usr/bin/cc")])), [("SBV-011", "/top_non_sut_consumers/0/image")]),
        ("011-pid", resealed(optin, ("/top_non_sut_consumers", [dict(CONSUMER, pid=0)])), [("SBV-011", "/top_non_sut_consumers/0/pid")]),
        ("011-cpu", resealed(optin, ("/top_non_sut_consumers", [dict(CONSUMER, cpu_seconds=-1)])), [("SBV-011", "/top_non_sut_consumers/0/cpu_seconds")]),
        ("012-malformed", resealed(("/baseline_window/started_at_utc", "2026-02-30T03:04:05Z")), [("SBV-012", "/baseline_window/started_at_utc")]),
        ("012-reversed", resealed(("/command_window/ended_at_utc", "2026-01-02T03:04:05.999999999Z")), [("SBV-012", "/command_window/ended_at_utc")]),
        ("013-percent", resealed(("/baseline_host_totals/cpu_percent/value", 101), ("/verdict", "investigate"), ("/findings", finding("BASELINE_HOST_CPU_HIGH"))), [("SBV-013", "/baseline_host_totals/cpu_percent/value")]),
        ("013-sum", resealed(("/attribution/sut_cpu_percent_of_host/value", 37.6)), [("SBV-013", "/attribution")]),
        ("014-constant", resealed(("/policy/minimum_samples", 3)), [("SBV-014", "/policy/minimum_samples")]),
        ("014-range", resealed(("/policy/maximum_non_sut_cpu_percent", 100.5)), [("SBV-014", "/policy/maximum_non_sut_cpu_percent")]),
        ("014-required", resealed(("/policy/require_sut_cpu", False)), [("SBV-014", "/policy/require_sut_cpu")]),
        ("015-coverage", resealed(("/coverage/descendant_attribution", "complete")), [("SBV-015", "/coverage/descendant_attribution")]),
    ]
    for name, doc, codes in bad:
        file = "baseline/reject-SBV-%s.json" % name
        if codes is None:  # --validate chooses the document by its schema: an unknown one is refused there
            write(file, doc)
            entry("baseline", file, ["--attach-receipt", "receipt/synthetic-metal-baseline.json", "--system-baseline", file], 1,
                  [("SBV-001", "attestation#/schema")])
        else:
            reject("baseline", file, doc, codes)


# ---- receipts --------------------------------------------------------------------------------------
UNCHANGED = ["artifact_sha256", "machine", "prompt_tokens", "decode_tokens", "batch", "context_tokens", "temperature",
             "sampling", "cache_state", "warmups", "repetitions", "execution_identity"]


def receipt(backend, role, rates, schema=2):
    metal = backend == "metal"
    e = GRAPH["envelopes"][0 if metal else 1]
    lever = "metal.command-buffer-amortization" if metal else "cuda.q8_1-activation-quant"
    r = {"schema": "fak-native-performance-receipt/v%d" % schema, "role": role, "envelope_id": e["id"], "changed_lever_id": lever,
         "revision": "1f0c2d3" if role == "baseline" else "8a9be47",
         "artifact_sha256": e["artifact_sha256"] if metal else "5a" * 32}
    if not metal:
        r["resolved_identity"] = {"model_repository": "synthetic/model", "model_revision": "synthetic-1", "device_memory_gib": 80}
    r.update({
        "machine": {"scrubbed_id": "synthetic-machine-1", "platform": "darwin/arm64" if metal else "linux/amd64+nvidia-a100", "backend": backend},
        "controls": {"prompt_tokens": e["prompt_tokens"], "decode_tokens": 64, "batch": 1, "context_tokens": e["prompt_tokens"] + 64,
                     "temperature": 0, "sampling": "greedy", "cache_state": "cold", "warmups": 1, "repetitions": 3},
        "unchanged_controls": list(UNCHANGED), "changed_axes": [] if role == "baseline" else ["lever:" + lever],
        "repetitions": [{"end_to_end_milliseconds": 20000 + 10 * i, "tokens_per_second": x, "ttft_milliseconds": 900,
                         "prefill_milliseconds": 850, "decode_milliseconds": 19000} for i, x in enumerate(rates)],
        "memory": {"peak_bytes": 20000000000, "resident_bytes": 18000000000},
        "execution": {"engine": "fak-native", "forward_path": e["forward_path"], "fallback_count": 0},
        "quality": {"name": "synthetic-exact-match", "score": 1, "higher_is_better": True},
        "module_versions": [{"module": "kernels", "revision": "11" if role == "baseline" else "12"}, {"module": "runtime", "revision": "7"}],
        "commands": ["synthetic-bench --prompt-tokens %d --decode-tokens 64" % e["prompt_tokens"]],
        "profiler_artifacts": [{"path": "profiles/synthetic-%s.json" % role, "sha256": "ab" * 32}]})
    return r


def attested(r, atts):
    r = copy.deepcopy(r)
    r["system_baselines"] = copy.deepcopy(atts)
    for rep, a in zip(r["repetitions"], atts):
        rep["system_baseline_digest"] = a["digest"]
    return r


MB = receipt("metal", "baseline", [3, 3.1, 3.2])
MC = receipt("metal", "candidate", [4, 4.1, 4.2])
CB = receipt("cuda", "baseline", [11, 11.1, 11.2])
CC = receipt("cuda", "candidate", [11.05, 11.1, 11.3])
ATT = [attestation(10 + i) for i in range(6)]
MB3 = attested(MB, ATT[:3])
MC3 = attested(MC, ATT[3:])


def receipts():
    good = {"metal-baseline": MB, "metal-candidate": MC, "cuda-baseline": CB, "cuda-candidate": CC,
            "v1-baseline": receipt("metal", "baseline", [3, 3.1, 3.2], 1), "v1-candidate": receipt("metal", "candidate", [4, 4.1, 4.2], 1),
            "attested-baseline": MB3, "attested-candidate": MC3}
    for name, doc in good.items():
        write("receipt/synthetic-%s.json" % name, doc)
        entry("receipt", "receipt/synthetic-%s.json" % name, ["--validate", "receipt/synthetic-%s.json" % name], 0)
    for pair in ("metal", "cuda", "v1", "attested"):
        b, c = "receipt/synthetic-%s-baseline.json" % pair, "receipt/synthetic-%s-candidate.json" % pair
        entry("compare", c, ["--compare", b, "--candidate", c], 0, golden="golden/compare-%s.json" % pair)
    bad = [
        ("002-role", edited(MB, ("/role", "control")), [("NPR-002", "/role")]),
        ("003-lever", edited(MB, ("/changed_lever_id", "metal.unknown")), [("NPR-003", "/changed_lever_id")]),
        ("003-envelope", edited(MB, ("/envelope_id", "unknown")), [("NPR-003", "/envelope_id")]),
        ("003-mixed", edited(MB, ("/changed_lever_id", "cuda.dp4a-q4k-mmvq")), [("NPR-003", "/changed_lever_id")]),
        ("004-placeholder", edited(MB, ("/revision", "FILL_COMMITTED_REVISION")), [("NPR-004", "/revision")]),
        ("004-blank", edited(MB, ("/controls/sampling", " ")), [("NPR-004", "/controls/sampling")]),
        ("005-user", edited(MB, ("/commands/0", "copy user@host")), [("NPR-005", "/commands/0")]),
        ("005-home", edited(MB, ("/commands/0", "bench /home/x")), [("NPR-005", "/commands/0")]),
        ("005-drive", edited(MB, ("/commands/0", "bench C:\\x")), [("NPR-005", "/commands/0")]),
        ("005-tilde", edited(MB, ("/commands/0", "bench --model=~/x")), [("NPR-005", "/commands/0")]),
        ("005-address", edited(MB, ("/commands/0", "bench --url 10.0.0.1:80")), [("NPR-005", "/commands/0")]),
        ("005-parent", edited(MB, ("/profiler_artifacts/0/path", "a/../b")), [("NPR-005", "/profiler_artifacts/0/path")]),
        ("005-host", edited(MB, ("/machine/scrubbed_id", "node7.lan")), [("NPR-005", "/machine/scrubbed_id")]),
        ("005-colon", edited(MB, ("/machine/scrubbed_id", "rack:7")), [("NPR-005", "/machine/scrubbed_id")]),
        ("006-other", edited(MB, ("/artifact_sha256", "ab" * 32)), [("NPR-006", "/artifact_sha256")]),
        ("006-zero", edited(CB, ("/artifact_sha256", "0" * 64)), [("NPR-006", "/artifact_sha256")]),
        ("006-case", edited(CB, ("/artifact_sha256", "5A" * 32)), [("NPR-006", "/artifact_sha256")]),
        ("007-platform", edited(MB, ("/machine/platform", "linux/arm64")), [("NPR-007", "/machine/platform")]),
        ("007-backend", edited(MB, ("/machine/backend", "cpu")), [("NPR-007", "/machine/backend")]),
        ("008-engine", edited(MB, ("/execution/engine", "gem-native")), [("NPR-008", "/execution/engine")]),
        ("009-fallback", edited(MB, ("/execution/fallback_count", 1)), [("NPR-009", "/execution/fallback_count")]),
        ("010-path", edited(MB, ("/execution/forward_path", "metal/other")), [("NPR-010", "/execution/forward_path")]),
        ("011-batch", edited(MB, ("/controls/batch", 0)), [("NPR-011", "/controls/batch")]),
        ("011-context", edited(MB, ("/controls/context_tokens", 95)), [("NPR-011", "/controls/context_tokens")]),
        ("012-prompt", edited(MB, ("/controls/prompt_tokens", 31)), [("NPR-012", "/controls/prompt_tokens")]),
        ("012-temperature", edited(MB, ("/controls/temperature", 0.5)), [("NPR-012", "/controls/temperature")]),
        ("013-missing", edited(MB, ("/repetitions/2", DELETE)), [("NPR-013", "/repetitions")]),
        ("014-zero", edited(MB, ("/repetitions/1/tokens_per_second", 0)), [("NPR-014", "/repetitions/1/tokens_per_second")]),
        ("014-e2e", edited(MB, ("/repetitions/1/end_to_end_milliseconds", 0), ("/repetitions/1/ttft_milliseconds", DELETE),
                           ("/repetitions/1/prefill_milliseconds", DELETE), ("/repetitions/1/decode_milliseconds", DELETE)),
         [("NPR-014", "/repetitions/1/end_to_end_milliseconds")]),
        ("015-ttft", edited(MB, ("/repetitions/0/ttft_milliseconds", 20001)), [("NPR-015", "/repetitions/0/ttft_milliseconds")]),
        ("015-stages", edited(MB, ("/repetitions/0/decode_milliseconds", 19151)), [("NPR-015", "/repetitions/0/prefill_milliseconds")]),
        ("016-zero", edited(MB, ("/memory/peak_bytes", 0), ("/memory/resident_bytes", 0)), [("NPR-016", "/memory/peak_bytes"), ("NPR-016", "/memory/resident_bytes")]),
        ("016-resident", edited(MB, ("/memory/resident_bytes", 20000000001)), [("NPR-016", "/memory/resident_bytes")]),
        ("017-short", edited(MB, ("/unchanged_controls/11", DELETE)), [("NPR-017", "/unchanged_controls")]),
        ("017-repeat", edited(MB, ("/unchanged_controls/11", "batch")), [("NPR-017", "/unchanged_controls")]),
        ("018-two", edited(MC, ("/changed_axes", ["lever:metal.command-buffer-amortization", "lever:metal.paged-kv"])), [("NPR-018", "/changed_axes")]),
        ("018-baseline", edited(MB, ("/changed_axes", ["lever:metal.command-buffer-amortization"])), [("NPR-018", "/changed_axes")]),
        ("019-blank", edited(MB, ("/quality/name", "")), [("NPR-019", "/quality/name")]),
        ("020-none", edited(MB, ("/module_versions", [])), [("NPR-020", "/module_versions")]),
        ("020-twice", edited(MB, ("/module_versions/1/module", "kernels")), [("NPR-020", "/module_versions/1/module")]),
        ("021-none", edited(MB, ("/commands", [])), [("NPR-021", "/commands")]),
        ("022-none", edited(MB, ("/profiler_artifacts", [])), [("NPR-022", "/profiler_artifacts")]),
        ("022-absolute", edited(MB, ("/profiler_artifacts/0/path", "/profiles/x")), [("NPR-005", "/profiler_artifacts/0/path"), ("NPR-022", "/profiler_artifacts/0/path")]),
        ("022-hash", edited(MB, ("/profiler_artifacts/0/sha256", "0" * 64)), [("NPR-022", "/profiler_artifacts/0/sha256")]),
        ("023-v1", edited(MB3, ("/schema", "fak-native-performance-receipt/v1")),
         [("NPR-023", "/system_baselines")] + [("NPR-023", "/repetitions/%d/system_baseline_digest" % i) for i in range(3)]),
        ("024-tampered", edited(MB3, ("/system_baselines/1/host_totals/cpu_percent/value", 40.50000001)), [("NPR-024", "/system_baselines/1")]),
        ("025-consumers", attested(MB, [resealed(("/policy/include_top_consumers", True), ("/top_non_sut_consumers", [CONSUMER]))]), [("NPR-025", "/system_baselines/0/top_non_sut_consumers")]),
        ("026-reuse", attested(MB, [ATT[0], ATT[0]]), [("NPR-026", "/system_baselines/1/digest")]),
        ("027-extra", edited(MB3, ("/system_baselines", ATT[:4])), [("NPR-027", "/system_baselines")]),
        ("028-mismatch", edited(MB3, ("/repetitions/2/system_baseline_digest", ATT[4]["digest"])), [("NPR-028", "/repetitions/2/system_baseline_digest")]),
        ("028-unbound", edited(MB3, ("/repetitions/0/system_baseline_digest", DELETE)), [("NPR-028", "/repetitions/0/system_baseline_digest")]),
        ("029-hole", edited(MB, ("/repetitions/1/system_baseline_digest", ATT[0]["digest"])), [("NPR-029", "/repetitions/1/system_baseline_digest")]),
        ("030-ambient", edited(MB, ("/ambient_evidence", {"load": 1})), [("NPR-030", "/ambient_evidence")]),
        ("031-missing", edited(CB, ("/resolved_identity", DELETE)), [("NPR-031", "/resolved_identity")]),
        ("031-forbidden", edited(MB, ("/resolved_identity", CB["resolved_identity"])), [("NPR-031", "/resolved_identity")]),
    ]
    for name, doc, codes in bad:
        reject("receipt", "receipt/reject-NPR-%s.json" % name, doc, codes)
    name = "receipt/reject-NPR-001-schema.json"  # --validate would answer NPJ-009
    write(name, edited(MB, ("/schema", "fak-native-performance-receipt/v3")))
    entry("receipt", name, ["--compare", name, "--candidate", "receipt/synthetic-metal-candidate.json"], 1, [("NPR-001", "baseline#/schema")])
    entry("receipt", name, ["--validate", name], 1, [("NPJ-009", "/schema")])


def comparisons():
    b = "receipt/synthetic-metal-baseline.json"

    def pair(name, doc, codes, base=b):
        file = "compare/reject-NPC-%s.json" % name
        write(file, doc)
        entry("compare", file, ["--compare", base, "--candidate", file], 1, codes)
    pair("001-roles", dict(copy.deepcopy(MB)), [("NPC-001", "candidate#/role")])
    pair("002-lever", edited(MC, ("/changed_lever_id", "metal.paged-kv"), ("/changed_axes", ["lever:metal.paged-kv"])), [("NPC-002", "candidate#/changed_lever_id")])
    for member, value in [("batch", 2), ("context_tokens", 97), ("sampling", "top-k"), ("cache_state", "warm"), ("warmups", 2)]:
        pair("003-" + member.replace("_", "-"), edited(MC, ("/controls/" + member, value)), [("NPC-003", "candidate#/controls/" + member)])
    pair("003-machine", edited(MC, ("/machine/scrubbed_id", "synthetic-machine-2")), [("NPC-003", "candidate#/machine/scrubbed_id")])
    pair("003-artifact", edited(CC, ("/artifact_sha256", "5b" * 32)), [("NPC-003", "candidate#/artifact_sha256")], "receipt/synthetic-cuda-baseline.json")
    pair("003-identity", edited(CC, ("/resolved_identity/device_memory_gib", 40)), [("NPC-003", "candidate#/resolved_identity")], "receipt/synthetic-cuda-baseline.json")
    pair("004-name", edited(MC, ("/quality/name", "synthetic-perplexity")), [("NPC-004", "candidate#/quality/name")])
    pair("004-direction", edited(MC, ("/quality/higher_is_better", False)), [("NPC-004", "candidate#/quality/higher_is_better")])
    pair("005-reuse", attested(MC, [ATT[0]]), [("NPC-005", "candidate#/system_baselines/0/digest")], "receipt/synthetic-attested-baseline.json")
    file = "receipt/synthetic-metal-candidate.json"
    entry("compare", file, ["--compare", file, "--candidate", b], 1, [("NPC-001", "candidate#/role")])
    entry("compare", file, ["--compare", "missing.json", "--candidate", file], 1, [("NPI-001", "baseline#-")])


def attaching():
    write("attach/synthetic-second.json", ATT[1])
    one = attested(MB, [CLEAN])
    write("attach/synthetic-one-attached.json", one)
    v1 = "receipt/synthetic-v1-baseline.json"
    entry("attach", v1, ["--attach-receipt", v1, "--system-baseline", "baseline/synthetic-clean.json"], 0, golden="attach/synthetic-one-attached.json")
    write("attach/synthetic-two-attached.json", attested(MB, [CLEAN, ATT[1]]))
    entry("attach", "attach/synthetic-second.json", ["--attach-receipt", "attach/synthetic-one-attached.json", "--system-baseline", "attach/synthetic-second.json"], 0, golden="attach/synthetic-two-attached.json")
    # the chain of three calls is run by test_fak_fixtures, which feeds each output to the next call
    base = "receipt/synthetic-metal-baseline.json"
    write("attach/reject-tampered.json", edited(CLEAN, ("/host_totals/process_count/value", 42)))
    entry("attach", "attach/reject-tampered.json", ["--attach-receipt", base, "--system-baseline", "attach/reject-tampered.json"], 1, [("SBV-003", "attestation#/digest")])
    entry("attach", "receipt/synthetic-attested-baseline.json", ["--attach-receipt", "receipt/synthetic-attested-baseline.json", "--system-baseline", "baseline/synthetic-clean.json"], 1, [("NPA-001", "receipt#/system_baselines")])
    entry("attach", "attach/synthetic-one-attached.json", ["--attach-receipt", "attach/synthetic-one-attached.json", "--system-baseline", "baseline/synthetic-clean.json"], 1, [("NPA-002", "attestation#/digest")])
    entry("attach", base, ["--attach-receipt", base, "--system-baseline", "baseline/synthetic-clean-top-consumers.json"], 1, [("NPA-003", "attestation#/top_non_sut_consumers")])
    entry("attach", base, ["--attach-receipt", base, "--system-baseline", "baseline/synthetic-clean.json", "--out", base], 1, [("NPA-004", "-")])


# ---- gate ------------------------------------------------------------------------------------------
def policy(**more):
    p = {"schema": "fak-native-performance-gate-policy/v2", "envelope_id": MB["envelope_id"], "changed_lever_id": MB["changed_lever_id"],
         "accepted_revision": MB["revision"], "minimum_repetitions": 3, "maximum_noise_percent": 2, "investigate_drop_percent": 2,
         "regression_drop_percent": 5, "minimum_throughput_tokens_per_second": 50, "maximum_peak_bytes": 20000000000,
         "quality_metric": "synthetic-exact-match", "minimum_quality_score": 1, "quality_higher_is_better": True,
         "required_engine": "fak-native", "required_forward_path": "metal/qwen35-hybrid-session-v1"}
    p.update(more)
    return p


def request(candidate, accepted=None, p=None, version=2):
    accepted = accepted or receipt("metal", "baseline", [100, 101, 100])
    return {"schema": "fak-native-performance-gate-request/v%d" % version, "policy": p or policy(), "last_accepted": accepted, "candidate": candidate}


STRICT = {"require_system_baseline": True}
BOTH = {"require_system_baseline": True, "allow_sampled_system_baseline": True}


def gate(name, doc, exit_, *extra):
    file = "gate/synthetic-%s.json" % name
    write(file, doc)
    entry("gate", file, ["--gate", file] + list(extra), exit_, golden="golden/gate-%s.json" % name)


def gates():
    def cand(rates=(100, 100, 101)):
        return receipt("metal", "candidate", list(rates))
    acc = receipt("metal", "baseline", [100, 101, 100])
    gate("pass", request(cand()), 0)
    gate("drop-3", request(cand([97] * 3)), 4)
    gate("drop-10", request(cand([90] * 3)), 3)
    gate("noise", request(cand([96, 104, 102])), 4)
    gate("investigate-ok", request(cand([97] * 3)), 0, "--investigate-ok")
    gate("engine", request(edited(cand(), ("/execution/engine", "llama.cpp"))), 3)
    gate("forward-path", request(edited(cand(), ("/execution/forward_path", "cpu/fallback"))), 3)
    gate("fallback", request(edited(cand(), ("/execution/fallback_count", 2))), 3)
    gate("memory", request(edited(cand(), ("/memory/peak_bytes", 20000000001))), 3)
    gate("quality-score", request(edited(cand(), ("/quality/score", 0.99))), 3)
    gate("quality-name", request(edited(cand(), ("/quality/name", "synthetic-other"))), 3)
    gate("quality-direction", request(edited(cand(), ("/quality/higher_is_better", False))), 3)
    gate("floor", request(cand(), p=policy(minimum_throughput_tokens_per_second=100.5)), 3)
    v1 = policy(schema="fak-native-performance-gate-policy/v1")
    gate("v1", request(receipt("metal", "candidate", [100, 100, 101], 1), receipt("metal", "baseline", [100, 101, 100], 1), v1, 1), 0)
    # section 6.2: each kind of evidence under require=F, require=T, require=T allow=T
    good_a, good_c = attested(acc, ATT[:3]), attested(cand(), ATT[3:])
    bad = {
        "sampled": (good_a, good_c),
        "count": (attested(acc, ATT[:2]), good_c),
        "v1-receipt": (receipt("metal", "baseline", [100, 101, 100], 1), good_c),
        "investigate": (attested(acc, [seal(edited(a, ("/verdict", "investigate"), ("/findings", finding("NON_SUT_CPU_HIGH")), ("/attribution/sut_cpu_percent_of_host/value", 20), ("/attribution/non_sut_cpu_percent_of_host/value", 20.5))) for a in ATT[:3]]), good_c),
        "invalid": (good_a, attested(cand(), ATT[3:5] + [seal(edited(ATT[5], ("/verdict", "invalid"), ("/findings", finding("COMMAND_FAILED")), ("/command_exit_code", 1)))])),
        "unknown-axis": (good_a, attested(cand(), [seal(edited(ATT[3], ("/verdict", "investigate"), ("/findings", finding("BASELINE_HOST_CPU_UNKNOWN")), ("/baseline_host_totals/cpu_percent", GONE)))] + ATT[4:])),
        "across-arms": (good_a, attested(cand(), [ATT[0]] + ATT[4:])),
        "laxer": (attested(acc, [seal(edited(a, ("/policy/maximum_non_sut_cpu_percent", 30))) for a in ATT[:3]]), good_c),
    }
    broken = {
        "tampered": (edited(good_a, ("/system_baselines/1/host_totals/process_count/value", 42)), good_c, [("NPR-024", "/last_accepted/system_baselines/1")]),
        "coverage": (edited(attested(acc, [seal(edited(a, ("/coverage/descendant_attribution", "complete"))) for a in ATT[:3]])), good_c, [("NPR-024", "/last_accepted/system_baselines/%d" % i) for i in range(3)]),
        "mismatch": (good_a, edited(good_c, ("/repetitions/0/system_baseline_digest", ATT[4]["digest"])), [("NPR-028", "/candidate/repetitions/0/system_baseline_digest")]),
        "reuse": (attested(acc, [ATT[0], ATT[0], ATT[2]]), good_c, [("NPR-026", "/last_accepted/system_baselines/1/digest")]),
        "extra": (edited(good_a, ("/system_baselines", ATT[:4])), good_c, [("NPR-027", "/last_accepted/system_baselines")]),
        "consumers": (attested(acc, [seal(edited(a, ("/policy/include_top_consumers", True), ("/top_non_sut_consumers", [CONSUMER]))) for a in ATT[:3]]), good_c,
                      [("NPR-025", "/last_accepted/system_baselines/%d/top_non_sut_consumers" % i) for i in range(3)]),
    }
    for name, (a, c) in bad.items():
        gate("evidence-%s-free" % name, request(c, a, policy()), 0)
        gate("evidence-%s-strict" % name, request(c, a, policy(**STRICT)), 4)
        gate("evidence-%s-both" % name, request(c, a, policy(**BOTH)), 0 if name == "sampled" else 4)
    for name, (a, c, codes) in broken.items():
        file = "gate/reject-evidence-%s.json" % name
        write(file, request(c, a, policy()))
        entry("gate", file, ["--gate", file], 1, codes)
        gate("evidence-%s-strict" % name, request(c, a, policy(**STRICT)), 4)
        gate("evidence-%s-both" % name, request(c, a, policy(**BOTH)), 4)
    # bad evidence never hides a real failure, and never lets a slow number accuse
    gate("evidence-and-memory", request(edited(attested(cand(), ATT[3:5]), ("/memory/peak_bytes", 20000000001)), good_a, policy(**BOTH)), 3)
    gate("evidence-and-slow", request(attested(cand([50, 50, 50]), ATT[3:5]), good_a, policy(**BOTH)), 4)


def gate_rejections():
    cand = receipt("metal", "candidate", [100, 100, 101])
    base = request(cand)
    bad = [
        ("001-schema", edited(base, ("/schema", "fak-native-performance-gate-request/v3")), [("NPQ-001", "/schema")]),
        ("002-v1-request", edited(base, ("/schema", "fak-native-performance-gate-request/v1")), [("NPQ-002", "/policy/schema")]),
        ("003-policy", edited(base, ("/policy/schema", "fak-native-performance-gate-policy/v3")), [("NPQ-003", "/policy/schema")]),
        ("004-lever", edited(base, ("/policy/changed_lever_id", "cuda.dp4a-q4k-mmvq")),
         [("NPQ-004", "/policy/changed_lever_id"), ("NPQ-010", "/candidate/changed_lever_id"), ("NPQ-010", "/last_accepted/changed_lever_id")]),
        ("005-repetitions", edited(base, ("/policy/minimum_repetitions", 1)), [("NPQ-005", "/policy/minimum_repetitions")]),
        ("005-noise", edited(base, ("/policy/maximum_noise_percent", -1)), [("NPQ-005", "/policy/maximum_noise_percent")]),
        ("005-drops", edited(base, ("/policy/regression_drop_percent", 2)), [("NPQ-005", "/policy/regression_drop_percent")]),
        ("005-floor", edited(base, ("/policy/minimum_throughput_tokens_per_second", 0)), [("NPQ-005", "/policy/minimum_throughput_tokens_per_second")]),
        ("005-peak", edited(base, ("/policy/maximum_peak_bytes", 0)), [("NPQ-005", "/policy/maximum_peak_bytes")]),
        ("005-attested", edited(base, ("/policy/maximum_attested_non_sut_cpu_percent", 101)), [("NPQ-005", "/policy/maximum_attested_non_sut_cpu_percent")]),
        ("006-v1-member", edited(base, ("/policy/schema", "fak-native-performance-gate-policy/v1"), ("/policy/require_system_baseline", False)), [("NPQ-006", "/policy/require_system_baseline")]),
        ("007-allow-alone", edited(base, ("/policy/allow_sampled_system_baseline", True)), [("NPQ-007", "/policy/allow_sampled_system_baseline")]),
        ("008-revision", edited(base, ("/policy/accepted_revision", "0000000")), [("NPQ-008", "/policy/accepted_revision")]),
        ("009-roles", edited(base, ("/candidate", base["last_accepted"])), [("NPQ-009", "/candidate/role")]),
        ("010-lever", edited(base, ("/policy/changed_lever_id", "metal.paged-kv")), [("NPQ-010", "/candidate/changed_lever_id"), ("NPQ-010", "/last_accepted/changed_lever_id")]),
        ("011-drift", edited(base, ("/candidate/controls/batch", 2)), [("NPQ-011", "/candidate/controls/batch")]),
        ("012-few", edited(base, ("/policy/minimum_repetitions", 4)), [("NPQ-012", "/candidate/repetitions"), ("NPQ-012", "/last_accepted/repetitions")]),
        ("013-engine", edited(base, ("/policy/required_engine", "llama.cpp")), [("NPQ-013", "/policy/required_engine")]),
        ("013-path", edited(base, ("/policy/required_forward_path", " ")), [("NPQ-013", "/policy/required_forward_path")]),
        ("npr", edited(base, ("/candidate/quality/name", "")), [("NPR-019", "/candidate/quality/name")]),
    ]
    for version in (1, 2):
        file = "gate/synthetic-policy-v%d.json" % version
        write(file, policy(schema="fak-native-performance-gate-policy/v%d" % version))
        entry("gate", file, ["--validate", file], 0)
    reject("gate", "gate/reject-NPQ-004-policy.json", policy(changed_lever_id="metal.unknown"), [("NPQ-004", "/changed_lever_id")])
    for name, doc, codes in bad:
        file = "gate/reject-NPQ-%s.json" % name
        write(file, doc)
        entry("gate", file, ["--gate", file], 1, codes)


# ---- profiles --------------------------------------------------------------------------------------
def phases(*ms):
    names = ["load-setup", "prefill", "first-token", "steady-decode", "verification", "teardown"]
    out, t = [], 0
    for n, d in zip(names, ms):
        out.append({"name": n, "start_milliseconds": t, "duration_milliseconds": d})
        t += d
    return out


def metal(cb, enc, dispatch, wait, resident, working):
    return {"command_buffers": cb, "encoders": enc, "dispatch_milliseconds": dispatch, "wait_milliseconds": wait, "resident_bytes": resident, "working_set_bytes": working}


def cuda(launches, occ, bw, peak_bw, fl, peak_fl, sync):
    return {"launches": launches, "occupancy_percent": occ, "achieved_bandwidth_gbs": bw, "peak_bandwidth_gbs": peak_bw,
            "achieved_compute_tflops": fl, "peak_compute_tflops": peak_fl, "synchronization_milliseconds": sync}


def record(name, layer, lever, count):
    return {"name": name, "layer": layer, "lever_id": lever, "count": count}


def profile(backend, counters, **more):
    e = GRAPH["envelopes"][0 if backend == "metal" else 1]
    p = {"schema": "fak-native-performance-profile/v1", "envelope_id": e["id"],
         "execution": {"engine": "fak-native", "forward_path": e["forward_path"], "fallback_count": 0},
         "phases": phases(12, 10, 6, 40, 5, 3) if backend == "metal" else phases(8, 4, 3, 40, 4, 2), backend: counters}
    p["attributions"] = ([record("q4k_matmul", 0, "metal.command-buffer-amortization", 20), record("q4k_matmul", 1, "metal.command-buffer-amortization", 20)]
                         if backend == "metal" else [record("q4k_mmvq", 0, "cuda.q8_1-activation-quant", 12)])
    p.update(more)
    return {k: v for k, v in p.items() if v is not DELETE}


ML = profile("metal", metal(40, 48, 34.5, 4, 24000000000, 24000000000))
CBW = profile("cuda", cuda(24, 58, 800, 1000, 18, 100, 4))
OVERRIDE = {"issue_number": 8395, "reason": "working set exceeds residency; see issue 8395"}
MBW = profile("metal", metal(12, 16, 20, 2, 20000000000, 24000000000), attributions=[record("kv_copy", 0, "metal.paged-kv", 8)], selection_override=OVERRIDE)
UNAVAILABLE = {"reason": "capture-tool-does-not-export-dispatch-attribution", "detail": "synthetic capture without dispatch names"}


def profiles():
    good = {
        "metal-launch-bound": (ML, 0), "cuda-bandwidth-bound": (CBW, 0), "metal-bandwidth-override": (MBW, 0),
        "metal-attribution-unavailable": (profile("metal", ML["metal"], attributions=DELETE, attribution_unavailable=UNAVAILABLE), 0),
        "metal-synchronization-bound": (profile("metal", metal(12, 16, 20, 12, 24000000000, 24000000000)), 0),
        "metal-compute-bound": (profile("metal", metal(12, 16, 28, 2, 24000000000, 24000000000), attributions=[record("mm", 0, "metal.fused-hybrid-graph-coverage", 8)]), 1),
        "metal-cpu-orchestration-bound": (profile("metal", metal(12, 16, 20, 2, 24000000000, 24000000000)), 0),
        "cuda-synchronization-bound": (profile("cuda", cuda(24, 58, 800, 1000, 18, 100, 12)), 1),
        "cuda-launch-bound": (profile("cuda", cuda(64, 58, 100, 1000, 18, 100, 4)), 1),
        "cuda-compute-bound": (profile("cuda", cuda(24, 58, 800, 1000, 75, 100, 4)), 1),
        "cuda-cpu-orchestration-bound": (profile("cuda", cuda(24, 58, 100, 1000, 18, 100, 4)), 1),
    }
    refusal = {"metal-compute-bound": ("NPP-040", "-"), "cuda-synchronization-bound": ("NPP-040", "-"), "cuda-launch-bound": ("NPP-040", "-"),
               "cuda-compute-bound": ("NPP-040", "-"), "cuda-cpu-orchestration-bound": ("NPP-040", "-")}
    for name, (doc, refused) in good.items():
        file = "profile/synthetic-%s.json" % name
        write(file, doc)
        entry("profile", file, ["--profile", file], 0, golden="golden/profile-%s.json" % name)
        if refused:
            entry("profile", file, ["--profile-next", file], 1, [refusal[name]])
        else:
            entry("profile", file, ["--profile-next", file], 0, golden="golden/profile-next-%s.json" % name)

    def bad(name, doc, *codes):
        file = "profile/reject-%s.json" % name
        write(file, doc)
        entry("profile", file, ["--profile", file], 1, codes)
    bad("schema", edited(ML, ("/schema", "fak-native-performance-profile/v2")), ("NPP-001", "/schema"))
    bad("unknown-envelope", edited(ML, ("/envelope_id", "unknown")), ("NPP-002", "/envelope_id"))
    bad("forward-path-envelope-mismatch", edited(ML, ("/execution/forward_path", "cuda/q4k-p1-decode")), ("NPP-004", "/execution/forward_path"))
    bad("mixed-backend-counters", edited(ML, ("/cuda", CBW["cuda"])), ("NPP-010", "/cuda"))
    bad("no-counters", edited(ML, ("/metal", DELETE)), ("NPP-010", "/metal"))
    bad("mixed-envelope-lever", edited(ML, ("/attributions/0/lever_id", "cuda.q8_1-activation-quant"), ("/attributions/1/lever_id", "cuda.q8_1-activation-quant")),
        ("NPP-019", "/attributions/0/lever_id"), ("NPP-019", "/attributions/1/lever_id"))
    bad("mixed-levers", edited(ML, ("/attributions/1/lever_id", "metal.paged-kv")), ("NPP-020", "/attributions/1/lever_id"))
    bad("unknown-lever", edited(ML, ("/attributions", [record("x", 0, "metal.unknown", 1)])), ("NPP-018", "/attributions/0/lever_id"))
    bad("missing-phase", edited(ML, ("/phases/5", DELETE)), ("NPP-005", "/phases"))
    bad("phase-order", edited(ML, ("/phases/0/name", "prefill"), ("/phases/1/name", "load-setup")), ("NPP-005", "/phases"))
    bad("negative-start", edited(ML, ("/phases/0/start_milliseconds", -1)), ("NPP-006", "/phases/0/start_milliseconds"))
    bad("zero-duration", edited(ML, ("/phases/5/duration_milliseconds", 0)), ("NPP-007", "/phases/5/duration_milliseconds"))
    bad("end-overflow", edited(ML, ("/phases/5/start_milliseconds", 1.7e308), ("/phases/5/duration_milliseconds", 1.7e308)), ("NPP-008", "/phases/5/duration_milliseconds"))
    bad("overlapping-phases", edited(ML, ("/phases/2/start_milliseconds", 21)), ("NPP-009", "/phases/2/start_milliseconds"))
    bad("missing-counter", edited(ML, ("/metal/encoders", DELETE)), ("NPJ-005", "/metal/encoders"))
    bad("negative-counter", edited(ML, ("/metal/wait_milliseconds", -1)), ("NPP-011", "/metal/wait_milliseconds"))
    bad("occupancy-over-100", edited(CBW, ("/cuda/occupancy_percent", 100.5)), ("NPP-011", "/cuda/occupancy_percent"))
    bad("achieved-over-peak", edited(CBW, ("/cuda/achieved_bandwidth_gbs", 1001)), ("NPP-012", "/cuda/achieved_bandwidth_gbs"))
    text = json.dumps(ML, indent=2) + "\n"
    bad("non-finite-counter", text.replace('"dispatch_milliseconds": 34.5', '"dispatch_milliseconds": 1e999'), ("NPJ-007", "/metal/dispatch_milliseconds"))
    bad("invalid-native-identity", edited(ML, ("/execution/engine", "llama.cpp")), ("NPP-003", "/execution/engine"))
    bad("invalid-fallback-identity", edited(ML, ("/execution/fallback_count", 1)), ("NPP-003", "/execution/fallback_count"))
    bad("missing-attribution-state", edited(ML, ("/attributions", DELETE)), ("NPP-013", "/attributions"))
    bad("both-attribution-states", edited(ML, ("/attribution_unavailable", UNAVAILABLE)), ("NPP-014", "/attribution_unavailable"))
    u = profile("metal", ML["metal"], attributions=DELETE, attribution_unavailable=UNAVAILABLE)
    bad("unknown-reason", edited(u, ("/attribution_unavailable/reason", "forgot")), ("NPP-015", "/attribution_unavailable/reason"))
    bad("private-detail", edited(u, ("/attribution_unavailable/detail", "see /Users/x/trace")), ("NPP-016", "/attribution_unavailable/detail"))
    bad("zero-count", edited(ML, ("/attributions/0/count", 0)), ("NPP-017", "/attributions/0/count"))
    bad("duplicate-record", edited(ML, ("/attributions/1/layer", 0)), ("NPP-021", "/attributions/1"))
    bad("unsupported-counter-comparison", edited(ML, ("/counter_comparisons", [{"left": "metal", "right": "cuda"}])), ("NPP-022", "/counter_comparisons"))
    bad("override-without-issue", edited(MBW, ("/selection_override/issue_number", 0)), ("NPP-023", "/selection_override/issue_number"))
    bad("unknown-field", edited(ML, ("/score", 1)), ("NPJ-004", "/score"))
    bad("duplicate-member", text.replace('"fallback_count": 0', '"fallback_count": 1,\n    "fallback_count": 0'), ("NPJ-003", "/execution/fallback_count"))
    bad("two-values", text + "{}\n", ("NPJ-002", "-"))
    bad("truncated", text[:-20], ("NPJ-001", "-"))
    bad("text-count", edited(ML, ("/attributions/0/count", "20")), ("NPJ-006", "/attributions/0/count"))
    bad("huge-count", edited(ML, ("/attributions/0/count", 9007199254740992)), ("NPJ-008", "/attributions/0/count"))
    bad("artifact-path", edited(ML, ("/profiler_artifacts", [{"path": "trace/../x", "sha256": "ab" * 32}])), ("NPR-005", "/profiler_artifacts/0/path"))
    file = "profile/reject-profile-next-contradiction-without-override.json"
    write(file, edited(MBW, ("/selection_override", DELETE)))
    entry("profile", file, ["--profile-next", file], 1, [("NPP-041", "/selection_override")])
    file = "profile/reject-unready-recommendation.json"
    write(file, edited(good["cuda-compute-bound"][0], ("/selection_override", dict(OVERRIDE, reason="an override does not help"))))
    entry("profile", file, ["--profile-next", file], 1, [("NPP-040", "-")])
    # a graph of one's own: a CPU envelope has no profiles, an envelope without recommendations no lever
    g = "graph/synthetic-extra-envelopes.json"
    file = "profile/reject-backend-without-block.json"
    doc = edited(ML, ("/envelope_id", "synthetic-cpu"), ("/execution/engine", "gem-native"), ("/execution/forward_path", "cpu/synthetic-v1"),
                 ("/metal", DELETE), ("/attributions", DELETE), ("/attribution_unavailable", UNAVAILABLE))
    write(file, doc)
    entry("profile", file, ["--profile", file, "--graph", g], 1, [("NPP-024", "/envelope_id")])
    file = "profile/reject-no-recommendation.json"
    doc = edited(CBW, ("/envelope_id", "synthetic-h200"), ("/execution/engine", "gem-native"), ("/execution/forward_path", "cuda/synthetic-v1"),
                 ("/attributions", DELETE), ("/attribution_unavailable", UNAVAILABLE), ("/cuda/launches", 200))
    write(file, doc)
    entry("profile", file, ["--profile", file, "--graph", g], 1, [("NPP-025", "/envelope_id")])
    write("profile/synthetic-h200-bandwidth-bound.json", edited(doc, ("/cuda/launches", 20)))
    entry("profile", "profile/synthetic-h200-bandwidth-bound.json", ["--profile-next", "profile/synthetic-h200-bandwidth-bound.json", "--graph", g], 0,
          golden="golden/profile-next-h200.json")


# ---- graph -----------------------------------------------------------------------------------------
WITNESS = {"summary": "synthetic", "classification": "witnessed", "provenance": "synthetic", "receipt": "synthetic"}


def extra_graph():
    g = copy.deepcopy(GRAPH)
    h = {"id": "synthetic-h200", "model": "synthetic/model", "model_revision": "synthetic-1", "artifact_sha256": "cd" * 32, "quantization": "Q4_K_M",
         "hardware": "NVIDIA H200", "memory_gib": 140, "engine": "gem-native", "backend": "cuda", "forward_path": "cuda/synthetic-v1",
         "prompt_tokens": 32, "decode_tokens": 64, "repetitions": 5, "temperature": 0,
         "throughput_metric": "end_to_end_decode_tokens_per_second", "comparability_rule": "synthetic: same artifact, machine, shape and sampling"}
    c = dict(h, id="synthetic-cpu", hardware="synthetic two-core machine", memory_gib=4, backend="cpu", forward_path="cpu/synthetic-v1")
    g["envelopes"] += [h, c]

    def lever(id_, e, platform, deps):
        return {"id": id_, "name": "Synthetic lever", "applicability": {"envelope_id": e["id"], "platform": platform, "backend": e["backend"]},
                "enabled": False, "status": "absent", "dependency_ids": deps, "conflict_ids": [],
                "expected": {"summary": "synthetic; no gain assumed", "classification": "hypothesis", "provenance": "synthetic"},
                "witnessed": None, "owning_issue": {"number": 8, "url": "https://example.org/issues/8"}, "next_witness": "#8: synthetic"}
    g["levers"] += [lever("cuda.synthetic-fusion", h, "linux/amd64+nvidia-h200", []), lever("cpu.synthetic-fusion", c, "linux/amd64", [])]
    g["recommendations"] = [{"envelope_id": "synthetic-h200", "class": "bandwidth-bound", "lever_id": "cuda.synthetic-fusion"}]
    return g


def graphs():
    g = extra_graph()
    extra = "graph/synthetic-extra-envelopes.json"
    write(extra, g)
    entry("graph", extra, ["--validate", extra], 0)
    entry("graph", extra, ["--graph", extra, "--json"], 0, golden=extra)
    entry("graph", extra, ["--graph", extra, "--next", "--envelope", "synthetic-cpu"], 0, golden="golden/next-cpu.txt")
    entry("graph", extra, ["--graph", extra, "--dot"], 0, golden="golden/extra.dot")
    L = "/levers/"

    def more(name, *items):
        return (("/" + name, GRAPH[name] + list(items)),)
    lonely = dict(GRAPH["levers"][10], id="cuda.lonely", dependency_ids=[], applicability=dict(GRAPH["levers"][10]["applicability"], envelope_id="missing"))
    bad = [
        ("002-last", edited(GRAPH, (L + "11/id", "Capital")), [("NPG-002", L + "11/id")]),
        ("003-third", edited(GRAPH, *more("envelopes", dict(GRAPH["envelopes"][0], memory_gib=37))), [("NPG-003", "/envelopes/2/id")]),
        ("004-last", edited(GRAPH, *more("levers", GRAPH["levers"][11])), [("NPG-004", L + "12/id")]),
        ("005-last", edited(GRAPH, *more("rungs", GRAPH["rungs"][2])), [("NPG-005", "/rungs/3/id")]),
        ("010-alone", edited(GRAPH, *more("levers", lonely)), [("NPG-010", L + "12/applicability/envelope_id")]),
        ("002", edited(GRAPH, (L + "1/id", "")), [("NPG-002", L + "1/id"), ("NPG-009", L + "2/dependency_ids/0")]),
        ("003", edited(GRAPH, ("/envelopes/1/id", GRAPH["envelopes"][0]["id"])),
         [("NPG-003", "/envelopes/1/id")] + [("NPG-010", L + "%d/applicability/envelope_id" % i) for i in range(8, 12)]),
        ("004", edited(GRAPH, (L + "1/id", GRAPH["levers"][0]["id"])),
         [("NPG-004", L + "1/id"), ("NPG-009", L + "2/dependency_ids/0")]),
        ("005", edited(GRAPH, ("/rungs/1/id", GRAPH["rungs"][0]["id"])),
         [("NPG-005", "/rungs/1/id"), ("NPG-007", "/rungs/2/dependency_ids/0"), ("NPG-008", "/features/1/rung_id")]),
        ("006", edited(GRAPH, ("/features/1/id", GRAPH["features"][0]["id"])), [("NPG-006", "/features/1/id")]),
        ("007", edited(GRAPH, ("/rungs/1/dependency_ids", ["missing"])), [("NPG-007", "/rungs/1/dependency_ids/0")]),
        ("008", edited(GRAPH, ("/features/0/rung_id", "missing")), [("NPG-008", "/features/0/rung_id")]),
        ("009", edited(GRAPH, (L + "1/dependency_ids", ["missing"])), [("NPG-009", L + "1/dependency_ids/0")]),
        ("010", edited(GRAPH, (L + "5/applicability/envelope_id", "missing")), [("NPG-010", L + "5/applicability/envelope_id"), ("NPG-017", L + "5/dependency_ids/0")]),
        ("011", edited(GRAPH, ("/rungs/0/dependency_ids", ["matched-native-parity"])), [("NPG-011", "/rungs/0/dependency_ids")]),
        ("012", edited(GRAPH, (L + "0/dependency_ids", [GRAPH["levers"][1]["id"]])), [("NPG-012", L + "0/dependency_ids"), ("NPG-023", L + "0/enabled")]),
        ("012-self", edited(GRAPH, (L + "1/dependency_ids", [GRAPH["levers"][1]["id"]])), [("NPG-012", L + "1/dependency_ids")]),
        ("013", edited(GRAPH, (L + "9/conflict_ids", [GRAPH["levers"][8]["id"], GRAPH["levers"][9]["id"]])), [("NPG-013", L + "9/conflict_ids/1")]),
        ("014", edited(GRAPH, (L + "1/dependency_ids", [GRAPH["levers"][0]["id"]] * 2)), [("NPG-014", L + "1/dependency_ids")]),
        ("015", edited(GRAPH, (L + "8/conflict_ids", [])), [("NPG-015", L + "8/conflict_ids")]),
        ("016", edited(GRAPH, (L + "9/enabled", True), (L + "9/status", "partial")), [("NPG-016", L + "8/enabled")]),
        ("017", edited(GRAPH, (L + "1/dependency_ids", [GRAPH["levers"][8]["id"]])), [("NPG-017", L + "1/dependency_ids/0")]),
        ("018", edited(GRAPH, (L + "1/applicability/platform", "linux/amd64+nvidia-a100")), [("NPG-018", L + "1/applicability/platform")] * 1),
        ("018-backend", edited(GRAPH, (L + "1/applicability/backend", "cuda")), [("NPG-018", L + "1/applicability/backend")]),
        ("018-class", edited(GRAPH, *[(L + "%d/applicability/platform" % i, "linux/amd64+nvidia-h100") for i in range(8, 12)]),
         [("NPG-018", L + "%d/applicability/platform" % i) for i in range(8, 12)]),
        ("019", edited(GRAPH, (L + "1/status", "done")), [("NPG-019", L + "1/status")]),
        ("020", edited(GRAPH, (L + "3/enabled", True)), [("NPG-020", L + "3/enabled")]),
        ("020-disabled", edited(GRAPH, (L + "8/enabled", False)), [("NPG-020", L + "8/enabled")]),
        ("021", edited(GRAPH, ("/features/2/enabled", True)), [("NPG-021", "/features/2/enabled")]),
        ("022", edited(GRAPH, ("/rungs/2/enabled", True)), [("NPG-022", "/rungs/2/enabled")]),
        ("023", edited(GRAPH, (L + "2/enabled", True)), [("NPG-023", L + "2/enabled")]),
        ("024", edited(GRAPH, (L + "1/expected/classification", "witnessed")), [("NPG-024", L + "1/expected/classification")]),
        ("025", edited(GRAPH, (L + "0/witnessed/classification", "hypothesis")), [("NPG-025", L + "0/witnessed/classification")]),
        ("025-receipt", edited(GRAPH, (L + "0/witnessed/receipt", "")), [("NPG-025", L + "0/witnessed/receipt")]),
        ("026", edited(GRAPH, ("/rungs/0/expected/classification", "witnessed")), [("NPG-026", "/rungs/0/expected/classification")]),
        ("027", edited(GRAPH, ("/rungs/1/expected/floor_tokens_per_second", 8)), [("NPG-027", "/rungs/1/expected/floor_tokens_per_second")]),
        ("028", edited(GRAPH, ("/rungs/0/witnessed/classification", "hypothesis")), [("NPG-028", "/rungs/0/witnessed/classification")]),
        ("029", edited(GRAPH, ("/comparison/classification", "witnessed")), [("NPG-029", "/comparison/classification")]),
        ("030", edited(GRAPH, ("/comparison/tokens_per_second", 0)), [("NPG-030", "/comparison/tokens_per_second")]),
        ("030-date", edited(GRAPH, ("/comparison/observed_on", "2026-02-29")), [("NPG-030", "/comparison/observed_on")]),
        ("031", edited(GRAPH, ("/rungs/0/witnessed/engine", "llama.cpp b9828")), [("NPG-031", "/rungs/0/witnessed/engine")]),
        ("032", edited(GRAPH, (L + "8/witnessed", WITNESS)), [("NPG-032", L + "8/witnessed")]),
        ("033", edited(GRAPH, ("/envelopes/1/engine", "other")), [("NPG-033", "/envelopes/1/engine")]),
        ("033-domain", edited(GRAPH, ("/envelopes/1/prompt_tokens", 0)), [("NPG-033", "/envelopes/1/prompt_tokens")]),
        ("034", edited(GRAPH, ("/envelope/decode_tokens", 65)), [("NPG-034", "/envelope")]),
        ("035", edited(GRAPH, (L + "1/next_witness", "")), [("NPG-035", L + "1/next_witness")]),
        ("035-url", edited(GRAPH, (L + "1/owning_issue/number", 8325)), [("NPG-035", L + "1/owning_issue/url")]),
        ("036", edited(GRAPH, ("/features/0/observable", "")), [("NPG-036", "/features/0/observable")]),
        ("037", edited(GRAPH, ("/envelopes", GRAPH["envelopes"] + [dict(GRAPH["envelopes"][0], id="clone")])), [("NPG-037", "/envelopes/2")]),
        ("038", edited(g, ("/recommendations/0/class", "gpu-bound")), [("NPG-038", "/recommendations/0/class")]),
        ("038-lever", edited(g, ("/recommendations/0/lever_id", "cpu.synthetic-fusion")), [("NPG-038", "/recommendations/0/lever_id")]),
        ("038-twice", edited(g, ("/recommendations", g["recommendations"] * 2)), [("NPG-038", "/recommendations/1")]),
    ]
    for name, doc, codes in bad:
        reject("graph", "graph/reject-NPG-%s.json" % name, doc, codes)
    file = "graph/reject-NPG-001.json"
    write(file, edited(GRAPH, ("/schema", "fak-native-performance-graph/v1")))
    entry("graph", file, ["--graph", file], 1, [("NPG-001", "/schema")])
    entry("graph", file, ["--validate", file], 1, [("NPJ-009", "/schema")])
    entry("graph", file, ["--profile", "profile/synthetic-metal-launch-bound.json", "--graph", file], 1, [("NPG-001", "graph#/schema")])
    entry("graph", extra, ["--next", "--envelope", "nowhere"], 1, [("NPN-001", "-")])


# ---- command line ----------------------------------------------------------------------------------
def cli():
    for name, args in {"human.txt": [], "graph.json": ["--json"], "next.txt": ["--next"], "graph.dot": ["--dot"],
                       "next-cuda.txt": ["--next", "--envelope", GRAPH["envelopes"][1]["id"]],
                       "template-metal.json": ["--baseline", "metal.command-buffer-amortization"],
                       "template-cuda.json": ["--baseline=cuda.q8_1-activation-quant"]}.items():
        entry("cli", "cli/" + name, args, 0, golden="cli/" + name)
    zero = "profiler_artifacts/0/sha256"
    reps = [("NPR-014", "/repetitions/%d/%s" % (i, m)) for i in range(3) for m in ("end_to_end_milliseconds", "tokens_per_second")]
    common = [("NPR-004", p) for p in ("/revision", "/machine/scrubbed_id", "/quality/name", "/module_versions/0/module", "/module_versions/0/revision", "/commands/0", "/profiler_artifacts/0/path")]
    common += reps + [("NPR-016", "/memory/peak_bytes"), ("NPR-016", "/memory/resident_bytes"), ("NPR-022", "/" + zero)]
    entry("cli", "cli/template-metal.json", ["--validate", "cli/template-metal.json"], 1, common)
    entry("cli", "cli/template-cuda.json", ["--validate", "cli/template-cuda.json"], 1, common + [
        ("NPR-004", "/artifact_sha256"), ("NPR-006", "/artifact_sha256"), ("NPR-004", "/resolved_identity/model_repository"),
        ("NPR-004", "/resolved_identity/model_revision"), ("NPR-031", "/resolved_identity/device_memory_gib"),
        ("NPR-011", "/controls/decode_tokens"), ("NPR-011", "/controls/context_tokens")])
    entry("cli", "cli/template-metal.json", ["--baseline", "metal.unknown"], 1, [("NPR-003", "-")])
    m = "receipt/synthetic-metal-baseline.json"
    for args, code in [
            (["--verbose"], "NPU-001"), (["--profile="], "NPU-002"), (["--profile"], "NPU-002"), (["--compare", "--candidate", "x"], "NPU-002"),
            (["--json", "--json"], "NPU-003"), (["extra"], "NPU-004"), (["--json", "--next"], "NPU-005"), (["--profile", "x", "--json"], "NPU-005"),
            (["--compare", m], "NPU-006"), (["--candidate", m], "NPU-006"), (["--attach-receipt", m], "NPU-006"), (["--system-baseline", m], "NPU-006"),
            (["--out", "x"], "NPU-007"), (["--json", "--out", "x"], "NPU-007"), (["--envelope", "x"], "NPU-007"), (["--investigate-ok"], "NPU-007"),
            (["--schema", "graph.v2", "--graph", "x"], "NPU-007"), (["--help", "--json"], "NPU-007"), (["--sign", "key"], "NPU-007"),
            (["--schema", "graph.v1"], "NPU-008"), (["--json=yes"], "NPU-008"), (["--compare", "-", "--candidate", "-"], "NPU-009"), (["--", "x"], "NPU-004")]:
        entry("cli", "-", args, 2, [(code, "-")])
    entry("cli", "-", ["-next"], 0, golden="cli/next.txt")
    entry("cli", "-", ["--validate", "no-such-file.json"], 1, [("NPI-001", "-")])


def main():
    keep = {}
    for sub in ("golden", "cli"):  # goldens are reviewed outputs; they are not written here
        path = os.path.join(ROOT, sub)
        if os.path.isdir(path):
            keep[sub] = True
    for sub in ("graph", "receipt", "compare", "attach", "gate", "profile", "baseline"):
        shutil.rmtree(os.path.join(ROOT, sub), ignore_errors=True)
    for make in (graphs, attestations, receipts, comparisons, attaching, gates, gate_rejections, profiles, cli):
        make()
    write("FIXTURES.json", TABLE)
    print("%d entries" % len(TABLE), file=sys.stderr)


main()
