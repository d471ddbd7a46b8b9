"""The page at / in a real Chromium: what a person does and sees."""
import json
import re
import time

import pytest
from browser import Browser, program
from serving import ENDLESS, Server, best_under, synthetic

LONG = "Write every number from one to two thousand, each on a line of its own."


@pytest.fixture(scope="module")
def browser():
    path = program()
    if not path:
        pytest.skip("no Chromium on this machine (GEM_TEST_CHROMIUM names one)")
    b = Browser(path)
    yield b
    b.close()


@pytest.fixture
def page(browser, server):
    with open_page(browser, server) as p:
        yield p
        assert p.complaints() == []
        assert all(u.startswith((f"http://127.0.0.1:{server.port}/", "data:")) for u in p.requests())


def open_page(browser, server):
    p = browser.open(f"http://127.0.0.1:{server.port}/")
    p.until("ready && document.activeElement === input")
    return p


def send(page, text):
    page.type(text)
    page.press("Enter")


def answered(page, n=1):
    page.until(f"!running && document.querySelectorAll('article.assistant').length === {n}")


def set_field(page, name, value):
    page.value(f"form.elements[{json.dumps(name)}].value = {json.dumps(value)}")


def settings(page, **fields):
    page.click("#prefs")
    page.until("settings.open")
    for name, value in fields.items():
        set_field(page, name, value)
    page.click("dialog button.main")
    page.until("!settings.open && document.activeElement === input")


def test_headers_and_the_document_for_programs(server):
    status, h, raw = server.request("GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert status == 200 and h["content-type"] == "text/html; charset=utf-8"
    policy = h["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    assert not re.search(rb"""(src|href)=["'](https?:)?//""", raw)  # nothing from elsewhere
    assert server.get("/")[2]["name"] == "gem"
    assert server.request("HEAD", "/", headers={"Accept": "text/html"})[2] == b""


def test_send_and_stream(page):
    settings(page, max_tokens="200")
    page.value("""new MutationObserver(() => { (window.seen ||= new Set()).add(document.querySelector('article.assistant .body')?.innerText.length); })
        .observe(log, {subtree: true, childList: true, characterData: true})""")
    send(page, "hi")
    answered(page)
    assert page.value("seen.size") > 2  # it grew on the page, not at once; frames may join pieces
    assert page.text("article.user .body") == "hi"
    assert re.search(r"prompt tokens.*200 tokens at [\d.,]+/s.*first after", page.text(".assistant .foot"))
    assert "cut at the token limit" in page.text(".assistant .foot")
    assert page.value("input.value") == ""
    send(page, "and again")
    answered(page, 2)
    assert "reused" in page.text(".assistant:last-of-type .foot")
    page.goto(page.value("location.href"))  # the chat of a tab outlives a reload
    page.until("ready")
    assert page.value("document.querySelectorAll('article').length") == 4
    page.click("#fresh")
    assert page.value("document.querySelectorAll('article').length") == 0


@pytest.mark.parametrize("how", ["escape", "button"])
def test_stop(browser, models, how):
    slow = synthetic(models, "slow", "qwen2", "--layers", "8", "--d-model", "512", "--d-ff", "2048", "--heads", "8", "--kv-heads", "2")
    with Server(slow, "--context", "8192", "-T", "0") as server, open_page(browser, server) as page:
        def attempt():
            """Seconds from the stop to an engine that is free."""
            if page.value("chat.length"):
                page.click("#fresh")
            send(page, LONG)
            page.until("running?.firstAt && running.message.content.length > 20")
            start = time.monotonic()
            page.press("Escape") if how == "escape" else page.click("#send")
            answered(page)
            server.until_idle()
            return time.monotonic() - start

        best_under(2, attempt)
        assert page.text(".assistant .foot").count("stopped") == 1
        assert page.value("chat[1].content.length") > 20  # what was there stays
        assert page.value("document.activeElement === input") or how == "button"
        settings(page, max_tokens="5")
        send(page, "next")
        answered(page, 2)
        assert "5 tokens" in page.text(".assistant:last-of-type .foot")
        assert page.complaints() == []


def test_text_is_never_markup(page):
    settings(page, max_tokens="1")
    send(page, "<img src=x onerror=alert(1)>")
    answered(page)
    assert page.text("article.user .body") == "<img src=x onerror=alert(1)>"
    html = page.value("""markdown('# T\\n<script>x</' + 'script> **b** `<i>`\\n\\n- one\\n  - two\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n'
        + '\\n```c\\nint <x>;\\n```\\n[j](javascript:alert(1)) [k](https://example.org/a)', document.createElement('div')).outerHTML""")
    assert "<script" not in html and "&lt;script&gt;" in html and "<strong>b</strong>" in html
    assert "<code>&lt;i&gt;</code>" in html and "<li>one<ul><li>two</li></ul></li>" in html
    assert "<td>2</td>" in html and "int &lt;x&gt;;</code>" in html
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.org/a"]


def test_error_is_shown(page, server):
    send(page, "word " * 4000)
    answered(page)
    assert "exceeds the available context size" in page.text("[role=alert]")
    page.click(".user .foot button")  # edit: the text comes back, the failed turn goes
    assert page.value("input.value.length") > 10000 and page.value("document.querySelectorAll('article').length") == 0


def test_a_stream_that_ends_early_and_a_server_that_is_gone(browser, tiny):
    with Server(tiny, "--context", "8192", "-T", "0", "--drain", "0") as s, open_page(browser, s) as p:
        send(p, LONG)
        p.until("running?.firstAt")
        s.stop()
        answered(p)
        assert re.search("shutting down|connection ended|cannot be reached", p.text("[role=alert]"))
        p.until("!ready && document.querySelector('#state').innerText.includes('cannot be reached')")
        assert p.value("send.disabled")


def test_key(browser, tiny):
    with Server(tiny, "--context", "2048", "-T", "0", env={"GEM_API_KEY": "open sesame"}) as s, open_page(browser, s) as p:
        p.until("document.querySelector('#model').innerText.includes('key')")
        send(p, "hi")
        p.until("settings.open && document.activeElement.name === 'key'")  # asked for, where it goes
        set_field(p, "key", "open sesame")
        set_field(p, "max_tokens", "3")
        p.press("Enter")
        p.until("document.querySelector('#model').innerText === 'tiny'")
        p.click(".assistant .foot button")  # retry
        answered(p)
        assert "3 tokens" in p.text(".assistant .foot") and p.text("[role=alert]") == ""
        assert "sesame" not in p.value("JSON.stringify(localStorage)")


def test_queue_and_prompt_progress(browser, models):
    slow = synthetic(models, "slow", "qwen2", "--layers", "8", "--d-model", "512", "--d-ff", "2048", "--heads", "8", "--kv-heads", "2")
    with Server(slow, "--context", "8192", "-T", "0", "--parallel", "1") as s, open_page(browser, s) as p:
        p.value("""new MutationObserver(() => { (window.said ||= new Set()).add(document.querySelector('#state').innerText); })
            .observe(document.querySelector('#state'), {subtree: true, childList: true})""")
        other = s.chat_stream(LONG, logit_bias=ENDLESS)
        events = other.events()
        next(events)
        p.value("input.value = 'word '.repeat(1000); sendInput()")
        p.until("[...said].some(t => t.includes('number 1 in the queue'))")
        other.close()
        p.until("[...said].some(t => /Reading the prompt: [\\d,]+ of 5,\\d+ tokens, [\\d.,]+\\/s/.test(t))")
        p.click("#send")
        answered(p)


def test_tool_call(browser, coder):
    with open_page(browser, coder) as p:
        p.click("#prefs")
        p.click("#example")
        p.click("dialog button.main")
        p.until("!settings.open && document.activeElement === input")
        send(p, 'Call get_weather with city "Oslo"')
        answered(p)
        assert p.text(".call header b") == "get_weather"
        assert json.loads(p.text(".call pre")) == {"city": "Oslo"}
        p.until("document.activeElement.name === 'result'")  # the keyboard goes where the result is asked for
        p.type('{"temperature": 4}')
        p.value("prefs.max_tokens = '20'")
        p.click(".foot button.main")
        answered(p, 2)
        assert "4" in p.text(".call .given")
        assert p.value("chat.map(m => m.role).join()") == "user,assistant,tool,assistant"
        assert "reused" in p.text(".assistant:last-of-type .foot") and not p.text("[role=alert]")
        assert p.complaints() == []


def test_keyboard_and_reader(page):
    def tree():
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]

    nodes = tree()
    assert ("textbox", "Message") in nodes and ("log", "Conversation") in nodes
    assert all(name for role, name in nodes if role in ("button", "textbox", "link", "meter"))
    page.type("one")
    page.press("Enter", shift=True)
    page.type("two")
    assert page.value("input.value") == "one\ntwo" and not page.value("chat.length")
    settings(page, max_tokens="4")
    page.press("Enter")
    answered(page)
    assert page.value("document.querySelector('#voice').textContent")  # what a reader says
    assert ("article", "You") in tree() and ("article", "Model") in tree()
    names = []
    for _ in range(12):
        page.press("Tab")
        names.append(page.value("document.activeElement.innerText || document.activeElement.name || ''"))
    assert {"Settings", "New chat", "Edit", "Retry"} <= set(names)


def test_dark_and_light(page):
    def brightness():
        return sum(map(int, re.findall(r"\d+", page.value("getComputedStyle(document.body).backgroundColor"))[:3]))

    page.look(dark=False)
    assert brightness() > 700
    page.look(dark=True)
    assert brightness() < 120
    settings(page, theme="light")
    assert brightness() > 700
    settings(page, theme="")


def test_loading(browser, tiny):
    def attempt():
        started = time.monotonic()
        with Server(tiny, "--context", "2048", wait=False) as s, browser.open(f"http://127.0.0.1:{s.port}/") as p:
            p.until("ready")
            took = time.monotonic() - started
            assert p.text("#model") == "tiny"
            return took

    best_under(20, attempt)
