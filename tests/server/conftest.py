"""Servers for the tests: each is a real process on a free port, ended by SIGTERM."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from serving import Server, real_model, synthetic  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes more than ten seconds of a sanitizer build, where scripts/test.sh leaves it out")


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("long")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny(models):
    """Random weights, ChatML, full attention."""
    return synthetic(models, "tiny", "qwen2")


@pytest.fixture(scope="session")
def tiny_windowed(models):
    """Random weights, Gemma 3 turns, sliding windows of 64 positions."""
    return synthetic(models, "tiny-windowed", "gemma3", "--window", "64")


@pytest.fixture(scope="module")
def server(tiny):
    with Server(tiny, "--context", "2048", "-T", "0") as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


@pytest.fixture(scope="session")
def coder_path():
    path = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    if not path:
        pytest.skip("qwen2.5-coder-0.5b was not fetched")
    return path


@pytest.fixture(scope="module")
def coder(coder_path):
    with Server(coder_path, "--context", "4096", "-T", "0") as s:
        yield s
