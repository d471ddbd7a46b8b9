"""Many clients that leave, stall, babble and cancel, for $GEM_STRESS_SECONDS (4): nothing is left behind.

Under a sanitizer build (GEM_BIN_DIR) a report ends the server, and the test with it."""
import json
import os
import random
import socket
import threading
import time

from serving import Server, text_of, user

SECONDS = float(os.environ.get("GEM_STRESS_SECONDS", "4"))
CLIENTS = int(os.environ.get("GEM_STRESS_CLIENTS", "16"))


def leave_early(s, r):
    stream = s.chat_stream("hello " * r.randrange(60), max_tokens=200, temperature=1, seed=r.randrange(9))
    events = stream.events()
    for _ in range(r.randrange(6)):
        next(events, None)
    stream.close()


def leave_unstreamed(s, r):
    raw = json.dumps({"messages": user("count " * r.randrange(60)), "max_tokens": 200}).encode()
    c = socket.create_connection((s.host, s.port), timeout=10)
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    time.sleep(r.random() * 0.1)
    c.close()


def babble(s, r):
    c = socket.create_connection((s.host, s.port), timeout=10)
    try:
        c.sendall(bytes(r.randrange(256) for _ in range(2000)))
    except OSError:
        pass
    c.close()


def slow_reader(s, r):
    raw = json.dumps({"messages": user("x"), "max_tokens": 60, "stream": True}).encode()
    c = socket.create_connection((s.host, s.port), timeout=10)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    for _ in range(4):
        c.recv(64)
        time.sleep(0.02)
    c.close()


def ask(s, r):
    code, _, body = s.chat("the same question", max_tokens=10, temperature=0)
    assert code in (200, 429)
    if code == 200:
        s.answers.add(body["choices"][0]["message"]["content"])


def ask_structured(s, r):
    code, _, body = s.chat("x", response_format={"type": "json_schema", "json_schema": {"schema": {"enum": ["a", "b", 3]}}}, temperature=1, max_tokens=20)
    assert code == 429 or json.loads(body["choices"][0]["message"]["content"]) in ("a", "b", 3)


def cancel(s, r):
    stream = s.chat_stream("cancel me", max_tokens=200)
    if stream.status == 200:
        s.request("DELETE", "/v1/requests/" + stream.headers["x-request-id"])
    stream.all()


def look(s, r):
    for path in ("/metrics", "/slots", "/health", "/v1/models", "/props"):
        assert s.get(path)[0] == 200


def refuse(s, r):
    assert s.chat(temperature=-1)[0] == 400 and s.post("/v1/messages", b"{")[0] == 400


def test_nothing_is_left_behind(tiny):
    acts = [leave_early, leave_unstreamed, babble, slow_reader, ask, ask_structured, cancel, look, refuse]
    with Server(tiny, "--context", "512", "--parallel", "4", "--queue", "8", "--cached", "0", "--batch", "64") as s:
        s.answers = set()
        ask(s, None)
        failures = []
        end = time.time() + SECONDS

        def client(seed):
            r = random.Random(seed)
            while time.time() < end and not failures:
                act = r.choice(acts)
                try:
                    act(s, r)
                except AssertionError as e:
                    failures.append((act.__name__, repr(e)))
                except (OSError, EOFError, ValueError) as e:
                    if s.process.poll() is not None:
                        failures.append((act.__name__, "the server ended: " + repr(e)))
                except Exception as e:  # http.client's own
                    if s.process.poll() is not None or "RemoteDisconnected" not in repr(e):
                        failures.append((act.__name__, repr(e)))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
        [t.start() for t in threads]
        time.sleep(SECONDS / 2)
        middle = s.metrics()["process_resident_memory_bytes"]
        [t.join() for t in threads]
        assert not failures, (failures[:3], s.lines[-5:])
        s.until_idle()
        m = s.metrics()
        assert m["gem_requests_running"] == 0 and m["gem_requests_queued"] == 0
        assert len(s.answers) == 1  # whatever the company
        if "GEM_STRESS_SECONDS" in os.environ:
            assert m["process_resident_memory_bytes"] < middle * 1.2 + (32 << 20)
        assert s.chat(max_tokens=1)[0] == 200
        deadline = time.time() + 70
        while s.metrics()["gem_connections"] > 1 and time.time() < deadline:
            time.sleep(0.1)
        assert s.stop() == 0, s.lines[-30:]
