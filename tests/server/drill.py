#!/usr/bin/env python3
"""Load drills for `gem serve`, by hand and outside of the quick tests: crowds that leave, stall, babble and cancel for
minutes, and the promises about time. Each drill prints one line of figures and fails with a sentence.

  GEM_BIN_DIR=build/dev  python3 tests/server/drill.py crowd --minutes 10 --streams 64     # ASan: GEM_SANITIZE=address
  GEM_BIN_DIR=build/tsan python3 tests/server/drill.py crowd --minutes 10 --streams 64
  python3 tests/server/drill.py abandon slow garbage
  python3 tests/server/drill.py cancel health rate first --model qwen2.5-coder-0.5b-instruct-q4_k_m.gguf

A report of a sanitizer ends the server, and the drill with it. Timed drills need a quiet machine."""
import argparse
import collections
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from serving import ENDLESS, Server, real_model, synthetic, text_of, user  # noqa: E402

WORDS = "river stone cloud paper lamp green seven window salt road north candle".split()


class Failed(Exception):
    pass


def check(ok, sentence):
    if not ok:
        raise Failed(sentence)


def say(name, **figures):
    print(f"{name}: " + ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()), flush=True)


def prompt(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n))


def raw_chat(body):
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def connect(s, buffer=None):
    c = socket.socket()
    if buffer:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    c.settimeout(60)
    c.connect((s.host, s.port))
    return c


def open_connections(s):
    """States of the server's sockets, for the message of a failure."""
    port, out = f":{s.port:04X}", collections.Counter()
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        w = line.split()
        if w[1].endswith(port) or w[2].endswith(port):
            out[("server " if w[1].endswith(port) else "client ") + w[3]] += 1
    return dict(out)


def settled(s):
    """Metrics once no connection but theirs is open, or after two minutes."""
    deadline = time.time() + 120
    while True:
        m = s.metrics()
        if m["gem_connections"] <= 1 or time.time() > deadline:
            return m
        time.sleep(0.2)


# ---- the crowd: streams, disconnects, cancels, for minutes ----

def act_stream(s, r, body):
    stream = s.stream("/v1/chat/completions", dict(body, stream=True), timeout=600)
    if stream.status == 429:
        stream.close()
        time.sleep(0.05 + r.random() * 0.1)
        return "full"
    check(stream.status == 200, f"status {stream.status}")
    leave = r.random() < 0.5
    after = r.randrange(40)
    last = None
    for n, event in enumerate(stream.events()):
        last = event
        if leave and n >= after:
            stream.close()
            return "left"
    stream.close()
    check(last == "[DONE]", f"a stream ended with {str(last)[:200]}")
    return "whole"


def act_plain(s, r, body):
    if r.random() < 0.5:
        c = connect(s)
        c.sendall(raw_chat(body))
        time.sleep(r.random() * 0.5)
        c.close()
        return "left"
    code, _, answer = s.post("/v1/chat/completions", body, timeout=600)
    check(code in (200, 429), f"status {code}: {str(answer)[:200]}")
    return "whole" if code == 200 else "full"


def act_cancel(s, r, body):
    stream = s.stream("/v1/chat/completions", dict(body, stream=True), timeout=600)
    if stream.status == 200:
        s.request("DELETE", "/v1/requests/" + stream.headers["x-request-id"])
        list(stream.events())
    stream.close()
    return "cancelled"


def act_known(s, r, body):
    """The same question has the same answer, whatever the company."""
    code, _, answer = s.post("/v1/chat/completions", {"messages": user("the same question"), "max_tokens": 8, "temperature": 0}, timeout=600)
    if code == 200:
        s.answers.add(answer["choices"][0]["message"]["content"])
    return "whole" if code == 200 else "full"


def act_look(s, r, body):
    for path in ("/metrics", "/slots", "/health", "/v1/models"):
        check(s.get(path)[0] == 200, f"{path} failed")
    return "looked"


def crowd_phase(args, model, seconds, cache, disk):
    """A server of its own; with cache: pages are shared and kept, on disk too; without: every page must come back."""
    options = ["--context", "1024", "--parallel", "8", "--queue", str(args.streams), "--batch", "128", "--connections", "1024"]
    options += ["--cached", "2", "--disk-cache", disk, "--disk-cache-size", "64"] if cache else ["--cached", "0"]
    counts, failures, memory = collections.Counter(), [], []
    with Server(model, *options, env=sanitizer_env()) as s:
        s.answers = set()
        end = time.time() + seconds
        openings = [prompt(random.Random(i), 40) for i in range(12)]

        def client(seed):
            r = random.Random(seed)
            while time.time() < end and not failures:
                act = r.choices([act_stream, act_plain, act_cancel, act_known, act_look], [60, 20, 8, 8, 4])[0]
                if act is act_known and not cache:
                    continue
                body = {"messages": user(r.choice(openings) + " " + prompt(r, r.randrange(60))), "max_tokens": r.randrange(1, 80), "seed": r.randrange(99), "temperature": 1}
                if not cache or r.random() < 0.2:
                    body["cache_prompt"] = False
                try:
                    counts[act(s, r, body)] += 1
                except Failed as e:
                    failures.append(f"{act.__name__}: {e}")
                except Exception as e:  # what sockets and http.client have to say
                    counts["error " + type(e).__name__] += 1
                    if s.process.poll() is not None:
                        failures.append(f"{act.__name__}: the server ended: {e!r}")

        threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(args.streams)]
        [t.start() for t in threads]
        while time.time() < end and not failures:
            time.sleep(min(5, max(0.1, end - time.time())))
            try:
                memory.append(s.metrics()["process_resident_memory_bytes"])
            except OSError as e:
                failures.append(f"metrics: {e!r}")
        [t.join(600) for t in threads]
        check(not failures, f"{failures[:3]}; the log ends: {s.lines[-12:]}")
        s.until_idle(120)
        m = settled(s)
        gauges = {k: m[k] for k in ("gem_requests_running", "gem_requests_queued", "gem_connections", "gem_kv_pages_used")}
        check(m["gem_requests_running"] == 0 and m["gem_requests_queued"] == 0 and m["gem_connections"] <= 1, f"{gauges}; {open_connections(s)}")
        if not cache:
            check(m["gem_kv_pages_used"] == 0, f"{m['gem_kv_pages_used']:.0f} KV pages were not given back")
        check(len(s.answers) <= 1, f"one question had {len(s.answers)} answers")
        warm, last = memory[len(memory) // 3], memory[-1]
        # freed blocks wait in the sanitizers' quarantine, so a first third of warming up is not looked at
        check(last < warm * 1.2 + (64 << 20), f"memory grew from {warm / 2**20:.0f} to {last / 2**20:.0f} MiB")
        check(s.stop() == 0, f"exit {s.process.returncode}: {s.lines[-30:]}")
        reports = s.log("Sanitizer|runtime error")
        check(not reports, f"reports: {reports[:3]}")
    say("crowd " + ("with" if cache else "without") + " cache", seconds=int(seconds), **{k.replace(" ", "_"): v for k, v in sorted(counts.items())},
        generated=int(m["gem_generated_tokens_total"]), ended_early=int(sum(v for k, v in m.items() if k.startswith("gem_requests_cancelled"))),
        mib=f"{warm / 2**20:.0f} to {last / 2**20:.0f}")


def sanitizer_env():
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=1:quarantine_size_mb=16"),
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1")}


def crowd(args, folder):
    model = synthetic(folder, "tiny", "qwen2")
    for cache in (True, False):
        crowd_phase(args, model, args.minutes * 30, cache, os.path.join(folder, "disk"))


# ---- one stream's rate, undisturbed and disturbed ----

class Rate:
    """Tokens of one endless stream, counted by the server (the second and later ones of an answer) while others do what
    they do: this program's own reading is not what is measured."""

    def __init__(self, s):
        self.s, self.stop = s, False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stop:
            # short ones: a token of a long answer takes longer, and windows would fall on other parts of it
            stream = self.s.chat_stream("tell", max_tokens=200, logit_bias=ENDLESS, temperature=0)
            for _ in stream.lines():
                if self.stop:
                    break
            stream.close()

    def over(self, seconds):
        name = "gem_inter_token_seconds_count"
        start, n = time.time(), self.s.metrics()[name]
        time.sleep(seconds)
        return (self.s.metrics()[name] - n) / (time.time() - start)

    def end(self):
        self.stop = True
        self.thread.join(30)


def disturbed(args, folder, name, disturb, *options):
    """The stream's rate in windows with and without disturbance, taken in turns; medians compared. One engine thread, so
    that the drill's own clients have the other cores: in life they are elsewhere."""
    model = args.path or synthetic(folder, "slow", "qwen2", "--layers", "8", "--d-model", "512", "--d-ff", "2048", "--heads", "8", "--kv-heads", "2")
    with Server(model, "--context", "4096", "--parallel", "4", "--connections", "1024", "-t", "1", *options, env=sanitizer_env()) as s:
        rate = Rate(s)
        time.sleep(1)
        calm, busy, figures = [], [], {}
        memory = s.metrics()["process_resident_memory_bytes"]
        for _ in range(args.windows):
            calm.append(rate.over(args.window))
            stop, ready = threading.Event(), threading.Event()
            worker = threading.Thread(target=disturb, args=(s, stop, ready, figures), daemon=True)
            worker.start()
            ready.wait(60)
            busy.append(rate.over(args.window))
            stop.set()
            worker.join(60)
            time.sleep(0.3)
        rate.end()
        a, b = statistics.median(calm), statistics.median(busy)
        s.until_idle(60)
        code, _, _ = s.chat(max_tokens=1)
        check(code == 200, f"afterwards: status {code}")
        m = settled(s)
        check(m["gem_connections"] <= 1, f"{m['gem_connections']:.0f} connections are still open")
        grown = m["process_resident_memory_bytes"] - memory
        check(s.stop() == 0, f"exit {s.process.returncode}: {s.lines[-20:]}")
    say(name, tokens_s_calm=a, tokens_s_disturbed=b, slower_percent=100 * (1 - b / a), grown_mib=grown / 2**20, **figures)
    check(b >= 0.8 * a, f"a stream slowed from {a:.1f} to {b:.1f} tokens/s")
    check(grown < 128 << 20, f"memory grew by {grown / 2**20:.0f} MiB")


def abandon(args, folder):
    """1,000 connections opened and abandoned: at once, within the header, within the body, with a question asked, and
    left open until the server closes them."""
    def disturb(s, stop, ready, figures):
        r, kept = random.Random(1), []
        ask = raw_chat({"messages": user("hi"), "max_tokens": 1, "stream": True})
        ready.set()
        each = max(1, args.connections // args.windows)
        for i in range(each):
            if stop.is_set():
                break
            try:
                c = connect(s)
                kind = i % 5
                if kind == 1:
                    c.sendall(ask[: r.randrange(1, 60)])
                elif kind == 2:
                    c.sendall(ask[:-10])
                elif kind == 3:
                    c.sendall(ask)
                if kind == 4 or r.random() < 0.3:
                    kept.append(c)
                else:
                    c.close()
                figures["connections"] = figures.get("connections", 0) + 1
            except OSError:
                figures["refused"] = figures.get("refused", 0) + 1
            time.sleep(args.window / each * 0.9)
        stop.wait(60)
        for c in kept:
            c.close()
    disturbed(args, folder, "abandon", disturb)


def slow(args, folder):
    """Clients that ask for long streams and read a byte now and then, or nothing."""
    def disturb(s, stop, ready, figures):
        readers = []
        ask = raw_chat({"messages": user("hi"), "max_tokens": 40, "stream": True, "logprobs": True, "top_logprobs": 20, "logit_bias": ENDLESS})
        for _ in range(args.readers):
            c = connect(s, 2048)
            c.sendall(ask)
            readers.append(c)
        figures["slow_readers"] = len(readers)
        while s.metrics()["gem_requests_running"] + s.metrics()["gem_requests_queued"] > 1:
            time.sleep(0.05)  # their answers are made: what is measured is that nobody reads them
        ready.set()
        while not stop.is_set():
            for c in readers[::2]:
                try:
                    c.recv(1)
                except OSError:
                    pass
            stop.wait(1)
        for c in readers:
            c.close()
    disturbed(args, folder, "slow", disturb, "--queue", str(args.readers + 8))


def garbage(args, folder):
    """1 MB of noise a second: random bytes, endless headers, bodies that are no JSON."""
    def disturb(s, stop, ready, figures):
        ready.set()
        r, sent, start = random.Random(2), 0, time.time()
        noise = [os.urandom(16384), b"GET / HTTP/1.1\r\nX: " + b"a" * 16000, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000\r\n\r\n" + os.urandom(16000)]
        while not stop.is_set():
            try:
                c = connect(s)
                c.settimeout(2)
                sent += c.send(r.choice(noise))
                c.setblocking(False)
                c.close()
            except OSError:
                pass
            time.sleep(max(0, sent / 1e6 - (time.time() - start)))
        figures["noise_mb_s"] = sent / 1e6 / (time.time() - start)
    disturbed(args, folder, "garbage", disturb)


# ---- promises about time ----

def real(args, folder):
    return args.path or real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") or synthetic(
        folder, "slow", "qwen2", "--layers", "8", "--d-model", "512", "--d-ff", "2048", "--heads", "8", "--kv-heads", "2")


def endless(s):
    """A bias against the tokens that end an answer."""
    ends = s.post("/tokenize", {"content": "<|im_end|><|endoftext|>", "parse_special": True})[2]["tokens"]
    return {**ENDLESS, **{str(t): -100 for t in ends}}


def long_prompt(s, n, salt):
    """A question of about n tokens."""
    r = random.Random(salt)
    text = prompt(r, 200)
    per = s.post("/v1/chat/completions/input_tokens", {"messages": user(text)})[2]["input_tokens"] / 200
    text = prompt(r, int(n / per))
    while True:
        have = s.post("/v1/chat/completions/input_tokens", {"messages": user(text)})[2]["input_tokens"]
        if have >= n:
            break
        text += " " + prompt(r, max(1, int((n - have) / per)))
    return text, s.post("/v1/chat/completions/input_tokens", {"messages": user(text)})[2]["input_tokens"]


def prefill_times(stream, n=None):
    """(time, tokens done) at each prefill comment of a stream, up to n of them, or to the first event."""
    out = []
    for line in stream.lines():
        if line.startswith(b": gem prefill"):
            out.append((time.time(), int(line.split()[3].split(b"/")[0])))
            if n and len(out) >= n:
                break
        elif line.startswith(b"data: ") and b'"content":"' in line:
            break
    return out


def cancel(args, folder):
    """A peer that leaves in the middle of a 4,000-token prompt: the engine is free within one batch."""
    worst_batches, worst, batch_s = 0, 0.0, []
    with Server(real(args, folder), "--context", "8192", "--parallel", "2", "--batch", str(args.batch), "-t", str(args.threads)) as s:
        for i in range(args.repeat):
            text, n = long_prompt(s, 4000, i)
            stream = s.chat_stream(text, max_tokens=5, cache_prompt=False)
            times = prefill_times(stream, 3)
            check(len(times) == 3 and times[-1][1] < n, "the prompt was read too quickly to be left")
            batch_s.append(times[2][0] - times[1][0])
            time.sleep(batch_s[-1] * random.Random(i).random())
            before = s.metrics()["gem_batches_total"]
            stream.close()
            closed = time.time()
            while s.metrics()["gem_requests_running"]:
                check(time.time() - closed < 60, "the engine is not free after a minute")
                time.sleep(0.005)
            worst = max(worst, time.time() - closed)
            worst_batches = max(worst_batches, s.metrics()["gem_batches_total"] - before)
        check(s.stop() == 0, "exit")
    say("cancel", prompt_tokens=n, batch_ms=1e3 * statistics.median(batch_s), free_after_ms=1e3 * worst, batches_after=int(worst_batches))
    check(worst_batches <= 1, f"{worst_batches:.0f} batches ended after the peer had left")


def lateness(stop):
    """How late sleeps of another process end, ms: what the machine itself makes of 10 ms. Ends when stop is set."""
    code = ("import sys, threading, time\nend = threading.Thread(target=sys.stdin.read, daemon=True)\nend.start()\nworst = 0.0\n"
            "while end.is_alive():\n  a = time.perf_counter()\n  time.sleep(0.01)\n  worst = max(worst, time.perf_counter() - a - 0.01)\nprint(worst)")
    p = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stop.wait()
    return 1e3 * float(p.communicate("")[0])


def health(args, folder):
    """GET /health within 50 ms while loading, during a 4,000-token prompt, in decode, and while a text goes to disk."""
    s = Server(real(args, folder), "--context", "8192", "--parallel", "4", "-t", str(args.threads), "--disk-cache", os.path.join(folder, "health"), wait=False)
    took, phase, stop, late = collections.defaultdict(list), ["loading"], threading.Event(), []
    control = threading.Thread(target=lambda: late.append(lateness(stop)), daemon=True)
    control.start()

    def poll():
        while not stop.is_set():
            start = time.time()
            code = s.get("/health")[0]
            took[phase[0]].append(time.time() - start)
            if code == 200 and phase[0] == "loading":
                phase[0] = "idle"
            time.sleep(0.01)

    with s:
        t = threading.Thread(target=poll, daemon=True)
        t.start()
        while phase[0] == "loading":
            time.sleep(0.01)
        text, _ = long_prompt(s, args.prompt, 1)
        phase[0] = "prefill"
        stream = s.chat_stream(text, max_tokens=60, logit_bias=endless(s))
        events = stream.events()
        next(events)
        next(events)
        phase[0] = "decode"
        list(events)
        phase[0] = "writing"
        time.sleep(1)
        stop.set()
        t.join(10)
        control.join(10)
        s.stop()
    say("health", machine_late_ms=late[0])
    for name, times in took.items():
        say("health " + name, n=len(times), median_ms=1e3 * statistics.median(times), max_ms=1e3 * max(times))
    check(max(max(v) for v in took.values()) < 0.05, "an answer took 50 ms or more")


def rate(args, folder):
    """Tokens a second of 8 streams together against one alone."""
    with Server(real(args, folder), "--context", "1024", "--parallel", "8", "-t", str(args.threads)) as s:
        bias = endless(s)

        def contents(raw):
            return raw.count(b'"delta":{"content":"')

        def run(k):
            # prompts are read before the clock starts; events are only kept meanwhile: the clients share the server's cores
            times = []
            barrier = threading.Barrier(k)

            def one(i):
                stream = s.chat_stream(f"{i} tell me about " + WORDS[i], max_tokens=args.tokens, temperature=0, logit_bias=bias)
                raw = b""
                while not contents(raw):
                    raw += stream.r.read1(65536)
                before = contents(raw)
                barrier.wait()
                start, last = time.time(), 0.0
                while part := stream.r.read1(65536):
                    last = time.time()
                    raw += part
                check(raw.endswith(b"data: [DONE]\n\n") and contents(raw) >= args.tokens - 4, f"a stream of {args.tokens} tokens ended with {contents(raw)} events: {raw[-200:]}")
                times.append((contents(raw) - before, start, last))

            threads = [threading.Thread(target=one, args=(i,)) for i in range(k)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            check(len(times) == k, "a stream failed")
            return sum(n for n, _, _ in times) / (max(e for _, _, e in times) - min(b for _, b, _ in times))

        def steps(k):
            a = s.metrics()
            rate = run(k)
            b = s.metrics()
            decode = {n: b[n] - a[n] for n in ("gem_decode_seconds_total", "gem_batches_total")}
            return rate, 1e3 * decode["gem_decode_seconds_total"] / max(1, decode["gem_batches_total"])

        run(1)
        pairs = [(steps(1), steps(8)) for _ in range(args.repeat)]
        s.stop()
    for (one, one_ms), (eight, eight_ms) in pairs:
        say("rate", one_tokens_s=one, eight_tokens_s=eight, ratio=eight / one, one_step_ms=one_ms, eight_step_ms=eight_ms)
    ratio = statistics.median(eight / one for (one, _), (eight, _) in pairs)
    check(ratio >= 2, f"8 streams give {ratio:.2f} times the tokens of one, by the median of {len(pairs)} pairs")


def first(args, folder):
    """Time to the first token of a short request that comes during a 4,000-token prompt, in prefill batches."""
    worst = []
    with Server(real(args, folder), "--context", "8192", "--parallel", "2", "--batch", str(args.batch), "-t", str(args.threads)) as s:
        for i in range(args.repeat):
            text, n = long_prompt(s, args.prompt, 100 + i)
            a = s.chat_stream(text, max_tokens=2, cache_prompt=False)
            times = prefill_times(a, 3)
            batch = times[2][0] - times[1][0]
            start = time.time()
            b = s.chat_stream(f"{i} hi", max_tokens=1, cache_prompt=False, logit_bias=ENDLESS)
            next(e for e in b.events() if e != "[DONE]" and e["choices"] and e["choices"][0]["delta"].get("content"))
            worst.append(((time.time() - start) / batch, time.time() - start, batch))
            b.close()
            a.close()
            s.until_idle(60)
        s.stop()
    ratio, ttft, batch = max(worst)
    say("first", prompt_tokens=n, batch_ms=1e3 * batch, first_token_ms=1e3 * ttft, batches=ratio)
    check(ratio < 2, f"the first token took {ratio:.2f} prefill batches")


DRILLS = {f.__name__: f for f in (crowd, abandon, slow, garbage, cancel, health, rate, first)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="drills: " + "; ".join(f"{k}: {(f.__doc__ or 'streams, disconnects, cancels').strip().splitlines()[0]}" for k, f in DRILLS.items()))
    p.add_argument("drill", nargs="+", choices=[*DRILLS, "all"])
    p.add_argument("--minutes", type=float, default=1, help="of the crowd, half with a cache and half without")
    p.add_argument("--streams", type=int, default=64, help="clients of the crowd")
    p.add_argument("--connections", type=int, default=1000, help="abandoned ones")
    p.add_argument("--readers", type=int, default=32, help="slow ones")
    p.add_argument("--windows", type=int, default=4, help="pairs of calm and disturbed windows")
    p.add_argument("--window", type=float, default=4, help="seconds of a window")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--tokens", type=int, default=48, help="of a stream, for rate")
    p.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    p.add_argument("--repeat", type=int, default=2)
    p.add_argument("--model", help="for the drills but the crowd: a file, or one that was fetched")
    args = p.parse_args()
    args.path = args.model and (args.model if os.path.exists(args.model) else real_model(args.model))
    bad = 0
    for name in DRILLS if "all" in args.drill else args.drill:
        with tempfile.TemporaryDirectory() as folder:
            try:
                DRILLS[name](args, folder)
            except (Failed, AssertionError, StopIteration) as e:
                print(f"{name}: FAILED: {e or type(e).__name__}", flush=True)
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
