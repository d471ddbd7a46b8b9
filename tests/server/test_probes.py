"""The shell probes against a real server, and one that fails."""
import json
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def probe(script, *args, **env):
    return subprocess.run([os.path.join(ROOT, "scripts", script), *args], capture_output=True, text=True, timeout=180, env=dict(os.environ, **env))


def test_stream_probe(server, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("hello " * 100)
    sse, out = tmp_path / "o.sse", tmp_path / "o.json"
    run = probe("server-stream-probe.sh", f"http://127.0.0.1:{server.port}", "tiny", str(prompt), str(sse), str(out), GEM_STREAM_MAX_TOKENS="5")
    assert run.returncode == 0, run.stderr
    r = json.loads(out.read_text())
    assert r["done"] and r["http_status"] == 200 and r["requested_max_tokens"] == 5 and r["usage"]["completion_tokens"] == 5
    assert 0 < r["transport"]["time_starttransfer"] < r["first_visible_event_seconds"] <= r["last_event_seconds"]
    raw = sse.read_text()
    assert raw.count("data: [DONE]") == 1 and r["keepalive_comments"] == sum(line.startswith(":") for line in raw.split("\n")) >= 2
    n = server.post("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": prompt.read_text()}]})[2]["input_tokens"]
    assert r["usage"]["prompt_tokens"] == n


def test_stream_probe_fails_closed(server, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("x" * 90000)
    run = probe("server-stream-probe.sh", f"http://127.0.0.1:{server.port}", "tiny", str(prompt), str(tmp_path / "a"), str(tmp_path / "b"))
    assert run.returncode == 1 and json.loads((tmp_path / "b").read_text())["http_status"] == 400
    run = probe("server-stream-probe.sh", "http://127.0.0.1:1", "tiny", str(prompt), str(tmp_path / "a"), str(tmp_path / "b"))
    assert run.returncode == 3
    assert probe("server-stream-probe.sh").returncode == 2


def test_probe(server, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("hello")
    run = probe("server-probe.sh", f"http://127.0.0.1:{server.port}/", "tiny", str(prompt), GEM_STREAM_MAX_TOKENS="3")
    assert run.returncode == 0, run.stderr
    r = json.loads(run.stdout)
    assert r["usage"]["completion_tokens"] == 3 and 0 < r["time_to_first_byte_seconds"] <= r["completion_seconds"]
    assert r["served_model"] == "tiny"


@pytest.mark.parametrize("kind,bytes_", [("f32", 4), ("f16", 2)])
def test_kv_type_from_the_environment(tiny, kind, bytes_):
    from serving import BIN

    run = subprocess.run([BIN + "/gem", "print-config", tiny], capture_output=True, text=True, env=dict(os.environ, GEM_KV_TYPE=kind))
    assert json.loads(run.stdout)["kv"]["type"] == kind
    run = subprocess.run([BIN + "/gem", "print-config", tiny], capture_output=True, text=True, env=dict(os.environ, GEM_KV_TYPE="f8"))
    assert run.returncode == 2 and "GEM_KV_TYPE" in run.stderr
