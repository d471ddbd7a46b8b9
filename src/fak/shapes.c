/* shapes.c - the tables of every document: graph, receipts, gate, profiles, attestations. Order is
 * the order of writing. Sources: docs/evidence.md names each member's meaning. */
#include "fak/shape.h"

static const fak_type str = {.kind = FAK_STRING}, integer = {.kind = FAK_INT},
                      num = {.kind = FAK_NUMBER}, boolean = {.kind = FAK_BOOL},
                      any = {.kind = FAK_ANY};
static const fak_type strings = {.kind = FAK_ARRAY, .item = &str},
                      anys = {.kind = FAK_ARRAY, .item = &any};

#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, 0                                                                              \
    }
#define OBJECT(id, ...)                                                                            \
    static const fak_member id##_members[] = {__VA_ARGS__, END};                                   \
    static const fak_type id = {.kind = FAK_OBJECT, .members = id##_members}
#define LIST(id, of) static const fak_type id = {.kind = FAK_ARRAY, .item = &(of)}
#define OPT FAK_OPTIONAL

/* ---- graph ---- */
OBJECT(issue, {"number", &integer, 0}, {"url", &str, 0});
OBJECT(envelope, {"id", &str, 0}, {"model", &str, 0}, {"model_revision", &str, 0},
       {"artifact_sha256", &str, 0}, {"quantization", &str, 0}, {"hardware", &str, 0},
       {"memory_gib", &integer, 0}, {"engine", &str, 0}, {"backend", &str, 0},
       {"forward_path", &str, 0}, {"prompt_tokens", &integer, 0},
       {"decode_tokens", &integer, FAK_NULLABLE}, {"repetitions", &integer, 0},
       {"temperature", &num, 0}, {"throughput_metric", &str, 0}, {"comparability_rule", &str, 0});
OBJECT(throughput, {"tokens_per_second", &num, 0}, {"classification", &str, 0}, {"engine", &str, 0},
       {"comparability", &str, 0}, {"observed_on", &str, 0}, {"provenance", &str, 0},
       {"note", &str, 0});
OBJECT(range, {"floor_tokens_per_second", &num, 0}, {"roof_tokens_per_second", &num, 0},
       {"classification", &str, 0}, {"provenance", &str, 0});
OBJECT(rung, {"id", &str, 0}, {"name", &str, 0}, {"dependency_ids", &strings, 0},
       {"enabled", &boolean, 0}, {"status", &str, 0}, {"expected", &range, 0},
       {"witnessed", &throughput, FAK_NULLABLE}, {"gap", &str, 0}, {"next_issue", &issue, 0});
OBJECT(feature, {"id", &str, 0}, {"name", &str, 0}, {"rung_id", &str, 0}, {"enabled", &boolean, 0},
       {"status", &str, 0}, {"observable", &str, 0});
OBJECT(applicability, {"envelope_id", &str, 0}, {"platform", &str, 0}, {"backend", &str, 0});
OBJECT(effect, {"summary", &str, 0}, {"classification", &str, 0}, {"provenance", &str, 0});
OBJECT(witness, {"summary", &str, 0}, {"classification", &str, 0}, {"provenance", &str, 0},
       {"receipt", &str, 0});
OBJECT(lever, {"id", &str, 0}, {"name", &str, 0}, {"applicability", &applicability, 0},
       {"enabled", &boolean, 0}, {"status", &str, 0}, {"dependency_ids", &strings, 0},
       {"conflict_ids", &strings, 0}, {"expected", &effect, 0},
       {"witnessed", &witness, FAK_NULLABLE}, {"owning_issue", &issue, 0},
       {"next_witness", &str, 0});
OBJECT(recommendation, {"envelope_id", &str, 0}, {"class", &str, 0}, {"lever_id", &str, 0});
LIST(rungs, rung);
LIST(features, feature);
LIST(envelopes, envelope);
LIST(levers, lever);
LIST(recommendations, recommendation);
OBJECT(graph, {"schema", &str, 0}, {"envelope", &envelope, 0}, {"comparison", &throughput, 0},
       {"rungs", &rungs, 0}, {"features", &features, 0}, {"envelopes", &envelopes, 0},
       {"levers", &levers, 0}, {"recommendations", &recommendations, OPT});

/* ---- attestation ---- */
OBJECT(metric, {"available", &boolean, 0}, {"value", &num, OPT}, {"unit", &str, OPT},
       {"source", &str, OPT}, {"reason", &str, OPT});
OBJECT(window, {"started_at_utc", &str, 0}, {"ended_at_utc", &str, 0}, {"duration_ns", &integer, 0},
       {"sample_interval_ns", &integer, 0}, {"samples", &integer, 0});
OBJECT(host, {"cpu_percent", &metric, 0}, {"memory_total_bytes", &metric, 0},
       {"memory_available_bytes", &metric, 0}, {"process_count", &metric, 0});
OBJECT(sampler, {"counted_samples", &integer, 0}, {"wall_ns", &integer, 0},
       {"duty_percent", &metric, 0});
OBJECT(coverage, {"process_snapshots", &integer, 0}, {"processes_observed", &integer, 0},
       {"process_reads", &integer, 0}, {"process_unreadable", &integer, 0},
       {"host_cpu_samples", &integer, 0}, {"host_memory_samples", &integer, 0},
       {"sut_root_pid", &integer, 0}, {"descendant_attribution", &str, 0},
       {"process_enumeration_note", &str, OPT});
OBJECT(attribution, {"sut_cpu_percent_of_host", &metric, 0},
       {"non_sut_cpu_percent_of_host", &metric, 0}, {"sut_rss_bytes", &metric, 0},
       {"non_sut_rss_bytes", &metric, 0});
OBJECT(consumer, {"image", &str, 0}, {"pid", &integer, 0}, {"cpu_seconds", &num, 0},
       {"rss_bytes", &integer, 0}, {"cpu_available", &boolean, 0}, {"rss_available", &boolean, 0});
OBJECT(finding, {"code", &str, 0}, {"detail", &str, 0});
LIST(consumers, consumer);
LIST(findings, finding);
#define POLICY_V1                                                                                  \
    {"minimum_baseline_samples", &integer, 0}, {"minimum_samples", &integer, 0},                   \
        {"maximum_non_sut_cpu_percent", &num, 0}, {"maximum_sampler_duty_percent", &num, 0},       \
        {"require_host_cpu", &boolean, 0}, {"require_sut_cpu", &boolean, 0},                       \
        {"require_process_memory", &boolean, 0},                                                   \
    {                                                                                              \
        "include_top_consumers", &boolean, 0                                                       \
    }
OBJECT(sampling_policy_v1, POLICY_V1);
OBJECT(sampling_policy_v2, POLICY_V1, {"maximum_stall_percent", &num, 0},
       {"maximum_steal_percent", &num, 0});
#define BASELINE_HEAD                                                                              \
    {"schema", &str, 0}, {"verdict", &str, 0}, {"baseline_window", &window, 0},                    \
        {"command_window", &window, 0}, {"baseline_host_totals", &host, 0},                        \
        {"host_totals", &host, 0}, {"baseline_sampler", &sampler, 0},                              \
        {"command_sampler", &sampler, 0}, {"coverage", &coverage, 0},                              \
        {"attribution", &attribution, 0},                                                          \
    {                                                                                              \
        "top_non_sut_consumers", &consumers, 0                                                     \
    }
#define BASELINE_TAIL                                                                              \
    {"findings", &findings, 0}, {"command_exit_code", &integer, 0}, {"timed_out", &boolean, 0},    \
    {                                                                                              \
        "digest", &str, 0                                                                          \
    }
OBJECT(baseline_v1, BASELINE_HEAD, {"policy", &sampling_policy_v1, 0}, BASELINE_TAIL);
OBJECT(stall, {"some_total_us", &metric, 0}, {"full_total_us", &metric, 0});
OBJECT(pressure, {"cpu", &stall, 0}, {"memory", &stall, 0}, {"io", &stall, 0});
OBJECT(wait4_axis, {"user_usec", &metric, 0}, {"system_usec", &metric, 0}, {"reaped", &metric, 0},
       {"still_running", &metric, 0});
OBJECT(cpu_stat, {"usage_usec", &metric, 0}, {"user_usec", &metric, 0},
       {"system_usec", &metric, 0});
OBJECT(cgroup_memory, {"peak_bytes", &metric, 0}, {"oom_kills", &metric, 0});
OBJECT(cgroup, {"state", &str, 0}, {"membership", &str, 0}, {"cpu_stat", &cpu_stat, 0},
       {"memory", &cgroup_memory, 0}, {"pids_peak", &metric, 0}, {"pressure", &pressure, 0},
       {"cleanup", &str, 0});
OBJECT(exits, {"count", &metric, 0}, {"cpu_usec", &metric, 0}, {"lost_messages", &metric, 0});
OBJECT(host_context, {"steal_percent", &metric, 0}, {"context_switches", &metric, 0},
       {"procs_running_peak", &metric, 0}, {"cpu_mhz_min", &metric, 0},
       {"cpu_mhz_mean", &metric, 0}, {"thermal_throttle_events", &metric, 0});
OBJECT(gpu, {"index", &integer, 0}, {"status", &str, 0}, {"sm_clock_mhz", &metric, 0},
       {"memory_clock_mhz", &metric, 0}, {"utilization_percent", &metric, 0},
       {"power_mw", &metric, 0}, {"temperature_c", &metric, 0}, {"throttle_reasons", &metric, 0},
       {"non_sut_process_count", &metric, 0}, {"non_sut_memory_bytes", &metric, 0});
LIST(gpus, gpu);
OBJECT(gpu_axis, {"available", &boolean, 0}, {"reason", &str, OPT});
OBJECT(baseline_v2, BASELINE_HEAD, {"command_sha256", &str, 0}, {"nonce", &str, 0},
       {"wait4", &wait4_axis, 0}, {"cgroup_v2", &cgroup, 0}, {"pressure", &pressure, 0},
       {"exits", &exits, 0}, {"effective_cadence_ns", &integer, 0},
       {"coverage_limited", &boolean, 0}, {"context", &host_context, 0}, {"gpu_axis", &gpu_axis, 0},
       {"gpu", &gpus, 0}, {"policy", &sampling_policy_v2, 0}, BASELINE_TAIL);
const fak_document fak_doc_baseline_v1 = {"system-baseline.v1", "fak.system-baseline/v1",
                                          &baseline_v1, FAK_V2};
const fak_document fak_doc_baseline_v2 = {"system-baseline.v2", "fak.system-baseline/v2",
                                          &baseline_v2, 0};
static const fak_document *const baseline_choice[] = {&fak_doc_baseline_v2, &fak_doc_baseline_v1,
                                                      NULL};
const fak_type fak_type_baseline = {.kind = FAK_VARIANT, .choice = baseline_choice};
LIST(baselines, fak_type_baseline);

/* ---- receipt ---- */
OBJECT(resolved_identity, {"model_repository", &str, 0}, {"model_revision", &str, 0},
       {"device_memory_gib", &integer, 0});
OBJECT(machine, {"scrubbed_id", &str, 0}, {"platform", &str, 0}, {"backend", &str, 0});
OBJECT(controls, {"prompt_tokens", &integer, 0}, {"decode_tokens", &integer, 0},
       {"batch", &integer, 0}, {"context_tokens", &integer, 0}, {"temperature", &num, 0},
       {"sampling", &str, 0}, {"cache_state", &str, 0}, {"warmups", &integer, 0},
       {"repetitions", &integer, 0});
OBJECT(repetition, {"end_to_end_milliseconds", &num, 0}, {"tokens_per_second", &num, 0},
       {"ttft_milliseconds", &num, OPT}, {"prefill_milliseconds", &num, OPT},
       {"decode_milliseconds", &num, OPT}, {"system_baseline_digest", &str, OPT | FAK_V2});
OBJECT(memory, {"peak_bytes", &integer, 0}, {"resident_bytes", &integer, 0});
OBJECT(execution, {"engine", &str, 0}, {"forward_path", &str, 0}, {"fallback_count", &integer, 0});
OBJECT(quality, {"name", &str, 0}, {"score", &num, 0}, {"higher_is_better", &boolean, 0});
OBJECT(module, {"module", &str, 0}, {"revision", &str, 0});
OBJECT(artifact, {"path", &str, 0}, {"sha256", &str, 0});
LIST(repetitions, repetition);
LIST(modules, module);
LIST(artifacts, artifact);
OBJECT(receipt, {"schema", &str, 0}, {"role", &str, 0}, {"envelope_id", &str, 0},
       {"changed_lever_id", &str, 0}, {"revision", &str, 0}, {"artifact_sha256", &str, 0},
       {"resolved_identity", &resolved_identity, OPT}, {"machine", &machine, 0},
       {"controls", &controls, 0}, {"unchanged_controls", &strings, 0},
       {"changed_axes", &strings, 0}, {"repetitions", &repetitions, 0}, {"memory", &memory, 0},
       {"execution", &execution, 0}, {"quality", &quality, 0}, {"module_versions", &modules, 0},
       {"commands", &strings, 0}, {"profiler_artifacts", &artifacts, 0},
       {"system_baselines", &baselines, OPT | FAK_V2},
       {"ambient_evidence", &any, OPT | FAK_LEGACY});
const fak_document fak_doc_receipt_v1 = {"receipt.v1", "fak-native-performance-receipt/v1",
                                         &receipt, FAK_V2};
const fak_document fak_doc_receipt_v2 = {"receipt.v2", "fak-native-performance-receipt/v2",
                                         &receipt, 0};
static const fak_document *const receipt_choice[] = {&fak_doc_receipt_v1, &fak_doc_receipt_v2,
                                                     NULL};
const fak_type fak_type_receipt = {.kind = FAK_VARIANT, .choice = receipt_choice};

/* ---- comparison ---- */
OBJECT(arm, {"n", &integer, 0}, {"mean", &num, 0}, {"median", &num, 0}, {"minimum", &num, 0},
       {"maximum", &num, 0}, {"stddev", &num, 0}, {"cv_percent", &num, 0});
OBJECT(mann_whitney, {"u", &num, 0}, {"p_two_sided", &num, 0}, {"exact", &boolean, 0});
OBJECT(statistics, {"baseline", &arm, 0}, {"candidate", &arm, 0}, {"pairing", &str, 0},
       {"mann_whitney", &mann_whitney, FAK_NULLABLE}, {"note", &str, FAK_NULLABLE},
       {"direction", &str, 0});
OBJECT(evidence_counts, {"clean", &integer, 0}, {"investigate", &integer, 0},
       {"invalid", &integer, 0}, {"missing", &integer, 0});
OBJECT(evidence, {"baseline", &evidence_counts, 0}, {"candidate", &evidence_counts, 0});
OBJECT(comparison, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"changed_lever_id", &str, 0},
       {"baseline_revision", &str, 0}, {"candidate_revision", &str, 0},
       {"baseline_mean_tokens_per_second", &num, 0}, {"candidate_mean_tokens_per_second", &num, 0},
       {"delta_tokens_per_second", &num, 0}, {"delta_percent", &num, 0},
       {"statistics", &statistics, 0}, {"evidence", &evidence, 0});

/* ---- gate ---- */
OBJECT(policy, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"changed_lever_id", &str, 0},
       {"accepted_revision", &str, 0}, {"minimum_repetitions", &integer, 0},
       {"maximum_noise_percent", &num, 0}, {"investigate_drop_percent", &num, 0},
       {"regression_drop_percent", &num, 0}, {"minimum_throughput_tokens_per_second", &num, 0},
       {"maximum_peak_bytes", &integer, 0}, {"quality_metric", &str, 0},
       {"minimum_quality_score", &num, 0}, {"quality_higher_is_better", &boolean, 0},
       {"required_engine", &str, 0}, {"required_forward_path", &str, 0},
       {"require_system_baseline", &boolean, OPT | FAK_V2},
       {"allow_sampled_system_baseline", &boolean, OPT | FAK_V2},
       {"maximum_attested_non_sut_cpu_percent", &num, OPT | FAK_V2},
       {"maximum_attested_sampler_duty_percent", &num, OPT | FAK_V2});
const fak_document fak_doc_policy_v1 = {"gate-policy.v1", "fak-native-performance-gate-policy/v1",
                                        &policy, FAK_V2};
const fak_document fak_doc_policy_v2 = {"gate-policy.v2", "fak-native-performance-gate-policy/v2",
                                        &policy, 0};
static const fak_document *const policy_choice[] = {&fak_doc_policy_v1, &fak_doc_policy_v2, NULL};
static const fak_document *const policy_v1_choice[] = {&fak_doc_policy_v1, NULL};
const fak_type fak_type_policy = {.kind = FAK_VARIANT, .choice = policy_choice};
static const fak_type type_policy_v1 = {.kind = FAK_VARIANT, .choice = policy_v1_choice};
OBJECT(request_v1, {"schema", &str, 0}, {"policy", &type_policy_v1, 0},
       {"last_accepted", &fak_type_receipt, 0}, {"candidate", &fak_type_receipt, 0});
OBJECT(request_v2, {"schema", &str, 0}, {"policy", &fak_type_policy, 0},
       {"last_accepted", &fak_type_receipt, 0}, {"candidate", &fak_type_receipt, 0});
OBJECT(check, {"name", &str, 0}, {"status", &str, 0}, {"detail", &str, 0});
OBJECT(suspect, {"module", &str, 0}, {"accepted_revision", &str, 0},
       {"candidate_revision", &str, 0});
LIST(checks, check);
LIST(suspects, suspect);
OBJECT(bisect, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"good_revision", &str, 0},
       {"bad_revision", &str, 0}, {"suspect_modules", &suspects, 0},
       {"guarded_commands", &strings, 0}, {"stop_condition", &str, 0});
OBJECT(verdict, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"classification", &str, 0},
       {"accepted_revision", &str, 0}, {"candidate_revision", &str, 0},
       {"accepted_mean_tokens_per_second", &num, 0}, {"candidate_mean_tokens_per_second", &num, 0},
       {"throughput_delta_percent", &num, 0}, {"accepted_noise_percent", &num, 0},
       {"candidate_noise_percent", &num, 0}, {"checks", &checks, 0},
       {"suspect_modules", &suspects, OPT}, {"bisect", &bisect, OPT});

/* ---- profile ---- */
OBJECT(phase, {"name", &str, 0}, {"start_milliseconds", &num, 0},
       {"duration_milliseconds", &num, 0});
OBJECT(metal, {"command_buffers", &integer, 0}, {"encoders", &integer, 0},
       {"dispatch_milliseconds", &num, 0}, {"wait_milliseconds", &num, 0},
       {"resident_bytes", &integer, 0}, {"working_set_bytes", &integer, 0});
OBJECT(cuda, {"launches", &integer, 0}, {"occupancy_percent", &num, 0},
       {"achieved_bandwidth_gbs", &num, 0}, {"peak_bandwidth_gbs", &num, 0},
       {"achieved_compute_tflops", &num, 0}, {"peak_compute_tflops", &num, 0},
       {"synchronization_milliseconds", &num, 0});
OBJECT(dispatch, {"name", &str, 0}, {"layer", &integer, 0}, {"lever_id", &str, 0},
       {"count", &integer, 0});
OBJECT(unavailable, {"reason", &str, 0}, {"detail", &str, 0});
OBJECT(override, {"issue_number", &integer, 0}, {"reason", &str, 0});
LIST(phases, phase);
LIST(dispatches, dispatch);
OBJECT(profile, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"execution", &execution, 0},
       {"phases", &phases, 0}, {"metal", &metal, OPT}, {"cuda", &cuda, OPT},
       {"attributions", &dispatches, OPT}, {"attribution_unavailable", &unavailable, OPT},
       {"selection_override", &override, OPT}, {"profiler_artifacts", &artifacts, OPT},
       {"counter_comparisons", &anys, OPT});
OBJECT(bottleneck, {"schema", &str, 0}, {"envelope_id", &str, 0}, {"class", &str, 0},
       {"confidence", &str, 0}, {"evidence", &strings, 0}, {"recommended_lever_id", &str, 0});
OBJECT(profile_next, {"classification", &bottleneck, 0}, {"lever", &lever, 0},
       {"selection_override", &override, OPT});

const fak_document fak_doc_graph = {"graph.v2", "fak-native-performance-graph/v2", &graph, 0};
const fak_document fak_doc_comparison = {"comparison.v1", "fak-native-performance-comparison/v1",
                                         &comparison, 0};
const fak_document fak_doc_request_v1 = {"gate-request.v1",
                                         "fak-native-performance-gate-request/v1", &request_v1, 0};
const fak_document fak_doc_request_v2 = {"gate-request.v2",
                                         "fak-native-performance-gate-request/v2", &request_v2, 0};
const fak_document fak_doc_verdict = {"gate-verdict.v1", "fak-native-performance-gate-verdict/v1",
                                      &verdict, 0};
const fak_document fak_doc_bisect = {"bisect-packet.v1", "fak-native-performance-bisect-packet/v1",
                                     &bisect, 0};
const fak_document fak_doc_profile = {"profile.v1", "fak-native-performance-profile/v1", &profile,
                                      0};
const fak_document fak_doc_bottleneck = {"bottleneck.v1", "fak-native-performance-bottleneck/v1",
                                         &bottleneck, 0};
const fak_document fak_doc_profile_next = {"profile-next.v1", NULL, &profile_next, 0};

const fak_document *const fak_documents[] = {
    &fak_doc_graph,        &fak_doc_receipt_v1,  &fak_doc_receipt_v2,  &fak_doc_comparison,
    &fak_doc_request_v1,   &fak_doc_request_v2,  &fak_doc_policy_v1,   &fak_doc_policy_v2,
    &fak_doc_verdict,      &fak_doc_bisect,      &fak_doc_profile,     &fak_doc_bottleneck,
    &fak_doc_profile_next, &fak_doc_baseline_v1, &fak_doc_baseline_v2, NULL};
