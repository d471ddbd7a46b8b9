"""browser.py: a headless Chromium, driven through its own protocol over two pipes; no package is needed.

source: https://chromedevtools.github.io/devtools-protocol/ (Target, Page, Runtime, Input, Network, Accessibility)"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time


def program():
    """Path of a Chromium, or None."""
    names = [os.environ.get("GEM_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, filter(None, names)) if path), None)


class Browser:
    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="gem-browser-")
        ours, theirs = os.pipe(), os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + self.folder, "--no-first-run",
                   "--disable-gpu", "--disable-extensions", "--disable-background-networking", "--disable-sync",
                   "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-proxy-server"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        # the browser reads commands from descriptor 3 and writes to 4
        command = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self.process = subprocess.Popen(["bash", "-c", command, "bash", path, *options, "about:blank"],
                                        pass_fds=(ours[0], theirs[1]), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.write = os.fdopen(ours[1], "wb", 0)
        self.read = os.fdopen(theirs[0], "rb", 0)
        self.answers, self.pages, self.next = {}, {}, 0
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        rest = b""
        while True:
            got = self.read.read(1 << 16)
            with self.news:
                if not got:
                    self.answers = None
                    self.news.notify_all()
                    return
                *whole, rest = (rest + got).split(b"\0")
                for message in map(json.loads, whole):
                    if "id" in message:
                        self.answers[message["id"]] = message
                    elif message.get("sessionId") in self.pages:
                        self.pages[message["sessionId"]].events.append(message)
                self.news.notify_all()

    def call(self, method, session=None, **params):
        with self.news:
            self.next += 1
            n = self.next
        message = {"id": n, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.write.write(json.dumps(message).encode() + b"\0")
        with self.news:
            assert self.news.wait_for(lambda: self.answers is None or n in self.answers, 120), f"{method}: no answer"
            assert self.answers is not None, "the browser is gone"
            answer = self.answers.pop(n)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url):
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, context, url)

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, "")}


class Page:
    def __init__(self, browser, session, context, url):
        self.browser, self.session, self.context, self.events = browser, session, context, []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.goto(url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def goto(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, r
        return r["result"].get("value")

    def until(self, expression, seconds=120):
        """Wait until the expression is true; its value."""
        deadline = time.time() + seconds
        while True:
            got = self.value(expression)
            if got:
                return got
            assert time.time() < deadline, f"never true: {expression}\n{self.value('document.body.innerText')}"
            time.sleep(0.02)

    def text(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText).join('\\n')")

    # ---- hands ----
    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, number, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number,
                      text=text if kind == "keyDown" else "", modifiers=8 if shift else 0)

    def click(self, selector):
        x, y = self.until(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e || e.disabled) return null;
            e.scrollIntoView({{block: "nearest"}});
            const r = e.getBoundingClientRect();
            return r.width && [r.x + r.width / 2, r.y + r.height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    # ---- what happened ----
    def of(self, method):
        return [e["params"] for e in list(self.events) if e["method"] == method]

    def requests(self):
        return [e["request"]["url"] for e in self.of("Network.requestWillBeSent")]

    def complaints(self):
        """Exceptions of the script and errors of the console, refused requests apart."""
        log = [e["entry"] for e in self.of("Log.entryAdded")]
        return [e["exceptionDetails"]["text"] for e in self.of("Runtime.exceptionThrown")] + [
            e["text"] for e in log if e["level"] == "error" and e["source"] != "network"]

    def screenshot(self, path, width=1280, height=800, scale=1, dark=False):
        self.look(dark)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        data = self.call("Page.captureScreenshot", format="webp" if path.endswith(".webp") else "png", quality=90)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def look(self, dark):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
