"""Two servers behind HAProxy with contrib/haproxy-replicas.cfg: conversations stay where their prefix is."""
import os
import shutil
import subprocess
import time

import pytest
from serving import ENDLESS, Server, in_time, own_port, until, user

CONFIG = os.path.join(os.path.dirname(__file__), "..", "..", "contrib", "haproxy-replicas.cfg")
LONG = " ".join(f"word{i}" for i in range(80))
pytestmark = pytest.mark.skipif(not shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin"), reason="no haproxy")


class Proxy(Server):
    """Asked like a server; is one only in front of two. A server that stands still for seconds, as may happen where the tests
    run, is not taken for one that is gone."""

    def __init__(self, folder, port, a, b):
        config = os.path.join(folder, "haproxy.cfg")
        with open(CONFIG) as f, open(config, "w") as copy:
            text = f.read()
            assert text.count(" fall 2 ") == 1
            copy.write(text.replace(" fall 2 ", " fall 60 "))
        self.host, self.port = "127.0.0.1", port
        address = {name: f"127.0.0.1:{p}" for name, p in (("GEM_PROXY_BIND", port), ("GEM_SERVER_A", a), ("GEM_SERVER_B", b))}
        self.process = subprocess.Popen(["haproxy", "-db", "-f", config], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        env=dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin", **address))

    def __enter__(self):
        until(lambda: self.code("/health") == 200)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def code(self, path):
        try:
            return self.get(path)[0]
        except OSError:
            return 0


def ask(proxy, name, turns=LONG, **more):
    """(server that answered, tokens reused)"""
    code, headers, body = proxy.post("/v1/chat/completions", dict({"messages": user(name + turns), "max_tokens": 2, "prompt_cache_key": name}, **more))
    assert code == 200, body
    return headers["x-gem-server"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_replicas(tiny, tmp_path):
    ports = [own_port(), own_port()]
    options = ("--context", "8192", "-T", "0")
    with Server(tiny, *options, "--port", str(ports[0])) as a, Server(tiny, *options, "--port", str(ports[1])) as b, Proxy(str(tmp_path), own_port(), *ports) as proxy:
        until(lambda: {ask(proxy, f"warm {i}")[0] for i in range(8)} == {"a", "b"})  # both are in
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
        ask_long = {"messages": user("count"), "logit_bias": ENDLESS}

        def freed(before):
            """Was the answer ended since its client had gone? It may have ended by itself, or the proxy never have asked for it."""
            deadline = time.monotonic() + 10
            while a.cancelled() + b.cancelled() != before + 1 and time.monotonic() < deadline:
                time.sleep(0.05)
            for x in (a, b):
                x.until_idle()
            return a.cancelled() + b.cancelled() == before + 1

        def leave_stream():
            before = a.cancelled() + b.cancelled()
            s = proxy.stream("/v1/chat/completions", dict(ask_long, stream=True))
            assert next(e for e in s.events() if e["choices"])
            running = sum(x.metrics()["gem_requests_running"] for x in (a, b))
            s.close()
            return freed(before) and running == 1

        def leave_plain():
            before = a.cancelled() + b.cancelled()
            try:
                proxy.post("/v1/chat/completions", ask_long, timeout=0.3)
                return False  # the whole answer was there when this process looked
            except TimeoutError:
                return freed(before)

        in_time(leave_stream)
        in_time(leave_plain)

        # a server that goes takes nothing with it but its prefixes
        assert a.stop() == 0
        for n in names:
            assert ask(proxy, n)[0] == "b"
        with Server(tiny, *options, "--port", str(ports[0])):
            away = [n for n in names if home[n] == "a"]
            until(lambda: ask(proxy, away[0])[0] == "a")
            for n in names:
                assert ask(proxy, n)[0] == home[n]
