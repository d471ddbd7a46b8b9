"""The shape of chat streams: each test is one of the facts that break real clients."""
import json

import pytest
from serving import comments, text_of, user


@pytest.fixture(scope="module")
def events(server):
    s = server.chat_stream("Count to twenty.", max_tokens=24, stream_options={"include_usage": True}, return_progress=True)
    assert s.status == 200
    out = s.all()
    return s, out


def chunks(out):
    return [e for e in out if e != "[DONE]"]


def test_headers(events):
    s, _ = events
    assert s.headers["content-type"] == "text/event-stream"
    assert s.headers["cache-control"] == "no-cache" and s.headers["x-accel-buffering"] == "no"
    assert s.headers["x-request-id"].startswith("req-")


def test_role_once_and_first(events):
    _, out = events
    roles = [i for i, e in enumerate(chunks(out)) for c in e["choices"] if "role" in c["delta"]]
    assert roles == [0]
    assert out[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert out[0]["choices"][0]["index"] == 0


def test_one_id_model_and_time(events):
    _, out = events
    assert len({(e["id"], e["created"], e["model"], e["object"]) for e in chunks(out)}) == 1
    assert out[0]["id"].startswith("chatcmpl-") and out[0]["object"] == "chat.completion.chunk"
    assert isinstance(out[0]["created"], int)


def test_usage_last_and_only_empty_choices(events):
    _, out = events
    assert out[-1] == "[DONE]"
    assert [i for i, e in enumerate(chunks(out)) if not e["choices"]] == [len(out) - 2]
    usage = out[-2]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == 24
    assert all(isinstance(v, int) for v in (usage["prompt_tokens"], usage["completion_tokens"]))
    assert all("usage" not in e for e in chunks(out)[:-1])


def test_no_usage_unless_asked(server):
    for more in ({}, {"stream_options": None}, {"stream_options": {"include_usage": False}}):
        out = server.chat_stream(max_tokens=3, **more).all()
        assert all(e["choices"] and "usage" not in e for e in chunks(out))


def test_finish_reason_once(events):
    _, out = events
    reasons = [c["finish_reason"] for e in chunks(out) for c in e["choices"]]
    assert [r for r in reasons if r] == ["length"]
    last = [e for e in chunks(out) if e["choices"]][-1]["choices"][0]
    assert last["delta"] == {} and last["finish_reason"] == "length"


def test_deltas_never_empty(events):
    _, out = events
    for e in chunks(out)[1:]:
        for c in e["choices"]:
            assert c["delta"].get("content", "x") != ""


def test_progress(events):
    _, out = events
    p = [e["prompt_progress"] for e in out if e != "[DONE]" and "prompt_progress" in e]
    assert len(p) >= 2 and p[0]["processed"] == p[0]["cache"]
    assert len({(x["total"], x["cache"]) for x in p}) == 1
    done = [x["processed"] for x in p]
    assert done == sorted(set(done)) and done[-1] == p[0]["total"] == out[-2]["usage"]["prompt_tokens"]
    assert all(e["choices"][0]["finish_reason"] is None for e in out if e != "[DONE]" and "prompt_progress" in e)


def test_comments_are_large_enough(server):
    s = server.chat_stream("hello " * 250, max_tokens=2, cache_prompt=False, stream_options={"include_usage": True})
    n = s.all()[-2]["usage"]["prompt_tokens"]
    assert n > 1024
    found = comments(s.raw)
    assert all(len(c) + 2 >= 16 for c in found)
    # one after every completed prefill batch, here of 512 rows
    assert len([c for c in found if c.startswith(b": gem prefill")]) >= 1 + n // 512


def test_same_text_streamed_or_not(server):
    for more in ({"max_tokens": 30}, {"max_tokens": 30, "temperature": 1.0, "seed": 7}):
        _, _, whole = server.chat("Tell me something.", **more)
        assert text_of(server.chat_stream("Tell me something.", **more).all()) == whole["choices"][0]["message"]["content"]


def test_utf8_never_broken(server):
    """Random bytes come out of random weights; what clients read is UTF-8 without NUL all the same."""
    for seed in range(4):
        s = server.chat_stream("bytes", max_tokens=80, temperature=2.0, top_k=0, top_p=1.0, seed=seed)
        s.all()
        text = s.raw.decode("utf-8")
        assert "\\u0000" not in text and "\\ud8" not in text.lower()


def test_choices(server):
    out = chunks(server.chat_stream("dice", n=3, max_tokens=5, temperature=1.5, seed=3, stream_options={"include_usage": True}).all())
    for i in range(3):
        mine = [c for e in out for c in e["choices"] if c["index"] == i]
        assert "role" in mine[0]["delta"] and [c["finish_reason"] for c in mine if c["finish_reason"]] == ["length"]
    assert out[0]["choices"][0]["index"] == 0
    assert out[-1]["usage"]["completion_tokens"] == 15
    texts = {i: "".join(c["delta"].get("content") or "" for e in out for c in e["choices"] if c["index"] == i) for i in range(3)}
    assert len(set(texts.values())) > 1
    _, _, whole = server.chat("dice", n=3, max_tokens=5, temperature=1.5, seed=3)
    assert [c["message"]["content"] for c in whole["choices"]] == [texts[i] for i in range(3)]


def test_timings_finite(server):
    out = chunks(server.chat_stream(max_tokens=1, timings_per_token=True).all())
    t = out[-1]["timings"]
    assert t["predicted_n"] == 1 and t["predicted_per_second"] == 0
    assert t["prompt_n"] + t["cache_n"] > 0 and all(v >= 0 for v in t.values())


def test_events_are_one_line_json_without_event_names(events):
    s, _ = events
    for line in s.raw.split(b"\n"):
        assert line == b"" or line.startswith((b"data: ", b": "))
        assert not line.startswith(b"event:")
