"""Two servers behind HAProxy with contrib/haproxy-replicas.cfg: conversations stay where their prefix is."""
import os
import shutil
import socket
import subprocess
import time

import pytest
from serving import ENDLESS, Server, user

CONFIG = os.path.join(os.path.dirname(__file__), "..", "..", "contrib", "haproxy-replicas.cfg")
LONG = " ".join(f"word{i}" for i in range(80))
pytestmark = pytest.mark.skipif(not shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin"), reason="no haproxy")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Proxy(Server):
    """Asked like a server; is one only in front of two."""

    def __init__(self, port, a, b):
        self.host, self.port = "127.0.0.1", port
        address = {name: f"127.0.0.1:{p}" for name, p in (("GEM_PROXY_BIND", port), ("GEM_SERVER_A", a), ("GEM_SERVER_B", b))}
        self.process = subprocess.Popen(["haproxy", "-db", "-f", CONFIG], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        env=dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin", **address))

    def __enter__(self):
        until(lambda: self.code("/health") == 200, 10)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def code(self, path):
        try:
            return self.get(path)[0]
        except OSError:
            return 0


def until(true, seconds):
    start = time.time()
    while not true():
        assert time.time() - start < seconds
        time.sleep(0.05)


def ask(proxy, name, turns=LONG, **more):
    """(server that answered, tokens reused)"""
    code, headers, body = proxy.post("/v1/chat/completions", dict({"messages": user(name + turns), "max_tokens": 2, "prompt_cache_key": name}, **more))
    assert code == 200, body
    return headers["x-gem-server"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_replicas(tiny):
    ports = [free_port(), free_port()]
    options = ("--context", "2048", "-T", "0")
    with Server(tiny, *options, "--port", str(ports[0])) as a, Server(tiny, *options, "--port", str(ports[1])) as b, Proxy(free_port(), *ports) as proxy:
        until(lambda: {ask(proxy, f"warm {i}")[0] for i in range(8)} == {"a", "b"}, 10)  # both are in
        names = [f"conversation {i}" for i in range(12)]
        home = {n: ask(proxy, n)[0] for n in names}
        assert set(home.values()) == {"a", "b"}
        for n in names:  # and stay there, where their prefix is
            where, cached = ask(proxy, n)
            assert (where, cached > 100) == (home[n], True)
        # other ways to name a conversation
        for more in ({"user": "someone"}, {"metadata": {"user_id": "someone"}}):
            assert len({ask(proxy, n, prompt_cache_key=None, **more)[0] for n in names[:4]}) == 1
        by_header = {proxy.post("/v1/chat/completions", {"messages": user("hi"), "max_tokens": 1, "prompt_cache_key": n},
                                {"X-Session-Id": "one"})[1]["x-gem-server"] for n in names}
        assert len(by_header) == 1

        # streams pass as they come, and a client that leaves frees its server
        for stream in (True, False):
            s = proxy.stream("/v1/chat/completions", {"messages": user("count"), "max_tokens": 1800, "stream": True, "logit_bias": ENDLESS}) if stream else None
            if stream:
                first = next(e for e in s.events() if e["choices"])
                assert first and sum(x.metrics()["gem_requests_running"] for x in (a, b)) == 1
                s.close()
            else:
                with pytest.raises(TimeoutError):
                    proxy.post("/v1/chat/completions", {"messages": user("count"), "max_tokens": 1800, "logit_bias": ENDLESS}, timeout=0.3)
            for x in (a, b):
                x.until_idle(5)

        # a server that goes takes nothing with it but its prefixes
        assert a.stop() == 0
        for n in names:
            assert ask(proxy, n)[0] == "b"
        with Server(tiny, *options, "--port", str(ports[0])):
            gone = [n for n in names if home[n] == "a"]
            until(lambda: ask(proxy, gone[0])[0] == "a", 10)
            for n in names:
                assert ask(proxy, n)[0] == home[n]
