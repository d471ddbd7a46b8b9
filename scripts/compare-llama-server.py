#!/usr/bin/env python3
"""compare-llama-server.py [options] GEM LLAMA_SERVER MODEL
gem serve against a peer's llama-server on the same file, from a client's side: time to the first token and to the
last one, for 1, 4 and 8 streams at once, in rounds that begin with one server and with the other in turn. Every stream
has a prompt of its own, the answers' end tokens are forbidden, so both servers do the same work. Prints one JSON
document with every sample; progress goes to stderr.
  --streams N,N..  default 1,4,8     --rounds N   default 4
  --prompt N       words of a prompt, default 120      --tokens N   generated ones, default 32
  --threads N      default 2         --wrap WORD  runs each server through that command, which may have arguments
  --only N         one round, of this number           --servers WORD,WORD  of gem and llama, default both
Exit: 0 measured, 2 usage, 4 a run failed."""
import argparse
import http.client
import json
import random
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time

WORDS = "river stone light paper window garden silver engine morning letter bridge winter copper signal market".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(kind, o, n):
    port = free_port()
    context = 2048
    if kind == "gem":
        command = [o.gem, "serve", o.model, "--port", str(port), "--context", str(context), "--parallel", str(n), "--threads", str(o.threads)]
    else:
        command = [o.llama, "-m", o.model, "--port", str(port), "-c", str(context * n), "-np", str(n), "-t", str(o.threads), "--no-warmup"]
    p = subprocess.Popen(shlex.split(o.wrap) + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while True:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return p, port
        except OSError:
            pass
        if p.poll() is not None or time.time() > deadline:
            p.kill()
            sys.exit(f"{kind}: the server did not start")
        time.sleep(0.05)


def ask(port, o, seed, out):
    words = random.Random(seed)
    text = " ".join(words.choice(WORDS) for _ in range(o.prompt))
    body = {"messages": [{"role": "user", "content": text + "\nGo on with this list."}], "stream": True, "temperature": 0, "max_tokens": o.tokens,
            "stream_options": {"include_usage": True}, "logit_bias": {"151645": -100, "151643": -100}}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.perf_counter()
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    r, first, usage = c.getresponse(), None, None
    for line in r:
        if not line.startswith(b"data: {"):
            continue
        e = json.loads(line[6:])
        usage = e.get("usage") or usage
        if first is None and e["choices"] and e["choices"][0]["delta"].get("content"):
            first = time.perf_counter() - began
    out.append({"ttft_s": first, "total_s": time.perf_counter() - began, "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0), "tokens": usage["completion_tokens"]})


def measure(kind, o, n, round_number):
    p, port = start(kind, o, n)
    try:
        for i in range(n):  # a server's first tokens touch its memory
            ask(port, argparse.Namespace(prompt=40, tokens=4), 1000 + i, [])
        out = []
        threads = [threading.Thread(target=ask, args=(port, o, 100 * round_number + i, out)) for i in range(n)]
        began = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wall = time.perf_counter() - began
        if len(out) != n:
            sys.exit(f"{kind}: {n - len(out)} of {n} streams failed")
        return {"server": kind, "streams": n, "round": round_number, "wall_s": wall, "ttft_mean_s": statistics.mean(x["ttft_s"] for x in out),
                "ttft_last_s": max(x["ttft_s"] for x in out), "tokens_per_s": sum(x["tokens"] for x in out) / wall, "stream": out}
    finally:
        p.terminate()
        p.wait(30)


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    for name, default in (("--streams", "1,4,8"), ("--rounds", 4), ("--prompt", 120), ("--tokens", 32), ("--threads", 2), ("--wrap", ""), ("--servers", "gem,llama"), ("--only", None)):
        a.add_argument(name, default=default, type=int if isinstance(default, int) or name == "--only" else str)
    for name in ("gem", "llama", "model"):
        a.add_argument(name)
    o = a.parse_args()
    samples = []
    for r in [o.only] if o.only is not None else range(o.rounds):
        for n in map(int, o.streams.split(",")):
            for kind in o.servers.split(",")[:: 1 if r % 2 == 0 else -1]:
                samples.append(measure(kind, o, n, r))
                s = samples[-1]
                print(f"round {r} {kind:5} {n} streams: first {s['ttft_mean_s']:.2f} s, all {s['wall_s']:.2f} s, {s['tokens_per_s']:.1f} tok/s", file=sys.stderr)
    print(json.dumps({"schema": "gem-compare-server/1", "model": o.model, "prompt_words": o.prompt, "tokens": o.tokens, "threads": o.threads, "samples": samples}))


main()
