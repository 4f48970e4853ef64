"""What tests share: the real embedded pair, small random pairs, and a home folder of their own.

The converted model stays in the normal cache folder (`SPECDEC_HOME`, or the platform's), so it is fetched once for all test
runs.
"""

from __future__ import annotations

import os
import socket

import pytest
from browsers import chromium, server  # noqa: F401  fixtures of the browser tests

pytest.register_assert_rewrite("trace_checks")  # what is asserted there shows its values as in a test

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may ask a hub; those that pretend to replace the client
if "PYTEST_XDIST_WORKER" in os.environ:  # with -n, where two threads of two processes would wait for each other all the time
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With -n, a file of tests stays in one process, and all that start servers, for a browser or as a cluster, in the first one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "servers" if file.endswith(("browser.py", "cluster.py")) else file

    config.option.loadscopereorder = False  # the first file is one of the browser's, and that group is the longest
    return ByFile(config, log)


@pytest.fixture(scope="session")
def embedded_folder():
    """Folder of the converted embedded target."""
    from specdec.fetch import fetch_embedded

    return fetch_embedded()


@pytest.fixture(scope="session")
def embedded_pair(embedded_folder):
    """The real pair, loaded once: on the CPU in float32, the same on every machine."""
    from specdec.models import load_pair

    return load_pair(device="cpu")


@pytest.fixture
def specdec_home(tmp_path, monkeypatch):
    """An empty `SPECDEC_HOME`, in which the converted model is there all the same if this machine has it."""
    from specdec import fetch, store

    ready = fetch.converted_folder()
    home = tmp_path / "home"
    monkeypatch.setenv("SPECDEC_HOME", str(home))
    if ready:
        store.models().mkdir(parents=True)
        os.symlink(ready, store.models() / ready.name, target_is_directory=True)
    return home


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """A `SPECDEC_HOME` with nothing in it."""
    home = tmp_path / "empty"
    monkeypatch.setenv("SPECDEC_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def byte_tokenizer():
    """A byte-level tokenizer of 256 byte tokens, a few merges and two control tokens, with a chat template; made here."""
    from tiny import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="session")
def tiny_pair():
    """tiny_pair(kind="llama", draft=True, seed=0, padding=0, ...) -> Pair of two small random models; see `tiny.make_tiny_pair`.

    Cached by arguments: models are never changed by a run.
    """
    from functools import lru_cache

    from tiny import make_tiny_pair

    return lru_cache(maxsize=None)(make_tiny_pair)


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Two folders as save_pretrained makes them, that fit together: target, draft."""
    folder = tmp_path_factory.mktemp("saved")
    from tiny import make_model, make_tokenizer

    tokenizer = make_tokenizer()
    for name, layers, seed in (("target", 2, 0), ("draft", 1, 1)):
        make_model(vocabulary=len(tokenizer), layers=layers, seed=seed).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture
def no_network(monkeypatch):
    """Whoever opens a connection fails the test."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"a connection was opened: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with the tiny package in it, and the record that describes it."""
    pytest.importorskip("gguf", reason="the package gguf writes the files that these tests read")
    from fake_package import make_package

    folder = tmp_path_factory.mktemp("shop")
    return folder, make_package(folder)


@pytest.fixture
def package(shop, empty_home, monkeypatch):
    """The tiny package, to be had from its folder and nowhere else, and an empty home to fetch it into."""
    from fake_package import serve_only

    serve_only(shop[0], monkeypatch)
    return shop[1]
