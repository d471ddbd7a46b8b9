"""serving.py: start servers, speak HTTP to them, read their streams."""
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
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


def in_time(attempt, tries=5):
    """attempt() is true when it came while there was something to see; who stood still meanwhile comes too late, and tries
    again. What it sees, it asserts."""
    assert any(attempt() for _ in range(tries)), f"too late {tries} times"


def best_under(seconds, attempt, tries=5):
    """A promise about time is kept when attempt() takes less than that in one of a few tries. What is late by design is
    late in all of them; who stood still in one, the server or this process, was not served by a loaded machine."""
    took = []
    while not took or min(took) >= seconds:
        assert len(took) < tries, f"{seconds} s were promised; it took {took}"
        took.append(attempt())
    return min(took)


def own_port():
    """A port for a server that has to know it beforehand: below those that the system gives to whoever asks for any, so that
    no client of another test is given it meanwhile."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            end = int(f.read().split()[0])
    except OSError:
        end = 49152
    while True:
        port = random.randrange(16384, end if end > 20000 else 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Server:
    def __init__(self, model, *options, env=None, wait=True, host="127.0.0.1"):
        self.args = [os.path.join(BIN, "gem"), "serve", model, "--port", "0", *options]
        self.env = dict(os.environ, **(env or {}))
        self.wait = wait
        self.host = host
        self.told = False

    def __enter__(self):
        self.stderr = tempfile.TemporaryFile()  # what was said before an answer is there when the answer is
        self.process = subprocess.Popen(self.args, env=self.env, stderr=self.stderr)
        until(lambda: self.log("listening on ") or self.process.poll() is not None, why=lambda: "\n".join(self.lines))
        assert self.process.poll() is None, "\n".join(self.lines)
        self.port = int(re.search(r"listening on http://.*:(\d+) ", self.log("listening on ")[0]).group(1))
        if self.wait:
            until(lambda: self.get("/health")[0] == 200, 120, lambda: "\n".join(self.lines))
        return self

    @property
    def lines(self):
        """Of stderr, so far."""
        fd = self.stderr.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8", "replace").splitlines()

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

    def until_idle(self, seconds=60):
        """Seconds until nothing runs and nothing waits."""
        start = time.monotonic()
        self.until_at(0, 0, seconds)
        return time.monotonic() - start

    def cancelled(self, reason="client_gone"):
        return self.metrics()[f'gem_requests_cancelled_total{{reason="{reason}"}}']

    def went(self, before, seconds=5):
        """Was the end of what just ended its client's going, and not its own? It is counted an instant after the slot is free."""
        deadline = time.monotonic() + seconds
        while self.cancelled() != before + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.cancelled() == before + 1

    def raw(self, data, close_write=False):
        """Bytes in, the answer out: its head and its body, or what there was when the peer closed."""
        with socket.create_connection((self.host, self.port), timeout=60) as s:
            s.sendall(data)
            if close_write:
                s.shutdown(socket.SHUT_WR)
            out = b""
            while not whole(out) and (got := s.recv(65536)):
                out += got
        return out

    def openai(self, **more):
        import openai

        return openai.OpenAI(base_url=f"http://{self.host}:{self.port}/v1", **dict({"api_key": "x", "max_retries": 0}, **more))


def whole(answer):
    """Is it all there, by its Content-Length?"""
    head, _, body = answer.partition(b"\r\n\r\n")
    m = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(m and len(body) >= int(m.group(1)))


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
