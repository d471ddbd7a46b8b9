"""The other dialects: /v1/completions, /v1/messages, /v1/responses."""
import json

import openai
import pytest
from serving import user


# ---- completions ----

def test_completions(server, client):
    r = client.completions.create(model="tiny", prompt="once upon", max_tokens=6, temperature=0)
    assert r.object == "text_completion" and r.id.startswith("cmpl-") and r.usage.completion_tokens == 6
    streamed = "".join(c.choices[0].text for c in client.completions.create(model="tiny", prompt="once upon", max_tokens=6, temperature=0, stream=True))
    assert streamed == r.choices[0].text
    ids = server.post("/tokenize", {"content": "once upon", "add_special": True})[2]["tokens"]
    assert client.completions.create(model="tiny", prompt=ids, max_tokens=6, temperature=0).choices[0].text == r.choices[0].text
    both = client.completions.create(model="tiny", prompt=["once upon", "two"], max_tokens=6, temperature=0)
    assert [c.index for c in both.choices] == [0, 1] and both.choices[0].text == r.choices[0].text
    echo = client.completions.create(model="tiny", prompt="once upon", max_tokens=6, temperature=0, echo=True)
    assert echo.choices[0].text == "once upon" + r.choices[0].text
    lp = client.completions.create(model="tiny", prompt="once upon", max_tokens=4, temperature=0, logprobs=2).choices[0].logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == 4 and all(x <= 0 for x in lp.token_logprobs)
    assert client.completions.create(model="tiny", prompt="x", max_tokens=0).choices[0].finish_reason == "length"


@pytest.mark.parametrize("body,param", [({}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [1.5]}, "prompt"),
                                        ({"prompt": [[99999999]]}, "prompt"), ({"prompt": "x", "logprobs": 9}, "logprobs"), ({"prompt": "x", "suffix": "y"}, "suffix")])
def test_completions_refused(server, body, param):
    code, _, answer = server.post("/v1/completions", body)
    assert code == 400 and answer["error"]["param"] == param, answer


# ---- messages ----

def named(stream):
    """(event name, data) pairs of a stream with event lines."""
    out, name = [], None
    for line in stream.lines():
        if line.startswith(b"event: "):
            name = line[7:].decode()
        elif line.startswith(b"data: "):
            out.append((name, json.loads(line[6:])))
            assert out[-1][1]["type"] == name
    stream.close()
    return out


def test_messages_whole_and_streamed(server):
    ask = {"model": "tiny", "max_tokens": 12, "temperature": 0, "system": [{"type": "text", "text": "x-anthropic-billing-header: cc=1"}, {"type": "text", "text": "Be brief."}],
           "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]}
    code, _, body = server.post("/v1/messages", ask, {"x-api-key": "k", "anthropic-version": "2023-06-01"})
    assert code == 200 and body["type"] == "message" and body["role"] == "assistant" and body["stop_reason"] == "max_tokens"
    assert body["content"][0]["type"] == "text" and body["usage"]["output_tokens"] == 12
    events = named(server.stream("/v1/messages", dict(ask, stream=True)))
    assert events[0][0] == "message_start" and events[-1][0] == "message_stop" and events[-2][0] == "message_delta"
    assert events[0][1]["message"]["content"] == [] and events[0][1]["message"]["usage"]["input_tokens"] >= 1
    text = "".join(d["delta"]["text"] for n, d in events if n == "content_block_delta")
    assert text == body["content"][0]["text"]
    assert [d["index"] for n, d in events if n == "content_block_start"] == [0] == [d["index"] for n, d in events if n == "content_block_stop"]
    assert events[-2][1]["delta"]["stop_reason"] == "max_tokens" and events[-2][1]["usage"]["output_tokens"] == 12
    # the changing first line of a client does not reach the prompt: the prefix is found again
    ask["system"][0]["text"] = "x-anthropic-billing-header: cc=2"
    u = server.post("/v1/messages", ask)[2]["usage"]
    assert u["input_tokens"] == 1 and u["cache_read_input_tokens"] > 5
    n = server.post("/v1/messages/count_tokens", ask)[2]["input_tokens"]
    assert n == u["input_tokens"] + u["cache_read_input_tokens"]


def test_messages_stop_sequence_and_history(server):
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "calling"},
               {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
               "content": [{"type": "text", "text": "fine"}]}, {"type": "text", "text": "next"}]}]
    whole = server.post("/v1/messages", {"messages": history, "max_tokens": 30, "temperature": 0})[2]["content"][0]["text"]
    stop = whole[8:11]
    _, _, body = server.post("/v1/messages", {"messages": history, "max_tokens": 30, "temperature": 0, "stop_sequences": [stop]})
    assert body["stop_reason"] == "stop_sequence" and body["stop_sequence"] == stop and body["content"][0]["text"] == whole[: whole.index(stop)]


def test_messages_errors(server):
    assert server.post("/v1/messages", {"messages": [], "max_tokens": 3})[0] == 200  # as llama.cpp: an empty turn
    for body in ({}, {"messages": [{"role": "robot", "content": "x"}]}, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}):
        code, _, answer = server.post("/v1/messages", body)
        assert code == 400 and answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"


def test_messages_tools(coder):
    ask = {"max_tokens": 80, "messages": user('Call bash with command "ls"'), "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 31999},
           "tools": [{"name": "bash", "description": "Run a shell command.", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}},
                     {"type": "web_search_20250305", "name": "web_search"}]}
    _, _, body = coder.post("/v1/messages", ask)
    use = [b for b in body["content"] if b["type"] == "tool_use"][0]
    assert body["stop_reason"] == "tool_use" and use["name"] == "bash" and use["input"] == {"command": "ls"}
    events = named(coder.stream("/v1/messages", dict(ask, stream=True)))
    start = [d["content_block"] for n, d in events if n == "content_block_start"]
    assert start[-1]["type"] == "tool_use" and start[-1]["name"] == "bash" and start[-1]["input"] == {}
    assert json.loads("".join(d["delta"]["partial_json"] for n, d in events if n == "content_block_delta" and d["delta"]["type"] == "input_json_delta")) == {"command": "ls"}


# ---- responses ----

def test_responses_whole_and_streamed(server, client):
    r = client.responses.create(model="tiny", input="hi", instructions="Be brief.", max_output_tokens=10, temperature=0)
    assert r.id.startswith("resp_") and r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"
    assert r.output[0].type == "message" and r.output_text and r.usage.output_tokens == 10
    events = list(client.responses.create(model="tiny", input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], instructions="Be brief.",
                                          max_output_tokens=10, temperature=0, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == r.output_text == events[-4].text
    assert events[-1].response.output[0].content[0].text == r.output_text and events[-1].response.usage.input_tokens == r.usage.input_tokens
    assert len({e.item_id for e in events if hasattr(e, "item_id")}) == 1


def test_responses_progress_and_timings(server):
    ask = {"input": "word " * 100, "max_output_tokens": 6, "stream": True, "return_progress": True, "timings_per_token": True}
    events = [d for _, d in named(server.stream("/v1/responses", ask))]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    progress = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    assert {e["type"] for e in events if "prompt_progress" in e} == {"response.in_progress"}
    done = [p["processed"] for p in progress]
    assert done == sorted(set(done)) and done[0] == progress[0]["cache"] and done[-1] == progress[0]["total"] > 100
    timings = [e["timings"] for e in events if e["type"] == "response.output_text.delta"] + [events[-1]["timings"]]
    assert len(timings) > 1 and timings[-1]["predicted_n"] == 6 and all(t["prompt_per_second"] > 0 for t in timings)


def test_responses_format_and_refusals(server, client):
    r = client.responses.create(model="tiny", input="x", text={"format": {"type": "json_schema", "name": "n", "schema": {"const": {"ok": True}}, "strict": True}})
    assert json.loads(r.output_text) == {"ok": True} and r.status == "completed"
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="tiny", input="x", previous_response_id="resp_1")
    for body in ({}, {"input": 3}, {"input": [{"type": "computer_call"}]}):
        assert server.post("/v1/responses", body)[0] == 400


def test_responses_tools(coder):
    tool = {"type": "function", "name": "bash", "description": "Run a shell command.", "strict": False,
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}
    ask = dict(model="m", input='Call bash with command "ls"', tools=[tool, {"type": "web_search"}], temperature=0, max_output_tokens=80)
    c = coder.openai()
    r = c.responses.create(**ask)
    call = [o for o in r.output if o.type == "function_call"][0]
    assert call.name == "bash" and json.loads(call.arguments) == {"command": "ls"} and r.status == "completed"
    events = list(c.responses.create(stream=True, **ask))
    added = [e.item for e in events if e.type == "response.output_item.added"][-1]
    assert added.type == "function_call" and added.name == "bash" and added.call_id and added.arguments == ""
    assert json.loads("".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")) == {"command": "ls"}
    follow = [{"role": "user", "content": ask["input"]}, {"type": "function_call", "call_id": call.call_id, "name": "bash", "arguments": call.arguments},
              {"type": "function_call_output", "call_id": call.call_id, "output": "out.txt"}]
    after = c.responses.create(**dict(ask, input=follow, max_output_tokens=4))
    assert after.usage.input_tokens_details.cached_tokens >= 0.9 * r.usage.input_tokens
