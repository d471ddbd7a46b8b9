"""Prefixes that outlive the server: what a file must survive, and what must never come out of one."""
import glob
import itertools
import json
import os
import random
import shutil
import stat
import subprocess
import threading
import time

import pytest
from serving import BIN, ENDLESS, Server, best_under, synthetic, until, user

LONG = " ".join(f"word{i}" for i in range(80))
# a thread of its own is enough for a tiny model, and is there when ctest runs another test beside this one
OPTIONS = ("--threads", "1", "--context", "4096", "-T", "0", "--batch", "128")

# one kind of model is enough for the sanitizers
KINDS = ["tiny", pytest.param("tiny_windowed", marks=pytest.mark.long), pytest.param("tiny_hybrid", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def tiny_hybrid(models):
    return synthetic(models, "tiny-hybrid", "qwen35")


def ask(server, messages, **more):
    """Text, prompt tokens, cached tokens, answer tokens, probabilities."""
    code, _, body = server.post("/v1/chat/completions", dict({"messages": messages, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 5}, **more))
    assert code == 200, body
    u, c = body["usage"], body["choices"][0]
    return c["message"]["content"], u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["completion_tokens"], c["logprobs"]


def cached(server, messages, **more):
    return ask(server, messages, **more)[2]


def files(folder):
    return sorted(glob.glob(os.path.join(folder, "*.gemkv*")))


def written(server, n):
    until(lambda: server.metrics()["gem_disk_cache_writes_total"] >= n, why=lambda: server.lines[-5:])


def all_written(server):
    """Nothing waits: a text that does is given up where its pages are needed, or where the disk is slow and many do."""
    until(lambda: not server.metrics()["gem_disk_cache_waiting"], why=lambda: server.lines[-5:])


def total_bytes(folder):
    """Of the files there; one may go between the list and the look."""
    total = 0
    for f in files(folder):
        try:
            total += os.path.getsize(f)
        except FileNotFoundError:
            pass
    return total


def refusal(*args):
    """Exit code and stderr of a server that does not start."""
    p = subprocess.run([os.path.join(BIN, "gem"), "serve", *args, "--port", "0"], stderr=subprocess.PIPE, text=True, timeout=120)
    return p.returncode, p.stderr


def steady_token(server):
    """A token whose text, repeated, reads back as the same tokens: answers made of it are known to the token."""
    for c in "#%@$^=~xqzjk0123456789":
        ids = server.post("/tokenize", {"content": c * 9})[2]["tokens"]
        if len(ids) == 9 and len(set(ids)) == 1:
            return {str(ids[0]): 100}
    pytest.fail("no such token")


@pytest.mark.parametrize("kind", KINDS)
def test_ten_turns_across_restarts(kind, request, tmp_path):
    """Each turn computes what is new and nothing else, to the token, in a server that was just started as well; and
    the probabilities are those of a cold prompt, to the last digit."""
    model = request.getfixturevalue(kind)
    messages, known = user(LONG), 0
    with Server(model, *OPTIONS) as reference:
        bias = steady_token(reference)
        live = Server(model, *OPTIONS, "--disk-cache", str(tmp_path / "c"), "-v").__enter__()
        try:
            for turn in range(10):
                if turn in (1, 2, 5, 8):
                    assert live.stop() == 0
                    live = Server(model, *OPTIONS, "--disk-cache", str(tmp_path / "c")).__enter__()
                cold = ask(reference, messages, cache_prompt=False, logit_bias=bias)
                text, n, reused, answer, probabilities = ask(live, messages, logit_bias=bias)
                assert text == cold[0] and probabilities == cold[4], turn
                assert (n, answer) == (cold[1], cold[3])
                # the last prompt and its answer, all but the answer's last token, which was drawn and not run
                assert reused == known, (turn, n)
                if turn + 1 not in (1, 2, 5, 8):  # where the server ends it writes what waits
                    all_written(live)
                known = n + answer - 1
                messages = messages + [{"role": "assistant", "content": text}, {"role": "user", "content": f"turn {turn}"}]
        finally:
            assert live.stop() == 0, live.lines[-20:]


def test_ten_turns_of_a_real_model(coder_path, tmp_path):
    """The same with words that a model chose."""
    messages, known = [{"role": "system", "content": "You are terse."}] + user("Name a colour."), 0
    for turns in (range(1), range(1, 5), range(5, 10)):
        with Server(coder_path, *OPTIONS[2:], "--disk-cache", str(tmp_path / "c")) as s:
            for turn in turns:
                text, n, reused, answer, _ = ask(s, messages)
                assert reused == known, turn
                if turn + 1 < turns.stop:
                    all_written(s)
                known = n + answer - 1
                messages = messages + [{"role": "assistant", "content": text}, {"role": "user", "content": f"Another one, the {turn}th."}]
            assert s.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_branches_share_what_they_have_in_common(kind, request, tmp_path):
    """Texts that part in the middle of a file and in the middle of a page."""
    model, folder = request.getfixturevalue(kind), str(tmp_path / "c")
    texts = [LONG, LONG + " and on", LONG[:300] + " elsewhere " + LONG[:200], LONG[:301] + "x", LONG + " and more " + LONG[::-1]]
    with Server(model, *OPTIONS, "--disk-cache", folder) as s:
        cold = [ask(s, user(t), cache_prompt=False) for t in texts]
        for t, c in zip(texts, cold):
            assert ask(s, user(t))[4] == c[4]
            all_written(s)
        assert s.stop() == 0
    for order in (1, -1) if kind == "tiny" else (-1,):
        with Server(model, *OPTIONS, "--disk-cache", folder) as s:
            for t, c in list(zip(texts, cold))[::order]:
                _, n, reused, _, probabilities = ask(s, user(t))
                assert probabilities == c[4]
                assert n - 14 <= reused < n  # a windowed prompt is remembered before its opener
            assert s.metrics()["gem_disk_cache_hits_total"] >= 1
            assert s.stop() == 0


def test_mode_and_folder(tiny, tmp_path):
    folder = str(tmp_path / "c")
    with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
        ask(s, user(LONG))
        written(s, 1)
        all_written(s)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert files(folder) and all(stat.S_IMODE(os.stat(f).st_mode) == 0o600 for f in files(folder))
        # a second server may not have the same folder, and says so
        assert refusal(tiny, "--disk-cache", folder) == (3, f"gem serve: disk cache: another process uses {folder}; every server needs its own folder\n")
        ask(s, user("not kept " + LONG), cache_prompt=False)
        n = len(files(folder))
        time.sleep(0.2)
        assert len(files(folder)) == n
    m = None
    with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
        m = s.metrics()
        assert m["gem_disk_cache_files"] == len(files(folder))
        assert m["gem_disk_cache_bytes"] == total_bytes(folder)


@pytest.mark.long
def test_size_is_kept_and_the_oldest_goes(tiny, tmp_path):
    folder = str(tmp_path / "c")
    with Server(tiny, *OPTIONS, "--disk-cache", folder, "--disk-cache-size", "10") as s:
        for i in range(12):
            ask(s, user(f"{i} " + LONG))
            all_written(s)
            ask(s, user("0 " + LONG + " still wanted"))  # the first one stays in use
            all_written(s)
            assert total_bytes(folder) <= 10 << 20
        assert s.metrics()["gem_disk_cache_evicted_total"] > 0
        assert s.stop() == 0
    with Server(tiny, *OPTIONS, "--disk-cache", folder, "--disk-cache-size", "10") as s:
        assert cached(s, user("11 " + LONG)) > 200
        assert cached(s, user("0 " + LONG)) > 200
        assert cached(s, user("2 " + LONG)) < 20
        assert s.stop() == 0
    with Server(tiny, *OPTIONS, "--disk-cache", folder, "--disk-cache-size", "5") as s:  # less than before
        assert total_bytes(folder) <= 5 << 20


def keep_some(model, folder):
    """A folder with a text of several files; the text's messages and what a cold run says."""
    messages = user(LONG)
    with Server(model, *OPTIONS, "--disk-cache", folder) as s:
        for turn in range(3):
            text = ask(s, messages)[0]
            all_written(s)
            last, messages = messages, messages + [{"role": "assistant", "content": text}, {"role": "user", "content": f"turn {turn} " + LONG[:200]}]
        cold = ask(s, last, cache_prompt=False)
        assert s.stop() == 0
    assert len(files(folder)) >= 3
    return last, cold


def damage_truncate(path, r):
    os.truncate(path, r.randrange(os.path.getsize(path)))


def damage_lengthen(path, r):
    with open(path, "ab") as f:
        f.write(b"x")


def damage_flip(path, r):
    with open(path, "r+b") as f:
        at = r.randrange(os.path.getsize(path))
        f.seek(at)
        b = f.read(1)[0]
        f.seek(at)
        f.write(bytes([b ^ 1 << r.randrange(8)]))


def damage_zeros(path, r):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        f.write(bytes(4096))


def damage_rename(path, r):
    name = os.path.basename(path)
    os.rename(path, os.path.join(os.path.dirname(path), ("0" if name[0] != "0" else "1") + name[1:]))


def damage_swap(path, r):
    """Another file's contents under this name."""
    other = [f for f in files(os.path.dirname(path)) if f != path][0]
    shutil.copyfile(other, path)


def damage_remove(path, r):
    os.unlink(path)


def test_damaged_files_never_count(tiny, tmp_path):
    """Whatever happened to the files: the start succeeds, the answers are right, the damage is gone afterwards."""
    folder, spare = str(tmp_path / "c"), str(tmp_path / "spare")
    messages, cold = keep_some(tiny, folder)
    shutil.copytree(folder, spare)
    r = random.Random(5)
    kinds = [damage_truncate, damage_lengthen, damage_flip, damage_flip, damage_zeros, damage_rename, damage_swap, damage_remove]
    for kind in kinds[::2] if os.environ.get("GEM_TEST_SHORT") == "1" else kinds:
        shutil.rmtree(folder)
        shutil.copytree(spare, folder)
        kind(max(files(folder), key=os.path.getsize), r)  # the first of the chain
        with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
            assert ask(s, messages)[4] == cold[4], kind
            assert ask(s, messages)[4] == cold[4], kind
            if kind is not damage_remove:
                assert len(s.log("disk cache: removed")) >= 1, (kind, s.lines)
            assert s.stop() == 0
        with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
            assert not s.log("disk cache: removed"), (kind, s.lines)
            _, n, reused, _, probabilities = ask(s, messages)
            assert reused == n - 1 and probabilities == cold[4]


def test_foreign_files(tiny, models, tmp_path):
    """Files of another model or build go, with one line; what is not the cache's stays."""
    folder = str(tmp_path / "c")
    keep_some(tiny, folder)
    n = len(files(folder))
    name = os.path.basename(files(folder)[0])
    with open(os.path.join(folder, "a" * 64 + ".gemkv"), "wb") as f:
        f.write(b"GEMKV00\n" + bytes(4000))  # an older format
    for other in ("notes.txt", "x.gemkv", name[:-6]):
        with open(os.path.join(folder, other), "w") as f:
            f.write("mine")
    os.symlink("/etc/passwd", os.path.join(folder, "b" * 64 + ".gemkv"))
    os.mkdir(os.path.join(folder, "c" * 64 + ".gemkv"))
    with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
        assert s.metrics()["gem_disk_cache_files"] == n
        assert len(s.log("disk cache: removed 1 files of another model, build or format")) == 1
    assert os.path.exists("/etc/passwd") and not os.path.lexists(os.path.join(folder, "b" * 64 + ".gemkv"))
    twin = synthetic(models, "tiny-twin", "qwen2", "--seed", "2")  # the same shapes and names, other weights
    with Server(twin, *OPTIONS, "--disk-cache", folder) as s:
        assert len(s.log(rf"disk cache: removed {n} files of another model, build or format")) == 1
        assert s.metrics()["gem_disk_cache_files"] == 0 and cached(s, user(LONG)) == 0
    for other in ("notes.txt", "x.gemkv", name[:-6]):
        assert open(os.path.join(folder, other)).read() == "mine"


def test_another_layout_is_foreign(tiny, tmp_path):
    folder = str(tmp_path / "c")
    keep_some(tiny, folder)
    with Server(tiny, *OPTIONS, "--disk-cache", folder, "--kv-type", "f16") as s:
        assert s.log("of another model, build or format") and cached(s, user(LONG)) == 0


@pytest.mark.long
def test_killed_while_writing(models, tmp_path):
    """SIGKILL at random moments of writing: the next start is clean, its answers are right, nothing unfinished stays."""
    model = synthetic(models, "tiny-wide", "qwen2", "--layers", "4", "--kv-heads", "4", "--heads", "4", "--d-model", "256")
    folder = str(tmp_path / "c")
    texts = [f"{i} " + LONG * 2 for i in range(3)]
    with Server(model, *OPTIONS) as s:
        cold = {t: ask(s, user(t), cache_prompt=False)[4] for t in texts}
    r = random.Random(int(os.environ.get("GEM_KILL_SEED", "1")))
    unfinished = 0
    for i in range(int(os.environ.get("GEM_KILLS", "4"))):
        with Server(model, *OPTIONS, "--disk-cache", folder) as s:
            assert not s.log("damaged")
            for t in texts:
                assert ask(s, user(t))[4] == cold[t]
            body = json.dumps({"messages": user(f"{i} new " + LONG * 3), "max_tokens": 1, "stream": True})
            stream = s.stream("/v1/chat/completions", json.loads(body))
            stream.all()  # its last byte comes as the file is begun
            time.sleep(r.random() * 0.02)
            s.process.kill()
            s.process.wait()
            s.told = True
        unfinished += any(f.endswith(".tmp") for f in files(folder))
        if r.random() < 0.3:
            for f in files(folder):
                if r.random() < 0.5:
                    os.unlink(f)
    with Server(model, *OPTIONS, "--disk-cache", folder) as s:
        assert not [f for f in files(folder) if f.endswith(".tmp")]
        assert not s.log("damaged")
        for t in texts:
            assert ask(s, user(t))[4] == cold[t]
        assert s.stop() == 0
    if "GEM_KILLS" in os.environ:
        assert unfinished  # some kills came while a file was being written


def test_a_full_disk_is_no_fault(tiny, tmp_path):
    """A folder that cannot be written any more: requests go on, one line says so."""
    folder = str(tmp_path / "c")
    with Server(tiny, *OPTIONS, "--disk-cache", folder) as s:
        ask(s, user(LONG))
        written(s, 1)
        all_written(s)
        shutil.rmtree(folder)
        for i in range(3):
            ask(s, user(f"{i} " + LONG))
        until(lambda: s.log("disk cache: cannot write"))
        assert s.stop() == 0
        assert len(s.log("disk cache: cannot write")) == 1
    code, text = refusal(tiny, "--disk-cache", str(tmp_path / "no" / "such" / "parent"))
    assert code == 3 and "cannot be made" in text


def test_cancelled_while_reading(tiny, tmp_path):
    """Clients that leave while their prefix is read leave nothing behind."""
    folder = str(tmp_path / "c")
    messages, cold = keep_some(tiny, folder)
    for i in range(4):
        with Server(tiny, *OPTIONS, "--disk-cache", folder, "--parallel", "2") as s:
            for _ in range(3):
                stream = s.stream("/v1/chat/completions", {"messages": messages, "stream": True, "max_tokens": 50})
                stream.close()
            s.until_idle()
            assert ask(s, messages)[4] == cold[4]
            assert s.stop() == 0


@pytest.mark.long
def test_reading_and_writing_hold_up_nobody(models, tmp_path):
    """While a long text is written and read again, another stream's tokens keep coming."""
    model = synthetic(models, "tiny-wide", "qwen2", "--layers", "4", "--kv-heads", "4", "--heads", "4", "--d-model", "256")
    tries = itertools.count()

    def attempt():
        """The longest that a token took, or twice what health took."""
        folder = str(tmp_path / f"c{next(tries)}")
        with Server(model, *OPTIONS, "--disk-cache", folder, "--parallel", "3") as s:
            stream = s.stream("/v1/chat/completions", {"messages": user("count"), "stream": True, "logit_bias": ENDLESS})
            events, gaps, answers = stream.events(), [], []
            worker = threading.Thread(target=lambda: answers.extend([ask(s, user(f"{i} " + LONG * 4)) for i in range(3)]))
            worker.start()
            last = time.monotonic()
            for _ in events:
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
                if len(gaps) % 20 == 0:
                    assert s.get("/health")[0] == 200
                    gaps.append(2 * (time.monotonic() - last))
                if not worker.is_alive():
                    break
            ended = worker.is_alive()  # the stream was over before
            stream.close()
            worker.join()
            assert len(answers) == 3
            written(s, 3)
            assert s.stop() == 0
            return float("inf") if ended else max(gaps)

    best_under(2, attempt)  # bounded here for busy machines
