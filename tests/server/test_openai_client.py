"""The openai Python package as people use it."""
import json
import threading
import time

import openai
import pytest
from serving import ENDLESS, Server, user


def test_plain(client):
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=5)
    assert r.choices[0].message.role == "assistant" and r.usage.completion_tokens == 5
    assert r.object == "chat.completion" and r.system_fingerprint and r.choices[0].finish_reason == "length"


def test_stream_with_usage(client):
    s = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=5, stream=True, stream_options={"include_usage": True})
    chunks = list(s)
    assert chunks[-1].usage is not None and len({c.id for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"


def test_stream_helper(client):
    with client.chat.completions.stream(model="tiny", messages=user("hi"), max_tokens=20, stop=["\x01"],
                                        stream_options={"include_usage": True}, extra_body={"return_progress": True}) as s:
        for _ in s:
            pass
        snapshot = s.current_completion_snapshot
    assert snapshot.choices[0].message.role == "assistant"
    assert snapshot.usage.completion_tokens == 20


def test_logprobs(client):
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=8, logprobs=True, top_logprobs=5)
    assert len(r.choices[0].logprobs.content) == 8 and len(r.choices[0].logprobs.content[0].top_logprobs) == 5


def test_length_stop_seed_bias(client):
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_completion_tokens=3)
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 3
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_completion_tokens=3, stop=["\x01"], seed=3,
                                       logit_bias={"1": -100}, temperature=1)
    assert r.choices[0].finish_reason == "length"


def test_errors(server, client):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="tiny", messages=user("x" * 60000))
    assert e.value.code == "context_length_exceeded" and e.value.type == "exceed_context_size_error"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="tiny", messages=user("x"), temperature=-3)
    assert e.value.param == "temperature" and e.value.request_id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nonesuch")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="x")


def test_close_after_three_chunks(server, client):
    s = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=1900, stream=True,
                                       logit_bias=ENDLESS)
    for i, _ in enumerate(s):
        if i == 3:
            break
    s.close()
    assert server.until_idle(1.5) < 1.5


def test_eight_threads(server):
    out = []

    def run(i):
        c = server.openai()
        out.append(c.chat.completions.create(model="tiny", messages=user(f"hi {i % 2}"), max_tokens=20, temperature=0).choices[0].message.content)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(out) == 8 and len(set(out)) == 2


def test_models(client):
    assert [m.id for m in client.models.list().data] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_timeout_cancels_on_the_server(server, client):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.05).chat.completions.create(
            model="tiny", messages=user("hello " * 30), max_tokens=1700, logit_bias=ENDLESS)
    assert server.until_idle(1.5) < 1.5


def test_failed_stream_is_an_error(tiny):
    """An error event in a stream raises APIError with its code: here the server is told to end."""
    with Server(tiny, "--context", "8192", "--drain", "0.1", "-T", "0") as s:
        stream = s.openai().chat.completions.create(model="tiny", messages=user("hi"), max_tokens=8000, stream=True,
                                                      logit_bias=ENDLESS)
        with pytest.raises(openai.APIError) as e:
            for i, _ in enumerate(stream):
                if i == 2:
                    s.terminate()
        assert e.value.code == "shutting_down" and e.value.type == "unavailable_error"
