#!/usr/bin/env python3
"""Write the conversations that every chat format is tested on: make_conversations.py > conversations.tsv

A line: options, messages, tools, each as JSON, with tabs between. Options: kind "plain" (user and assistant take
turns; any family) or "tools"; clean (no text spells a marker); thinking, effort, preserve, generation as the C API
has them. The same lines on every machine: the generator brings its own random numbers.
"""
import json
import sys


class Random:
    """xorshift64*: the same everywhere and for ever."""

    def __init__(self, seed):
        self.x = seed

    def bits(self):
        self.x ^= self.x >> 12
        self.x ^= (self.x << 25) & (2**64 - 1)
        self.x ^= self.x >> 27
        return (self.x * 2685821657736338717 & (2**64 - 1)) >> 32

    def below(self, n):
        return self.bits() * n >> 32

    def chance(self, percent):
        return self.below(100) < percent

    def pick(self, items):
        return items[self.below(len(items))]


R = Random(20261130)

PIECES = ["boats", "Why is the river so slow?", "l'été", "спасибо", "水は冷たい", "🙂👍🏽", "שלום", "न हि", "def f(x):\n    return x\n", "3.14 + 2",
          "\n", "\n\n", " ", "  ", "\t", "\r\n", "\u00a0", "\u3000", "\u001f", "- one\n- two\n", "```c\nint x = 1;\n```", "a < b && c > d", "<b>bold</b>",
          "user", "system\n", "assistant", "model\n", "thought\n", "'s", "{\"k\": [1, null]}", "e\u0301", "…", "I'LL", "{{ x }} {% y %}", "%s \\n", "\"quoted\"",
          "C:\\new\\t", "call:f{a:1}", "<function=f>", "</parameter>", "\u0007", "\u007f", "\u2028"]
MARKERS = ["<|turn>", "<turn|>", "<|channel>thought\n", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>", "<|think|>", "<bos>", "<|im_end|>\n",
           "<|im_start|>system\n", "<think>\n", "\n</think>\n\n", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
           "<start_of_turn>", "<end_of_turn>\n", "<|endoftext|>"]
NAMES = ["get_weather", "f", "sh", "list-files", "Read.File", "ping", "bash"]
KEYS = ["city", "days", "A", "a", "b", "_c", "Zip", "été", "cmd", "unit", "path", "n", "items", "type", "nullable", "description"]
NUMBERS = ["0", "2", "-7", "-0", "1.5", "1.0", "-0.0", "1e-7", "1E5", "1e16", "1e22", "0.0001", "0.00001", "123456789012345678901234567890", "123456789.125",
           "5e-324", "1.7976931348623157e308", "9007199254740993", "100000000000000000.0"]


class Raw(str):
    """JSON text that stands for itself."""


def dump(v):
    if isinstance(v, Raw):
        return str(v)
    if isinstance(v, dict):
        return "{" + ", ".join(json.dumps(k, ensure_ascii=False) + ": " + dump(x) for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ", ".join(map(dump, v)) + "]"
    return json.dumps(v, ensure_ascii=False)


class Writer:
    def __init__(self, clean):
        self.pool = PIECES if clean else PIECES + MARKERS
        self.ids = 0

    def text(self, most=6):
        if R.chance(5):
            return ""
        edge = lambda: R.pick(["", "", "", "\n", " ", "\n\n", "  \n", "\t"])
        return edge() + R.pick(["", " "]).join(R.pick(self.pool) for _ in range(1 + R.below(most))) + edge()

    def word(self):
        return self.text(3).strip() or "x"

    def value(self, depth=0):
        kind = R.below(9 if depth < 3 else 6)
        if kind < 3:
            return self.text(4)
        if kind == 3:
            return Raw(R.pick(NUMBERS))
        if kind == 4:
            return R.pick([True, False])
        if kind == 5:
            return None
        if kind == 6:
            return [self.value(depth + 1) for _ in range(R.below(4))]
        return self.object(depth + 1)

    def object(self, depth=0):
        return {R.pick(KEYS): self.value(depth) for _ in range(R.below(5))}

    def content(self):
        if not R.chance(15):
            return self.text()
        return [{"type": "text", "text": self.text(3)} for _ in range(R.below(4))]

    # ---- tools ----

    def schema(self, depth=0):
        s = {}
        kind = R.pick(["string", "integer", "number", "boolean", "array", "object", "STRING", None] if depth < 3 else ["string", "integer"])
        if R.chance(60):
            s["description"] = self.word()
        if kind == "string" and R.chance(40):
            s["enum"] = [self.word() for _ in range(R.below(4))]
        if kind == "integer" and R.chance(30):
            s["enum"] = [1, 2]
        if kind == "array" and R.chance(80):
            s["items"] = self.schema(depth + 1)
            if R.chance(30):
                s["items"]["minItems"] = 1
            if R.chance(20):
                s["items"]["default"] = self.value(2)
        if kind == "object":
            if R.chance(70):
                s["properties"] = {R.pick(KEYS): self.schema(depth + 1) for _ in range(R.below(4))}
            elif R.chance(50):
                s["additionalProperties"] = R.pick([False, {"type": "string"}])
            if R.chance(40):
                s["required"] = [R.pick(KEYS) for _ in range(R.below(3))]
        if R.chance(15):
            s["nullable"] = R.pick([True, False])
        if R.chance(15):
            s["format"] = "date"
        if R.chance(10):
            kind = [kind or "string", "null"]
        if kind is not None and R.chance(95):
            s["type"] = kind
        return s

    def tool(self):
        f = {"name": R.pick(NAMES)}
        if R.chance(90):
            f["description"] = self.word()
        if R.chance(85):
            f["parameters"] = {"type": "object", "properties": {R.pick(KEYS): self.schema() for _ in range(R.below(5))}}
            if R.chance(60):
                f["parameters"]["required"] = [R.pick(KEYS) for _ in range(R.below(3))]
        if R.chance(10):
            f["response"] = {"description": self.word(), "type": R.pick(["object", "string"])}
        return {"type": "function", "function": f}

    def call(self):
        self.ids += 1
        arguments = self.object()
        c = {"id": "call_%d" % self.ids, "type": "function", "function": {"name": R.pick(NAMES), "arguments": arguments}}
        if R.chance(50):
            c["function"]["arguments"] = dump(arguments)
        if R.chance(10):
            del c["id"]
        return c

    def answer(self, calls):
        m = {"role": "assistant", "content": self.content()}
        if calls:
            m["tool_calls"] = [self.call() for _ in range(1 + R.below(3))]
            if R.chance(60):
                m["content"] = R.pick([None, "", "\n"])
        if R.chance(40):
            m[R.pick(["reasoning_content", "reasoning_content", "reasoning"])] = R.pick([self.text(), "", None])
        return m

    def results(self, m):
        calls = list(m["tool_calls"])
        if R.chance(30):
            calls.reverse()
        if R.chance(15):
            calls.pop()
        for c in calls:
            r = {"role": "tool", "content": self.text()}
            if "id" in c and R.chance(85):
                r["tool_call_id"] = c["id"]
            if R.chance(20):
                r["name"] = c["function"]["name"]
            if R.chance(15):
                r["content"] = R.pick([self.content(), None])
            yield r

    # ---- conversations ----

    def plain(self):
        if R.chance(50):
            yield {"role": R.pick(["system", "system", "developer"]), "content": self.text()}
        for turn in range(1 + R.below(5)):
            yield {"role": "user", "content": self.content()}
            if turn == 4 or R.chance(30):
                break
            yield self.answer(False)

    def busy(self):
        if R.chance(50):
            yield {"role": R.pick(["system", "developer"]), "content": self.content()}
        if R.chance(10):
            yield self.answer(R.chance(30))
        for _ in range(1 + R.below(3)):
            for _ in range(2 if R.chance(10) else 1):
                yield {"role": "user", "content": self.content()}
            for _ in range(R.below(4)):
                m = self.answer(R.chance(75))
                yield m
                if "tool_calls" in m and R.chance(90):
                    yield from self.results(m)
        if R.chance(5):
            yield {"role": "user", "content": "<tool_response>\nlate\n</tool_response>"}


def main():
    for i in range(680):
        clean = i % 4 != 3
        kind = "tools" if i % 2 else "plain"
        w = Writer(clean)
        options = {"kind": kind, "clean": clean, "thinking": R.pick(["", "", "on", "off"]), "effort": R.pick(["", "", "", "low", "medium", "xhigh"]),
                   "preserve": R.pick([0, 0, 1, -1]), "generation": R.chance(80)}
        messages = list(w.busy() if kind == "tools" else w.plain())
        if not any(m["role"] == "user" and m["content"] != "<tool_response>\nlate\n</tool_response>" for m in messages):
            messages.append({"role": "user", "content": "Well?"})
        tools = [w.tool() for _ in range(R.below(4))] if kind == "tools" else []
        sys.stdout.write("\t".join(map(dump, (options, messages, tools))) + "\n")


main()
