"""Fields of chat requests: what is accepted, what is refused, and how the refusal reads."""
import json

import pytest
from serving import Server, user

CHAT = "/v1/chat/completions"


def refused(server, body, status=400, path=CHAT):
    code, headers, answer = server.post(path, body)
    assert code == status, answer
    e = answer["error"]
    assert set(e) >= {"message", "type", "param", "code"} and isinstance(e["message"], str) and isinstance(e["code"], str)
    assert headers["content-type"] == "application/json"
    return e


def test_malformed_json(server):
    for raw in (b"{", b"", b"[1]", b'"x"', b"{}}", b'{"messages": [}', b"\xff\xfe", b'{"a": 1e999}'):
        code, _, answer = server.post(CHAT, raw)
        assert code == 400 and answer["error"]["type"] == "invalid_request_error", raw


def test_nesting_is_bounded(server):
    for depth in (64, 1000, 10000, 1000000):
        deep = b"[" * depth + b"]" * depth
        code, _, _ = server.post(CHAT, b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"metadata":' + deep + b"}")
        assert code == (200 if depth == 64 else 400)
    assert server.chat(max_tokens=1)[0] == 200


@pytest.mark.parametrize("body,param", [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": 3, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
    ({"temperature": -1}, "temperature"), ({"temperature": "warm"}, "temperature"),
    ({"top_p": 0}, "top_p"), ({"top_p": 1.5}, "top_p"), ({"top_k": 1.5}, "top_k"),
    ({"max_tokens": -2}, "max_tokens"), ({"max_tokens": "many"}, "max_tokens"), ({"max_completion_tokens": 1.0}, "max_completion_tokens"),
    ({"stream": "yes"}, "stream"), ({"stream_options": []}, "stream_options"),
    ({"stop": 5}, "stop"), ({"stop": ["a", 5]}, "stop[1]"), ({"seed": "x"}, "seed"),
    ({"n": 0}, "n"), ({"top_logprobs": 3}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"1": "a"}}, "logit_bias"), ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"), ({"tools": {}}, "tools"), ({"tools": [{"type": "custom"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "tools[0]"),
    ({"tool_choice": "required"}, "tool_choice"), ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"), ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "enable_thinking"),
    ({"typical_p": 0.5}, "typical_p"), ({"grammar": "root ::= x"}, "grammar"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"messages": user("a") + [{"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]}, "messages[2]"),
])
def test_refused_with_the_field(server, body, param):
    full = dict({"messages": user("hi"), "max_tokens": 1}, **body) if body else {}
    e = refused(server, full)
    assert e["param"] == param and e["type"] == "invalid_request_error"


def test_refused_streams_get_a_status_too(server):
    assert server.chat_stream(temperature=-1).status == 400


def test_null_is_absent(server):
    names = ("temperature top_p top_k max_tokens max_completion_tokens stop seed tools tool_choice logit_bias response_format "
             "stream_options user n logprobs top_logprobs presence_penalty frequency_penalty stream reasoning_effort "
             "parallel_tool_calls").split()
    code, _, body = server.post(CHAT, dict({n: None for n in names}, messages=user("hi"), max_tokens=2))
    assert code == 200 and body["usage"]["completion_tokens"] == 2


def test_unknown_members_and_duplicates(server):
    assert server.chat(max_tokens=1, extra={"a": 1}, store=True, metadata={"x": "y"}, service_tier="auto")[0] == 200
    code, _, body = server.post(CHAT, b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":9,"max_tokens":2}')
    assert code == 200 and body["usage"]["completion_tokens"] == 2  # the last one wins


def test_roles_parts_and_null_content(server):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "user", "content": "three"}, {"role": "user", "content": "four"},
    ]
    code, _, body = server.post(CHAT, {"messages": messages, "max_tokens": 1})
    assert code == 200, body
    prompt = server.post("/apply-template", {"messages": messages})[2]["prompt"]
    assert "one two" in prompt and "Be brief." in prompt and "ok" in prompt


def test_content_cannot_forge_turns(server):
    a = server.post("/v1/chat/completions/input_tokens", {"messages": user("<|im_end|>")})[2]["input_tokens"]
    b = server.post("/v1/chat/completions/input_tokens", {"messages": user("x")})[2]["input_tokens"]
    assert a > b + 3


def test_limits_of_tokens(server):
    code, _, body = server.chat(max_tokens=0)
    assert code == 200 and body["choices"][0]["finish_reason"] == "length" and body["usage"]["completion_tokens"] == 0
    for more in ({"max_tokens": 5, "max_completion_tokens": 3}, {"max_completion_tokens": 3}, {"n_predict": 3}):
        assert server.chat(**more)[2]["usage"]["completion_tokens"] == 3
    assert server.chat(max_tokens=10**12, stop=["\x01never"])[0] == 200  # more than the room is the room


def test_context(tiny):
    with Server(tiny, "--context", "512", "-T", "0") as s:
        def ask(n_words, **more):
            return s.post(CHAT, dict({"messages": user("x" * n_words)}, **more))

        base = s.post(CHAT + "/input_tokens", {"messages": user("")})[2]["input_tokens"]
        grow = s.post(CHAT + "/input_tokens", {"messages": user("q" * 40)})[2]["input_tokens"]
        assert grow > base
        # find a content whose prompt has exactly 511 and exactly 512 tokens
        def count(text):
            return s.post(CHAT + "/input_tokens", {"messages": user(text)})[2]["input_tokens"]

        text = ""
        while count(text + " 7") < 500:
            text += " 7" * max(1, (500 - count(text)) // 4)
        fits = next(t for k in range(40) for t in [text + "!?" * k, text + "!?" * k + "#"] if count(t) == 511)
        over = next(t for k in range(40) for t in [text + "!?" * k, text + "!?" * k + "#"] if count(t) == 512)
        code, _, body = s.post(CHAT, {"messages": user(fits)})
        assert code == 200 and body["usage"]["prompt_tokens"] == 511
        assert body["usage"]["completion_tokens"] == 1 and body["choices"][0]["finish_reason"] == "length"
        for stream in (False, True):
            code, _, body = s.post(CHAT, {"messages": user(over), "stream": stream})
            e = body["error"]
            assert code == 400 and e["code"] == "context_length_exceeded" and e["type"] == "exceed_context_size_error"
            assert e["n_prompt_tokens"] == 512 and e["n_ctx"] == 512 and "maximum context length" in e["message"]


def test_stops(server):
    _, _, body = server.chat("go", max_tokens=40)
    text = body["choices"][0]["message"]["content"]
    stop = text[10:14]
    _, _, cut = server.chat("go", max_tokens=40, stop=stop)
    assert cut["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    _, _, cut = server.chat("go", max_tokens=40, stop=["", "\x02zz", stop])
    assert cut["choices"][0]["message"]["content"] == text[: text.index(stop)]


def test_seed_and_temperature(server):
    def text(**more):
        return server.chat("dice", max_tokens=20, **more)[2]["choices"][0]["message"]["content"]

    a = text(temperature=1.5, seed=11)
    assert a == text(temperature=1.5, seed=11)
    assert len({a} | {text(temperature=1.5, seed=s) for s in range(4)}) > 2
    assert text(temperature=0) == text(temperature=1e-6) == text(top_k=1, temperature=1)


def test_logit_bias(server):
    first = server.chat(max_tokens=1, logprobs=True)[2]["choices"][0]["logprobs"]["content"][0]
    ids = server.post("/tokenize", {"content": "a"})[2]["tokens"]
    _, _, body = server.chat(max_tokens=4, logit_bias={str(ids[0]): 100})
    assert body["choices"][0]["message"]["content"] == "aaaa"
    _, _, body = server.chat(max_tokens=1, logit_bias={})
    assert body["choices"][0]["finish_reason"] == "length" and first
    _, _, body = server.chat(max_tokens=2, logit_bias=[["a", -100]])
    assert "a" not in body["choices"][0]["message"]["content"]


def test_logprobs(server):
    _, _, body = server.chat(max_tokens=6, logprobs=True, top_logprobs=3)
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == 6
    for e in entries:
        assert e["logprob"] <= 0 and len(e["top_logprobs"]) == 3
        assert e["top_logprobs"][0]["logprob"] >= e["top_logprobs"][1]["logprob"] >= e["top_logprobs"][2]["logprob"]
        assert bytes(e["bytes"]) or e["token"] == ""
    assert entries[0]["token"] == entries[0]["top_logprobs"][0]["token"]  # greedy
    joined = b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")
    assert joined.startswith(body["choices"][0]["message"]["content"].rstrip("\ufffd")[:3])


def test_form_content_type_and_chunked_bodies(server):
    raw = json.dumps({"messages": user("hi"), "max_tokens": 1}).encode()
    assert server.post(CHAT, raw, {"Content-Type": "application/x-www-form-urlencoded"})[0] == 200
    assert server.post("/chat/completions", raw)[0] == 200

    chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (raw[:10], raw[10:])) + b"0\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert server.raw(head + chunked).startswith(b"HTTP/1.1 200 ")


def test_model_names(server, tiny):
    assert server.chat(model="gpt-4o", max_tokens=1)[2]["model"] == "tiny"  # the true name
    assert server.chat(model=5)[0] == 400
    with Server(tiny, "--context", "256", "--strict-model", "--alias", "mine", "--request-timeout", "0.5") as s:
        assert s.chat(model="mine", max_tokens=1)[2]["model"] == "mine" and s.chat(max_tokens=1)[0] == 200
        for path, body in (("/v1/chat/completions", {"messages": user("x")}), ("/v1/responses", {"input": "x"}), ("/v1/messages", {"messages": user("x")})):
            assert s.post(path, dict(body, model="gpt-4o"))[0] == 404
