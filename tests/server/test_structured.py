"""Structured output and tools: answers held to schemas, on random weights, which follow nothing by themselves."""
import json

import pytest
from serving import text_of, user

STRICT = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 150},
          "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, "mood": {"anyOf": [{"const": "good"}, {"type": "null"}]}},
          "required": ["name", "age", "tags", "mood"], "additionalProperties": False}


def fmt(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "person", "strict": strict, "schema": schema}}


@pytest.mark.parametrize("seed", range(4))
def test_schema_holds_under_random_weights(server, seed):
    _, _, body = server.chat("a person", response_format=fmt(STRICT), temperature=1.0, seed=seed, max_tokens=200, top_k=0, top_p=1.0)
    choice = body["choices"][0]
    if choice["finish_reason"] == "length":
        pytest.skip("cut")
    value = json.loads(choice["message"]["content"])
    assert list(value) == ["name", "age", "tags", "mood"]
    assert len(value["name"]) <= 12 and 1 <= value["age"] <= 150 and len(value["tags"]) <= 3
    assert set(value["tags"]) <= {"a", "b"} and value["mood"] in ("good", None)
    assert choice["finish_reason"] == "stop"
    streamed = text_of(server.chat_stream("a person", response_format=fmt(STRICT), temperature=1.0, seed=seed, max_tokens=200, top_k=0, top_p=1.0).all())
    assert streamed == choice["message"]["content"]


def test_json_object(server):
    _, _, body = server.chat(response_format={"type": "json_object"}, max_tokens=60)
    assert body["choices"][0]["message"]["content"].startswith("{")
    _, _, body = server.chat(response_format={"type": "json_object", "schema": {"const": {"a": [1]}}})
    assert body["choices"][0]["message"]["content"] == '{"a":[1]}' and body["choices"][0]["finish_reason"] == "stop"
    assert server.chat(response_format={"type": "text"}, max_tokens=1)[0] == 200


@pytest.mark.parametrize("bad,word", [
    ({"type": "sql"}, "type"), ({"type": "json_schema", "json_schema": {"schema": 123}}, ""),
    (fmt({"type": 123}), "type"), (fmt({"type": "hiccup"}), "type"),
    (fmt({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}), "/properties/a"),
])
def test_bad_schemas_are_400(server, bad, word):
    code, _, body = server.chat(response_format=bad, max_tokens=1)
    assert code == 400 and word in body["error"]["message"], body


def test_parse_with_pydantic(client):
    from pydantic import BaseModel

    class Point(BaseModel):
        x: bool
        label: None

    r = client.chat.completions.parse(model="tiny", messages=user("a point"), response_format=Point, max_tokens=200)
    assert isinstance(r.choices[0].message.parsed, Point)


# ---- with the real 0.5B ----

BASH = {"type": "function", "function": {"name": "bash", "description": "Run a shell command.", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}, "timeout_seconds": {"type": "integer", "minimum": 1}}, "required": ["command"]}}}
READ = {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}


def calls_of(events):
    calls = {}
    for e in events:
        if e == "[DONE]":
            continue
        for c in e["choices"]:
            for t in c["delta"].get("tool_calls") or []:
                assert isinstance(t["index"], int)
                if "id" in t:
                    assert t["index"] not in calls and t["type"] == "function" and t["function"]["name"]
                    calls[t["index"]] = {"id": t["id"], "name": t["function"]["name"], "arguments": ""}
                else:
                    assert set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}
                calls[t["index"]]["arguments"] += t["function"]["arguments"]
    return calls


def test_tool_call_streamed_and_whole(coder):
    ask = {"messages": user('Call bash with command "echo marker42 > out.txt"'), "tools": [BASH, READ], "max_tokens": 100}
    out = coder.stream("/v1/chat/completions", dict(ask, stream=True)).all()
    calls = calls_of(out)
    assert [c["name"] for c in calls.values()] == ["bash"]
    arguments = json.loads(calls[0]["arguments"])
    assert arguments["command"] == "echo marker42 > out.txt" and arguments.get("timeout_seconds", 1) >= 1
    assert [c["finish_reason"] for e in out if e != "[DONE]" for c in e["choices"] if c["finish_reason"]] == ["tool_calls"]
    assert text_of(out) == ""
    deltas = [d for e in out if e != "[DONE]" for c in e["choices"] for d in c["delta"].get("tool_calls", [])]
    assert len(deltas) > 4  # arguments come while they are drawn, bare JSON too
    _, _, body = coder.post("/v1/chat/completions", ask)
    message = body["choices"][0]["message"]
    assert message["content"] is None and body["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == arguments
    assert message["tool_calls"][0]["id"].startswith("call_") and message["tool_calls"][0]["id"] != calls[0]["id"]
    # the result goes back; the prompt of the first turn is not computed again
    follow = ask["messages"] + [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "(no output)"}]
    _, _, after = coder.post("/v1/chat/completions", dict(ask, messages=follow, max_tokens=8))
    u = after["usage"]
    assert u["prompt_tokens_details"]["cached_tokens"] >= 0.9 * body["usage"]["prompt_tokens"]


def test_calls_go_back_as_they_were_written(coder):
    ask = {"messages": user('Call bash with command "echo marker42 > out.txt"'), "tools": [BASH], "tool_choice": "required", "max_tokens": 100}
    first = coder.post("/v1/chat/completions", ask)[2]
    message = first["choices"][0]["message"]
    call = message["tool_calls"][0]["function"]
    follow = dict(ask, messages=ask["messages"] + [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "(no output)"}],
                  tool_choice="auto", max_tokens=8)
    after = coder.post("/v1/chat/completions", follow)[2]
    known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    assert known - 2 <= after["usage"]["prompt_tokens_details"]["cached_tokens"] <= known
    # whatever the client made of its JSON
    written = coder.post("/apply-template", follow)[2]["prompt"]
    call["arguments"] = json.dumps(json.loads(call["arguments"]), indent=3)
    assert coder.post("/apply-template", follow)[2]["prompt"] == written
    # without cache it is rendered anew, and one that was changed is another call
    assert coder.post("/apply-template", dict(follow, cache_prompt=False))[0] == 200
    call["arguments"] = json.dumps({"command": "ls"})
    turn = coder.post("/apply-template", follow)[2]["prompt"].split("<|im_start|>assistant")[1]
    assert "marker42" not in turn and '"command": "ls"' in turn


def test_tool_choice(coder):
    ask = {"messages": user("What is the capital of France?"), "tools": [BASH, READ], "max_tokens": 60}
    for choice, names in (("required", {"bash", "read"}), ({"type": "function", "function": {"name": "read"}}, {"read"})):
        _, _, body = coder.post("/v1/chat/completions", dict(ask, tool_choice=choice))
        c = body["choices"][0]
        if c["finish_reason"] != "length":
            assert c["message"]["tool_calls"][0]["function"]["name"] in names and c["finish_reason"] == "tool_calls"
            json.loads(c["message"]["tool_calls"][0]["function"]["arguments"])
    _, _, body = coder.post("/v1/chat/completions", dict(ask, tool_choice="none"))
    assert "tool_calls" not in body["choices"][0]["message"] and body["choices"][0]["message"]["content"]
    code, _, body = coder.post("/v1/chat/completions", dict(ask, tool_choice={"type": "function", "function": {"name": "nope"}}))
    assert code == 400 and body["error"]["param"] == "tool_choice"


def test_cut_call_is_length(coder):
    out = coder.stream("/v1/chat/completions", {"messages": user("Write a file."), "tools": [BASH], "tool_choice": "required", "max_tokens": 12, "stream": True}).all()
    assert [c["finish_reason"] for e in out if e != "[DONE]" for c in e["choices"] if c["finish_reason"]] == ["length"]


def test_json_that_names_no_tool_is_content(coder):
    ask = {"messages": user('Reply with exactly this JSON and nothing else: {"city": "Paris"}'), "tools": [BASH], "max_tokens": 40}
    _, _, body = coder.post("/v1/chat/completions", ask)
    m = body["choices"][0]["message"]
    if "tool_calls" not in m:
        assert "Paris" in m["content"]


def test_stream_helper_with_tools(coder):
    with coder.openai().chat.completions.stream(model="m", messages=user('Call bash with command "ls"'), tools=[BASH], max_tokens=80) as s:
        for _ in s:
            pass
        final = s.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "bash" and json.loads(call.function.arguments)["command"] == "ls" and call.id.startswith("call_")
    assert final.choices[0].message.role == "assistant"
