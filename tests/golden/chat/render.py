#!/usr/bin/env python3
"""Render seeded conversations with a file's own chat template: render.py TEMPLATE [COUNT]

Prints one JSON object a line: {"messages": [...], "text": ...}. Contents spell no markers, so that the text
with markers parsed has one right answer. Exits with 77 when jinja2 is not installed.
"""
import json
import random
import sys

try:
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

R = random.Random(31)

PIECES = ["boats", "Why is the river so slow?", "l'été", "спасибо", "水は冷たい", "🙂👍🏽", "שלום", "न हि", "def f(x):\n    return x\n", "3.14 + 2",
          "\n", "\n\n", " ", "  ", "\t", "\r\n", "\u00a0", "- one\n- two\n", "```c\nint x = 1;\n```", "a < b && c > d", "<b>bold</b>", "user", "system\n",
          "assistant", "'s", "{\"k\": [1, null]}", "\u2581", "e\u0301", "…", "I'LL", "{{ x }} {% y %}", "%s \\n"]


def content():
    if R.random() < 0.05:
        return ""
    edge = lambda: R.choice(["", "", "", "\n", " ", "\n\n", "  \n", "\t"])
    return edge() + R.choice(["", " "]).join(R.choice(PIECES) for _ in range(R.randint(1, 7))) + edge()


def conversation():
    messages = []
    if R.random() < 0.5:
        messages.append({"role": "system", "content": content()})
    for turn in range(R.randint(1, 6)):
        messages.append({"role": "user", "content": content()})
        if R.random() < 0.8:
            messages.append({"role": "assistant", "content": content()})
        if R.random() < 0.1:
            messages.append({"role": "system", "content": content()})
    if R.random() < 0.1:
        messages.insert(0, {"role": "assistant", "content": content()})
    return messages


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as f:
        template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(f.read())
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 300):
        messages = conversation()
        text = template.render(messages=messages, add_generation_prompt=True)
        print(json.dumps({"messages": messages, "text": text}))


main()
