"""The openai Python package as people use it. Tools and schemas are in test_structured.py."""
import json
import threading

import openai
import pytest
from serving import ENDLESS, Server, best_under, in_time, user


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
    content = r.choices[0].logprobs.content
    assert len(content) == 8 and all(len(t.top_logprobs) == 5 and t.logprob <= 0 for t in content)
    assert b"".join(bytes(t.bytes) for t in content).decode(errors="replace") == r.choices[0].message.content


def test_json_object(client):
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=300, temperature=0, response_format={"type": "json_object"})
    assert r.choices[0].message.content[0] == "{"
    if r.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(r.choices[0].message.content), dict)


def test_roles_parts_and_a_round_trip(client):
    """developer, content as parts, null content beside calls, a tool's result."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": " on"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "fine"}]
    r = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4)
    assert r.usage.completion_tokens == 4
    one = client.chat.completions.create(model="tiny", messages=[dict(messages[0], role="system"), {"role": "user", "content": "go on"}, *messages[2:]], max_tokens=4)
    assert one.choices[0].message.content == r.choices[0].message.content and one.usage.prompt_tokens == r.usage.prompt_tokens


def test_length_stop_seed_bias(client):
    r = client.chat.completions.create(model="tiny", messages=user("hi"), max_completion_tokens=3)
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 3

    def ask(**more):
        return client.chat.completions.create(model="tiny", messages=user("hi"), max_completion_tokens=30, **{"temperature": 1, "seed": 3, **more}).choices[0]

    text = ask().message.content
    assert ask().message.content == text and ask(seed=4).message.content != text
    cut = ask(stop=[text[5:8]])
    assert cut.finish_reason == "stop" and cut.message.content == text[: text.index(text[5:8])]
    assert len(set(ask(logit_bias={"65": 100}, logprobs=True).logprobs.content[i].token for i in range(5))) == 1


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


def test_errors_of_key_size_and_queue(tiny):
    with Server(tiny, "--context", "8192", "--max-body", "1", "--parallel", "1", "--queue", "0", env={"GEM_API_KEY": "k"}) as s:
        with pytest.raises(openai.AuthenticationError) as e:
            s.openai().models.list()
        assert e.value.code == "invalid_api_key"
        c = s.openai(api_key="k")
        with pytest.raises(openai.APIStatusError) as e:
            c.chat.completions.create(model="tiny", messages=user("x" * 1200000))
        assert e.value.status_code == 413

        def attempt():
            with c.chat.completions.create(model="tiny", messages=user("hi"), stream=True, logit_bias=ENDLESS) as busy:
                next(iter(busy))
                try:
                    c.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=1)
                    return False
                except openai.RateLimitError as e:
                    assert e.code == "queue_full" and int(e.response.headers["retry-after"]) >= 1
                    return True

        in_time(attempt)


def test_close_after_three_chunks(server, client):
    def attempt():
        before = server.cancelled()
        s = client.chat.completions.create(model="tiny", messages=user("hi"), max_tokens=1900, stream=True,
                                           logit_bias=ENDLESS)
        for i, _ in enumerate(s):
            if i == 3:
                break
        s.close()
        took = server.until_idle()
        return took if server.went(before) else float("inf")

    best_under(1.5, attempt)


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
    def attempt():
        """Seconds from the client's limit to an engine that is free, by a cancel and not by an end."""
        before = server.cancelled()
        try:
            client.with_options(timeout=0.05).chat.completions.create(
                model="tiny", messages=user("hello " * 30), max_tokens=1700, logit_bias=ENDLESS)
        except openai.APITimeoutError:
            took = server.until_idle()
            return took if server.went(before) else float("inf")
        return float("inf")

    best_under(1.5, attempt)


def test_failed_stream_is_an_error(tiny):
    """An error event in a stream raises APIError with its code: here the server is told to end."""
    def attempt():
        with Server(tiny, "--context", "8192", "--drain", "0.1", "-T", "0") as s:
            stream = s.openai().chat.completions.create(model="tiny", messages=user("hi"), max_tokens=8000, stream=True,
                                                          logit_bias=ENDLESS)
            try:
                for i, _ in enumerate(stream):
                    if i == 2:
                        s.terminate()
                return False
            except openai.APIError as e:
                assert e.code == "shutting_down" and e.type == "unavailable_error"
                return True

    in_time(attempt)
