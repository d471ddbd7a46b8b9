#!/usr/bin/env python3
"""Render conversations.tsv with a template through Jinja: render.py FAMILY TEMPLATE [--golden]

FAMILY: gemma3 (only lines of kind "plain"), gemma4, chatml, qwen35. Prints one JSON string a line, the rendered text;
with --golden the first 16 hex digits of its SHA-256 instead. Exits with 77 when jinja2 is not installed.

The environment is that of transformers' apply_chat_template: sandboxed, trim_blocks, lstrip_blocks, tojson without
HTML escapes. What clients send and a template cannot take is first put into the form that it takes, as gem does:
arguments as objects, developer as system, lists of text joined where a template wants strings.
"""
import hashlib
import json
import os
import sys

try:
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

EFFORTS = {"": None, "low": "low", "medium": "medium", "xhigh": "xhigh"}


def fail(message):
    raise ValueError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = fail
    return env


def joined(content):
    if isinstance(content, list):
        return "".join(p["text"] for p in content)
    return "" if content is None else content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def prepared(family, message):
    m = dict(message)
    if "tool_calls" in m:
        m["tool_calls"] = calls = json.loads(json.dumps(m["tool_calls"]))
        for c in calls:
            if isinstance(c["function"]["arguments"], str):
                c["function"]["arguments"] = json.loads(c["function"]["arguments"])
    if family != "gemma4":
        if m["role"] == "developer":
            m["role"] = "system"
        if m.get("reasoning") is not None and m.get("reasoning_content") is None:
            m["reasoning_content"] = m["reasoning"]
        if m["role"] == "tool" or family == "chatml":
            m["content"] = joined(m["content"])
    if family == "gemma3" and m["content"] is None:
        m["content"] = ""
    return m


def switches(family, options, source):
    """What gem's options mean to a template."""
    on = {"": None, "on": True, "off": False}[options["thinking"]]
    effort = EFFORTS[options["effort"]]
    if on is None and effort:
        on = True
    s = {}
    if on is not None:
        s["enable_thinking"] = on
    if effort:
        s["reasoning_effort"] = effort
    if options["preserve"]:
        s["preserve_thinking"] = options["preserve"] > 0
    return s


def render(family, template, source, options, messages, tools):
    messages = [prepared(family, m) for m in messages]
    s = switches(family, options, source)
    go = lambda generation: template.render(messages=messages, tools=tools or None, add_generation_prompt=generation, bos_token="<bos>", **s)
    text = go(options["generation"])
    if family == "gemma4" and options["generation"]:
        # a turn that was closed after tool results gets the opener of a fresh answer (docs/chat.md)
        bare = go(False)
        if bare.endswith("<turn|>\n"):
            text = bare + "<|turn>model\n"
            if not s.get("enable_thinking") and "thought\\n<channel|>" in source:
                text += "<|channel>thought\n<channel|>"
    return text


def main():
    family, path = sys.argv[1:3]
    with open(path, encoding="utf-8", newline="") as f:
        source = f.read()
    template = environment().from_string(source)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "conversations.tsv"), encoding="utf-8", newline="\n") as f:
        for line in f.read().split("\n")[:-1]:
            options, messages, tools = map(json.loads, line.split("\t"))
            if family == "gemma3" and options["kind"] != "plain":
                continue
            text = render(family, template, source, options, messages, tools)
            print(hashlib.sha256(text.encode()).hexdigest()[:16] if "--golden" in sys.argv else json.dumps(text))


main()
