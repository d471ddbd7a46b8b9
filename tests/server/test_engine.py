"""Queue, cancel, batches, prefix cache: what the engine owes to requests that share it."""
import json
import os
import socket
import threading
import time
from urllib.parse import unquote

import openai
import pytest
from serving import ENDLESS, Server, best_under, in_time, text_of, until, user

LONG = " ".join(f"word{i}" for i in range(80))


def slow(tmp, *options):
    """A model slow enough to be caught at work."""
    from serving import synthetic

    layers = "2" if os.environ.get("GEM_TEST_SHORT") == "1" else "8"  # sanitizers make it slow enough
    return synthetic(tmp, "slow", "qwen2", "--layers", layers, "--d-model", "512", "--d-ff", "2048", "--heads", "8", "--kv-heads", "2")


@pytest.fixture(scope="module")
def one(models):
    """Its answers end with the context, long after whoever looks at them."""
    with Server(slow(models), "--context", "8192", "--parallel", "1", "--queue", "2", "-T", "0", "--batch", "64") as s:
        yield s


def endless(server, content="count", **more):
    return server.chat_stream(content, logit_bias=ENDLESS, **more)


def test_streams_end_when_the_peer_goes(one):
    def attempt():
        before = one.cancelled()
        s = endless(one)
        events = s.events()
        for _ in range(4):
            next(events)
        s.close()
        took = one.until_idle()
        until(lambda: one.cancelled() == before + 1)
        return took

    best_under(2, attempt)
    assert one.chat(max_tokens=1)[0] == 200


def half_request(server, content="count", **more):
    raw = json.dumps(dict({"messages": user(content), "logit_bias": ENDLESS}, **more)).encode()
    s = socket.create_connection((server.host, server.port), timeout=60)
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    return s


def test_unstreamed_queued_and_prefilling_requests_end_too(one):
    def since(t):
        return time.monotonic() - t

    def attempt():
        before, gone = one.metrics(), one.cancelled()
        a = half_request(one)
        one.until_at(running=1, queued=0)
        b = half_request(one, LONG)
        one.until_at(running=1, queued=1)
        closed = time.monotonic()
        b.close()  # queued
        one.until_at(running=1, queued=0)
        took = [since(closed)]
        until(lambda: one.cancelled() == gone + 1)
        assert one.metrics()["gem_queue_wait_seconds_count"] == before["gem_queue_wait_seconds_count"] + 1  # it never ran
        closed = time.monotonic()
        a.close()  # unstreamed
        one.until_idle()
        took.append(since(closed))
        until(lambda: one.cancelled() == gone + 2)
        before = one.metrics()["gem_generated_tokens_total"]
        c = half_request(one, LONG * 4, cache_prompt=False)
        one.until_at(running=1, queued=0)
        closed = time.monotonic()
        c.close()  # prefilling, if it came in time
        one.until_idle()
        took.append(since(closed))
        until(lambda: one.cancelled() == gone + 3)
        return max(took) if one.metrics()["gem_generated_tokens_total"] == before else float("inf")

    best_under(2, attempt)


def test_a_cancelled_prompt_never_reaches_its_last_record(one):
    n = one.post("/v1/chat/completions/input_tokens", {"messages": user(LONG * 3 + "!")})[2]["input_tokens"]

    def last_records(s):
        return len(one.log(rf"{s.headers['x-request-id']} prefill {n}/{n} tokens \(100%\)"))

    def attempt():
        s = one.chat_stream(LONG * 3 + "!", max_tokens=5, cache_prompt=False)
        for line in s.lines():
            if line.startswith(b": gem prefill") and not line.startswith(b": gem prefill 0/"):
                break
        s.close()
        one.until_idle()
        return not last_records(s)

    in_time(attempt)
    s = one.chat_stream(LONG * 3 + "!", max_tokens=5, cache_prompt=False)
    assert s.all()[-1] == "[DONE]" and last_records(s) == 1


def test_cancel_by_id(one):
    def attempt():
        s = endless(one)
        events = s.events()
        next(events)
        start = time.monotonic()
        assert one.request("DELETE", "/v1/requests/" + s.headers["x-request-id"])[0] == 200
        rest = list(events)
        assert rest[-1]["error"]["code"] == "request_cancelled"
        one.until_idle()
        return time.monotonic() - start

    best_under(1, attempt)
    assert one.request("DELETE", "/v1/requests/req-nonesuch")[0] == 404


def test_queue_is_bounded(one):
    held = [endless(one)]
    one.until_at(running=1, queued=0)
    held += [half_request(one, stream=True) for _ in range(2)]
    one.until_at(running=1, queued=2)
    code, headers, body = one.chat(max_tokens=1)
    assert code == 429 and int(headers["retry-after"]) >= 1
    assert body["error"]["code"] == "queue_full" and body["error"]["type"] == "rate_limit_error"
    with pytest.raises(openai.RateLimitError):
        one.openai().chat.completions.create(model="m", messages=user("hi"))
    assert one.get("/health")[0] == 200 and one.get("/v1/models")[0] == 200  # never behind the engine
    for h in held:
        h.close()
    one.until_idle()


def test_queued_streams_have_headers_and_comments(one):
    def attempt():
        a = endless(one)
        one.until_at(running=1, queued=0)
        start = time.monotonic()
        b = one.chat_stream("later", max_tokens=1)
        first = next(b.lines())
        took = time.monotonic() - start
        assert b.status == 200 and first.startswith(b": gem ") and len(first) >= 16
        one.until_at(running=1, queued=1)
        a.close()
        assert b.all()[-1] == "[DONE]"
        return took

    best_under(1, attempt)


def test_health_while_busy(one):
    def attempt():
        s = endless(one, LONG * 3, cache_prompt=False)
        worst = 0
        for _ in range(20):
            start = time.monotonic()
            assert one.get("/health")[0] == 200
            worst = max(worst, time.monotonic() - start)
            time.sleep(0.01)
        one.until_at(running=1, queued=0)
        s.close()
        one.until_idle()
        return worst

    best_under(0.5, attempt)  # bounded here for busy machines; docs/serving.md has the figure


def test_slots_show_the_work(one):
    s = endless(one)
    next(s.events())
    slot = one.get("/slots")[2][0]
    assert slot["is_processing"] and slot["id_task"] == s.headers["x-request-id"] and slot["n_prompt_tokens"] > 0
    s.close()
    until(lambda: not one.get("/slots")[2][0]["is_processing"])
    one.until_idle()


def test_answers_do_not_depend_on_company(server):
    prompts = ["alpha", "beta " * 20, "gamma " * 100, "delta"] * 2
    options = dict(max_tokens=30, temperature=0.9, seed=5)
    alone = [server.chat(p, cache_prompt=False, **options)[2]["choices"][0]["message"]["content"] for p in prompts]
    together = [None] * len(prompts)

    def run(i):
        together[i] = text_of(server.chat_stream(prompts[i], **options).all())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert together == alone


def test_short_prompt_beside_a_long_one(models):
    """A short request that comes during another's long prefill gets its first token before that ends."""
    with Server(slow(models), "--context", "8192", "--parallel", "2", "-T", "0", "--batch", "128") as s:
        n = s.post("/v1/chat/completions/input_tokens", {"messages": user(LONG * 4)})[2]["input_tokens"]

        def attempt():
            a = endless(s, LONG * 4, cache_prompt=False)
            for line in a.lines():
                if line.startswith(b": gem prefill") and not line.startswith(b": gem prefill 0/"):
                    break
            assert s.chat_stream("hi", max_tokens=1).all()[-1] == "[DONE]"
            first = not s.log(rf"{a.headers['x-request-id']} prefill {n}/{n} tokens \(100%\)")
            a.close()
            s.until_idle()
            return first

        in_time(attempt)


# ---- prefix cache ----

def ask(server, messages, **more):
    code, _, body = server.post("/v1/chat/completions", dict({"messages": messages, "max_tokens": 8, "temperature": 0}, **more))
    assert code == 200, body
    u = body["usage"]
    return body["choices"][0]["message"]["content"], u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("kind", ["tiny", "tiny_windowed"])
def test_prefix_cache(kind, request):
    with Server(request.getfixturevalue(kind), "--context", "4096", "-T", "0", "--batch", "128") as s:
        cold, n, cached = ask(s, user(LONG), cache_prompt=False)
        assert cached == 0
        text, n1, cached = ask(s, user(LONG))
        assert (text, n1, cached) == (cold, n, 0)  # the first request ever
        text, n2, cached = ask(s, user(LONG))
        assert text == cold and n2 == n and n - 64 <= cached < n  # a tile at most
        # ten turns: only what is new is computed
        messages, before = user(LONG + " again"), None
        for turn in range(10):
            text, n, cached = ask(s, messages)
            assert text == ask(s, messages, cache_prompt=False)[0]
            if before is not None:
                assert n - cached <= n - before + 8 + 64, (turn, n, cached, before)
            before = n
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"turn {turn}"}]
        reused = s.log(r"prefix hit: reused \d+ tokens, appended \d+ tokens")
        assert len(reused) >= 10
        m = s.metrics()
        assert 0 < m["gem_prefix_cache_hits_total"] < m["gem_prefix_cache_queries_total"]


def test_prefix_miss_names_the_token(tiny):
    """A client that changes a word of its first message is told which, in the header and the log; one that goes on is not.
    What is held may be somebody else's: texts are shown where the server was told so."""
    old, new = (user(LONG + f" at 10:4{minute} a; b% " + LONG) for minute in (1, 2))
    with Server(tiny, "--context", "4096", "-T", "0", "--verbose") as plain, \
            Server(tiny, "--context", "4096", "-T", "0", "--verbose", "--log-prompts") as s:
        def miss(messages, server=s, **more):
            code, headers, body = server.post("/v1/chat/completions", dict({"messages": messages, "max_tokens": 2}, **more))
            assert code == 200, body
            return headers.get("x-gem-prefix-miss")

        def tokens(messages):
            text = s.post("/apply-template", {"messages": messages})[2]["prompt"]
            return s.post("/tokenize", {"content": text, "add_special": True, "parse_special": True})[2]["tokens"]

        def text(tokens):
            return s.post("/detokenize", {"tokens": tokens})[2]["content"]

        assert miss(old) is None  # nothing is held yet
        assert miss(old) is None  # the same again
        assert miss(new, cache_prompt=False) is None
        m = dict(part.split("=", 1) for part in miss(new).split("; "))
        a, b = tokens(new), tokens(old)
        at = next(i for i in range(len(a)) if a[i] != b[i])
        assert (int(m["token"]), int(m["of"])) == (at, len(a)) and int(m["entry"]) >= len(b)
        assert unquote(m["prompt"]) == text(a[at : at + 6])
        assert unquote(m["held"]) == text(b[at : at + 6]) != text(a[at : at + 6])
        assert len(s.log(rf"prefix miss: token={at}; of={len(a)}; .*held=")) == 1
        assert miss(old, plain) is None
        assert miss(new, plain) == f"token={at}; of={len(a)}; entry={m['entry']}"
        assert len(plain.log(rf"prefix miss: token={at}; of={len(a)}; entry={m['entry']}$")) == 1


def test_prefix_is_kept_after_a_cancel(one):
    s = one.chat_stream(LONG * 3 + " kept", max_tokens=5)
    for line in s.lines():
        if line.startswith(b": gem prefill") and int(line.split()[3].split(b"/")[0]) >= 256:
            break
    s.close()
    one.until_idle()
    assert ask(one, user(LONG * 3 + " kept"))[2] >= 256


@pytest.mark.long
def test_pages_run_out_gracefully(tiny):
    """More distinct prompts than the cache has pages for: old ones go, every answer is right."""
    with Server(tiny, "--context", "900", "--parallel", "2", "--cached", "0", "-T", "0") as s:
        prompts = [f"{i} " + LONG for i in range(12)]
        first = [ask(s, user(p))[0] for p in prompts]
        assert [ask(s, user(p))[0] for p in prompts] == first
        assert [ask(s, user(p), cache_prompt=False)[0] for p in prompts] == first


@pytest.mark.long
def test_long_prompts_log_progress(tiny):
    with Server(tiny, "--context", "8192", "-T", "0") as s:
        text = "z" * 8000
        n = 0
        while True:
            n = s.post("/v1/chat/completions/input_tokens", {"messages": user(text)})[2]["input_tokens"]
            if n < 6000:
                break
            text = text[: len(text) * 5900 // n]
        assert n > 4096
        ask(s, user(text))
        assert len(s.log(rf"prefill 4096/{n} tokens \(\d+%\)")) == 1
        assert len(s.log(rf"prefill {n}/{n} tokens \(100%\)")) == 1


def test_receipts_reproduce(server, tiny):
    """The same request gives the same tokens whatever the cache, the batch or the threads; the receipt says so."""
    def receipt(s, **more):
        return s.chat("tell", max_tokens=20, temperature=1, seed=4, gem_receipt=True, **more)[2]["gem_receipt"]

    a = receipt(server)
    assert len(a["tokens_sha256"][0]) == 64 and a["seed"] == 4 and len(a["manifest_sha256"]) == 64
    assert receipt(server) == a == receipt(server, cache_prompt=False)
    assert "gem_receipt" not in server.chat(max_tokens=1)[2]
    with Server(tiny, "--context", "1024", "-T", "0", "-t", "1", "--batch", "7") as s:
        assert receipt(s) == a
    out = server.chat_stream("tell", max_tokens=20, temperature=1, seed=4, gem_receipt=True, stream_options={"include_usage": True}).all()
    assert out[-2]["gem_receipt"] == a
    assert receipt(server, n=2)["tokens_sha256"][0] == a["tokens_sha256"][0]
