"""Endpoints, loading, shutdown: what a client meets before it asks anything."""
import json
import os
import re
import subprocess
import time

import pytest
from serving import BIN, ENDLESS, Server, best_under, in_time, user


def test_health_models_props(server):
    status, headers, body = server.get("/health")
    assert (status, body) == (200, {"status": "ok"})
    assert headers["content-type"] == "application/json" and headers["x-request-id"]
    assert server.get("/v1/health")[0] == 200
    _, _, models = server.get("/v1/models?limit=1000")
    assert models["object"] == "list" and len(models["data"]) == 1
    m = models["data"][0]
    assert m["id"] == "tiny" and m["object"] == "model" and "status" not in m
    # the context under every name that clients read, as an integer and as it runs (not as trained: 8192)
    for value in (m["context_length"], m["max_model_len"], m["meta"]["n_ctx"],
                  server.get("/props?model=tiny")[2]["default_generation_settings"]["n_ctx"]):
        assert value == 2048 and isinstance(value, int)
    assert m["meta"]["n_ctx_train"] == 8192
    assert m["architecture"]["input_modalities"] == ["text"]
    assert server.get("/models")[2]["data"][0]["id"] == "tiny"
    assert server.get("/v1/models/tiny")[2]["id"] == "tiny"
    status, _, body = server.get("/v1/models/other%2Fmodel")
    assert status == 404 and body["error"]["code"] == "model_not_found"
    props = server.get("/props")[2]
    assert props["total_slots"] == 4 and props["modalities"]["vision"] is False
    assert props["eos_token"] == "<|endoftext|>" or props["eos_token"]


def test_head_options_unknown(server):
    for path in ("/health", "/v1/models", "/props", "/slots"):
        status, _, raw = server.request("HEAD", path)
        assert status == 200 and raw == b""
    assert server.request("OPTIONS", "/v1/chat/completions")[0] in (200, 204)
    status, _, body = server.get("/api/tags")
    assert status == 404 and body["error"]["type"] == "not_found_error"
    status, headers, body = server.get("/v1/chat/completions")
    assert status == 405 and "POST" in headers["allow"] and body["error"]["code"] == "unknown_url"
    assert server.request("GET", "/version")[0] == 200


def test_tokenize_round_trip(server):
    text = "What is the capital of France ? {\"a\": [1]}"
    _, _, body = server.post("/tokenize", {"content": text})
    assert all(isinstance(t, int) for t in body["tokens"]) and body["tokens"]
    assert server.post("/detokenize", {"tokens": body["tokens"]})[2]["content"] == text
    _, _, pieces = server.post("/tokenize", {"content": "hello", "with_pieces": True})
    assert "".join(p["piece"] for p in pieces["tokens"]) == "hello"
    status, _, body = server.post("/detokenize", {"tokens": [99999999]})
    assert status == 400 and body["error"]["param"] == "tokens"


def test_template_and_count_agree(server):
    body = {"messages": [{"role": "system", "content": "Be brief."}] + user("hi <|im_end|> there")}
    prompt = server.post("/apply-template", body)[2]["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n") and "Be brief." in prompt
    n = server.post("/v1/chat/completions/input_tokens", body)[2]
    assert n["object"] == "response.input_tokens"
    status, _, answer = server.post("/v1/chat/completions", dict(body, max_tokens=1))
    assert status == 200 and answer["usage"]["prompt_tokens"] == n["input_tokens"]


def test_metrics_format(server):
    server.chat(max_tokens=2)
    status, headers, raw = server.get("/metrics")
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    names, typed = set(), set()
    for line in raw.decode().splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("#"):
            names.add(line.split("{")[0].split(" ")[0])
    for n in names:
        base = n
        for tail in ("_bucket", "_sum", "_count"):
            if n.endswith(tail) and n[: -len(tail)] in typed:
                base = n[: -len(tail)]
        assert base in typed and ":" not in n
    m = server.metrics()
    assert m["gem_generated_tokens_total"] >= 2 and m['gem_request_duration_seconds_bucket{le="+Inf"}'] >= 1
    assert m["gem_request_duration_seconds_count"] == m['gem_request_duration_seconds_bucket{le="+Inf"}']


def test_slots(server):
    slots = server.get("/slots")[2]
    assert [s["id"] for s in slots] == [0, 1, 2, 3]
    assert slots[0]["n_ctx"] == 2048 and slots[0]["is_processing"] is False


def test_loading_answers_at_once(models, tiny):
    """Listens before loading: models and props answer, posts get 503 with Retry-After, health turns 200."""
    from serving import synthetic

    big = synthetic(models, "slow-to-load", "qwen2", "--layers", "12", "--d-model", "1024", "--d-ff", "4096",
                    "--heads", "8", "--kv-heads", "2")

    def attempt():
        """The longest that health took; no less than ever where no post came while the model was loaded."""
        with Server(big, "--context", "512", "-t", "1", wait=False) as s:
            worst, refused = 0, 0
            while True:
                start = time.monotonic()
                status, headers, body = s.get("/health")
                worst = max(worst, time.monotonic() - start)
                if status == 200:
                    return worst if refused else float("inf")
                assert status == 503 and body["error"]["type"] == "unavailable_error" and "Loading model" in body["error"]["message"]
                assert s.get("/v1/models")[2]["data"][0]["meta"]["n_ctx"] == 512
                assert s.get("/props")[0] == 200
                code, headers, body = s.chat(max_tokens=1)
                if code != 200:
                    assert code == 503 and int(headers["retry-after"]) >= 1 and body["error"]["code"] == "model_loading"
                    refused += 1

    best_under(0.5, attempt)


def test_ends_on_sigterm(tiny):
    s = Server(tiny, "--context", "512")
    with s:
        stream = s.chat_stream("count", max_tokens=300)
        events = stream.events()
        next(events)
        s.terminate()
        time.sleep(0.1)
        rest = list(events)
        assert rest[-1] == "[DONE]"  # what ran may finish
        assert s.stop() == 0
    assert s.log("shutting down")


def test_drain_limit_ends_streams_with_an_event(tiny):
    def attempt():
        with Server(tiny, "--context", "8192", "--drain", "0.2", "-T", "0") as s:
            stream = s.chat_stream("count", max_tokens=8000, logit_bias=ENDLESS)
            events = stream.events()
            next(events)
            s.terminate()
            last = list(events)[-1]
            assert last == "[DONE]" or last["error"]["code"] == "shutting_down"
            assert s.stop() == 0
            return last != "[DONE]"

    in_time(attempt)


def test_port_taken_and_bad_model(server, tiny, tmp_path):
    run = subprocess.run([BIN + "/gem", "serve", tiny, "--port", str(server.port)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 3 and str(server.port) in run.stderr and "in use" in run.stderr
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF nonsense")
    run = subprocess.run([BIN + "/gem", "serve", str(bad), "--port", "0"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 1
    run = subprocess.run([BIN + "/gem", "serve", tiny, "--port", "0", "--host", "0.0.0.0"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 2 and "--insecure" in run.stderr


def test_a_model_that_does_not_fit_is_refused(tiny):
    """The forecast says so before the load, with the numbers, and the server ends with exit code 3."""
    p = subprocess.run([os.path.join(BIN, "gem"), "serve", tiny, "--port", "0", "--context", "1000000", "--parallel", "64", "--cached", "1024"],
                       stderr=subprocess.PIPE, text=True, timeout=120)
    assert p.returncode == 3
    m = re.search(r"(\d+) MiB of memory are needed \(weights \d+, keys and values (\d+), recurrent states 0, workspace \d+\) and there are (\d+); "
                  r"a smaller --context \(1000000\), --parallel \(64\) or --cached \(1024\) or --kv-type f16 needs less", p.stderr)
    assert m and int(m.group(1)) > int(m.group(3)) and int(m.group(1)) >= int(m.group(2)), p.stderr
