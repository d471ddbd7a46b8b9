"""What people try with curl first, and what should not work: the program itself, not a library."""
import json
import shutil
import socket
import subprocess

import pytest
from serving import ENDLESS, Server, best_under

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
CHAT = "/v1/chat/completions"


def curl(server, path, *options, data=None):
    """(HTTP status, body)."""
    run = subprocess.run(["curl", "-sS", "-m", "60", "-w", "\n%{http_code}", *options, f"http://127.0.0.1:{server.port}{path}"],
                         input=data, capture_output=True, timeout=90)
    assert run.returncode == 0, run.stderr
    body, _, status = run.stdout.rpartition(b"\n")
    return int(status), body


def test_health_and_models(server):
    assert curl(server, "/health") == (200, b'{"status":"ok"}')
    status, body = curl(server, "/v1/models")
    assert status == 200 and json.loads(body)["data"][0]["id"] == "tiny"
    assert json.loads(curl(server, "/")[1])["name"] == "gem"  # the page is for browsers


def test_a_plain_d_streams(server):
    """curl -d sends application/x-www-form-urlencoded."""
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 4}
    status, out = curl(server, CHAT, "-N", "-d", json.dumps(body))
    events = [line for line in out.split(b"\n") if line.startswith(b"data: ")]
    assert status == 200 and len(events) > 3 and events[-1] == b"data: [DONE]"


def test_other_hosts_and_origins(server):
    assert curl(server, "/v1/models", "-H", "Host: evil.example")[0] == 403
    assert curl(server, "/", "-H", "Host: evil.example", "-H", "Accept: text/html")[0] == 403
    status, out = curl(server, CHAT, "-H", "Origin: http://evil.example", "-H", "Content-Type: text/plain", "-d", "{}")
    assert status == 403 and json.loads(out)["error"]["code"] == "forbidden_origin"


def test_two_megabytes(server):
    """curl waits for 100 Continue before such a body."""
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000000}]}).encode()
    status, out = curl(server, CHAT, "-H", "Expect: 100-continue", "--data-binary", "@-", data=body)
    assert status == 400 and json.loads(out)["error"]["code"] == "context_length_exceeded"
    # curl itself gives up after a minute


def test_chunked(server):
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    status, out = curl(server, CHAT, "-H", "Transfer-Encoding: chunked", "-H", "Content-Type: application/json", "--data-binary", "@-", data=body)
    assert status == 200 and json.loads(out)["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_given_up_after_a_second(tiny, stream):
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream, "logit_bias": ENDLESS}
    with Server(tiny, "--context", "8192") as s:
        def attempt():
            """Seconds from curl's end to an engine that is free; the request may have come to its end, or never have come."""
            before = s.cancelled()
            run = subprocess.run(["curl", "-sS", "-m", "0.3", f"http://127.0.0.1:{s.port}{CHAT}", "-d", json.dumps(body)], capture_output=True, timeout=120)
            took = s.until_idle()
            if run.returncode == 0 or not s.went(before):
                return float("inf")
            assert run.returncode == 28  # curl's own time limit
            return took

        best_under(1.5, attempt)


def test_two_lengths(server):
    with socket.create_connection(("127.0.0.1", server.port), 60) as s:
        s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 400 ")
