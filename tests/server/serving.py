"""serving.py: start servers, speak HTTP to them, read their streams."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

BIN = os.environ.get("GEM_BIN_DIR", "build")

# logit_bias that forbids the tiny models' markers, so that an answer ends by its length alone
ENDLESS = {str(token): -100 for token in range(1000, 1024)}


def synthetic(folder, name, arch, *options):
    path = os.path.join(folder, name + ".gguf")
    if not os.path.exists(path):
        subprocess.run([os.path.join(BIN, "gem-synth-model"), "--arch", arch, "--ctx", "8192", "--seed", "1",
                        "--quiet", "--out", path, *options], check=True, stdout=subprocess.DEVNULL)
    return path


def real_model(file):
    if os.environ.get("GEM_TEST_REAL_MODELS") == "0":  # a build with sanitizers takes minutes over them
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("GEM_MODEL_DIR") or os.path.join(cache, "gem")
    path = os.path.join(folder, file)
    return path if os.path.exists(path) else None


def until(true, seconds=60, why=None):
    """Wait until true() holds, and return what it said. The deadline is there to end a test that failed, not to measure:
    a process of a loaded machine may stand still for seconds."""
    deadline = time.monotonic() + seconds
    while not (got := true()):
        assert time.monotonic() < deadline, why() if why else "never true"
        time.sleep(0.01)
    return got


def best_under(seconds, attempt, tries=5):
    """A promise about time is kept when attempt() takes less than that in one of a few tries. What is late by design is
    late in all of them; who stood still in one, the server or this process, was not served by a loaded machine."""
    took = []
    while not took or min(took) >= seconds:
        assert len(took) < tries, f"{seconds} s were promised; it took {took}"
        took.append(attempt())
    return min(took)


class Server:
    def __init__(self, model, *options, env=None, wait=True, host="127.0.0.1"):
        self.args = [os.path.join(BIN, "gem"), "serve", model, "--port", "0", *options]
        self.env = dict(os.environ, **(env or {}))
        self.wait = wait
        self.host = host
        self.lines = []
        self.told = False

    def __enter__(self):
        self.process = subprocess.Popen(self.args, env=self.env, stderr=subprocess.PIPE, text=True)
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert self.listening.wait(30), "\n".join(self.lines)
        if self.wait:
            deadline = time.time() + 60
            while self.get("/health")[0] != 200:
                assert time.time() < deadline and self.process.poll() is None, "\n".join(self.lines)
                time.sleep(0.02)
        return self

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            m = re.search(r"listening on http://(.*):(\d+) ", line)
            if m:
                self.port = int(m.group(2))
                self.listening.set()

    def __exit__(self, *_):
        self.stop()

    def terminate(self):
        """SIGTERM, once: a second one ends a server at once."""
        if not self.told and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.told = True

    def stop(self):
        self.terminate()
        if self.process.poll() is None:
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.reader.join(5)
        return self.process.returncode

    def log(self, pattern):
        return [line for line in self.lines if re.search(pattern, line)]

    # ---- HTTP ----
    def request(self, method, path, body=None, headers=None, timeout=120):
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            c.request(method, path, data, dict(headers or {}))
            r = c.getresponse()
            raw = r.read()
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), raw
        finally:
            c.close()

    def get(self, path, headers=None):
        status, h, raw = self.request("GET", path, None, headers)
        return status, h, json.loads(raw) if h.get("content-type", "").startswith("application/json") and raw else raw

    def post(self, path, body, headers=None, timeout=120):
        status, h, raw = self.request("POST", path, body, headers, timeout)
        return status, h, json.loads(raw) if raw else None

    def chat(self, content="hi", **more):
        return self.post("/v1/chat/completions", dict({"messages": user(content)}, **more))

    def stream(self, path, body, headers=None, timeout=120):
        return Stream(self, path, body, headers, timeout)

    def chat_stream(self, content="hi", **more):
        return self.stream("/v1/chat/completions", dict({"messages": user(content), "stream": True}, **more))

    def metrics(self):
        out = {}
        for line in self.get("/metrics")[2].decode().splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def until_at(self, running, queued, seconds=60):
        """Metrics once so many answers run and so many wait."""
        last = {}

        def there():
            last.update(self.metrics())
            return (last["gem_requests_running"], last["gem_requests_queued"]) == (running, queued)

        until(there, seconds, lambda: f"{running} running, {queued} queued: never; {last}")
        return last

    def until_idle(self, seconds=2.0):
        """Seconds until nothing runs and nothing waits."""
        start = time.time()
        while True:
            m = self.metrics()
            if m["gem_requests_running"] == 0 and m["gem_requests_queued"] == 0:
                return time.time() - start
            assert time.time() - start < seconds, m
            time.sleep(0.02)

    def raw(self, data, seconds=5, close_write=False):
        """Bytes in, bytes out until the peer closes or time is up."""
        s = socket.create_connection((self.host, self.port), timeout=seconds)
        s.sendall(data)
        if close_write:
            s.shutdown(socket.SHUT_WR)
        out = b""
        try:
            while True:
                got = s.recv(65536)
                if not got:
                    break
                out += got
        except socket.timeout:
            pass
        finally:
            s.close()
        return out

    def openai(self, **more):
        import openai

        return openai.OpenAI(base_url=f"http://{self.host}:{self.port}/v1", **dict({"api_key": "x", "max_retries": 0}, **more))


def user(content):
    return [{"role": "user", "content": content}]


class Stream:
    """A server-sent event stream, read line by line."""

    def __init__(self, server, path, body, headers, timeout):
        self.c = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
        self.c.request("POST", path, json.dumps(body), dict({"Content-Type": "application/json"}, **(headers or {})))
        self.r = self.c.getresponse()
        self.status = self.r.status
        self.headers = dict((k.lower(), v) for k, v in self.r.getheaders())
        self.raw = b""

    def lines(self):
        while True:
            line = self.r.readline()
            if not line:
                return
            self.raw += line
            yield line.rstrip(b"\n")

    def events(self):
        """Parsed JSON of each event; the string [DONE] last."""
        for line in self.lines():
            if line.startswith(b"data: "):
                text = line[6:].decode()
                yield text if text == "[DONE]" else json.loads(text)

    def all(self):
        try:
            return list(self.events())
        finally:
            self.close()

    def close(self):
        try:
            self.c.sock and self.c.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.r.close()
        self.c.close()


def text_of(events):
    return "".join(c["delta"].get("content") or "" for e in events if e != "[DONE]" for c in e["choices"])


def comments(raw):
    return [line for line in raw.split(b"\n") if line.startswith(b":")]
