"""Who may ask: hosts, origins, keys; and bytes that are no HTTP."""
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import Server, user


def test_hosts(server):
    for host, code in (("evil.example", 403), ("localhost", 200), ("LOCALHOST:99", 200), ("localhost.", 200), ("127.4.5.6:1", 200),
                       ("[::1]:80", 200), ("localhost.evil.com", 403), ("127.0.0.1.evil.com", 403), ("notlocalhost", 403)):
        assert server.get("/v1/models", {"Host": host})[0] == code, host
    assert b" 400 " in server.raw(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n").split(b"\r\n")[0]


def test_origins(server, tiny):
    body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}'
    code, headers, answer = server.post("/v1/chat/completions", body, {"Origin": "http://evil.example", "Content-Type": "text/plain"})
    assert code == 403 and answer["error"]["code"] == "forbidden_origin"
    assert "access-control-allow-origin" not in headers
    code, _, _ = server.post("/v1/chat/completions", body, {"Origin": f"http://127.0.0.1:{server.port}"})
    assert code == 200  # our own page
    with Server(tiny, "--context", "256", "--cors-origin", "https://chat.example,localhost") as s:
        for origin, ok in (("https://chat.example", True), ("http://localhost:3000", True), ("http://localhost.evil.com", False),
                           ("https://chat.example.evil.com", False), ("null", False)):
            code, headers, _ = s.request("OPTIONS", "/v1/chat/completions", None, {"Origin": origin})
            assert (code in (200, 204)) == ok, origin
            assert headers.get("access-control-allow-origin") == (origin if ok else None)


def test_keys(tiny, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# two keys\nsk-one\nsk-two\n")
    with Server(tiny, "--context", "256", "--api-key-file", str(keys)) as s:
        assert s.get("/health")[0] == 200
        for headers, code in (({}, 401), ({"Authorization": "Bearer nope"}, 401), ({"Authorization": "Bearer sk-one"}, 200),
                              ({"Authorization": "bearer sk-two"}, 200), ({"x-api-key": "sk-two"}, 200), ({"x-api-key": "sk-tw"}, 401),
                              ({"Authorization": "Basic sk-one"}, 401)):
            assert s.get("/v1/models", headers)[0] == code, headers
        code, headers, body = s.get("/no/such/path")
        assert code == 401 and headers["www-authenticate"] == "Bearer" and body["error"]["code"] == "invalid_api_key"
        assert s.request("OPTIONS", "/v1/models")[0] in (200, 204)
        assert not s.log("sk-")
        import openai

        assert s.openai(api_key="sk-one").models.list().data
        with pytest.raises(openai.AuthenticationError):
            s.openai(api_key="bad").models.list()


def test_key_from_the_environment(tiny):
    with Server(tiny, "--context", "256", env={"GEM_API_KEY": "sk-env"}) as s:
        assert s.get("/v1/models")[0] == 401 and s.get("/v1/models", {"x-api-key": "sk-env"})[0] == 200


def test_bodies_too_large(tiny):
    with Server(tiny, "--context", "256", "--max-body", "1") as s:
        code, _, answer = s.post("/v1/chat/completions", b"x" * (1 << 20) + b"yy")
        assert code == 413 and answer["error"]["code"] == "request_too_large"
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
        assert b" 413 " in s.raw(head).split(b"\r\n")[0]
        assert s.chat(max_tokens=1)[0] == 200


def test_expect_continue(server):
    body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}'
    s = socket.create_connection((server.host, server.port), timeout=60)
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert s.recv(100).startswith(b"HTTP/1.1 100 ")
    s.sendall(body)
    out = b""
    while True:
        got = s.recv(65536)
        if not got:
            break
        out += got
    s.close()
    assert out.startswith(b"HTTP/1.1 200 ")


ODD = [
    (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400,)),
    (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: two\r\n\r\n{}", (400,)),
    (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", (400, 501)),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414,)),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(200)) + b"\r\n", (431,)),
    (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"\x00\x01\x02\x03 garbage\r\n\r\n", (400, None)),
]


def test_odd_requests(server):
    with ThreadPoolExecutor(len(ODD)) as pool:
        answers = list(pool.map(lambda odd: server.raw(odd[0], close_write=None in odd[1]), ODD))
    for (head, codes), out in zip(ODD, answers):
        code = int(out.split(b" ")[1]) if out.startswith(b"HTTP/1.") else None
        assert code in codes, (head[:100], out[:200])
    assert server.get("/health")[0] == 200


def test_many_connections_opened_and_left(server):
    held = [socket.create_connection((server.host, server.port), timeout=60) for _ in range(200)]
    for s in held[:100]:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: lo")
    assert server.chat(max_tokens=1)[0] == 200
    for s in held:
        s.close()
    assert server.get("/health")[0] == 200
