"""What tests share: the real embedded pair, small random pairs, and a home folder of their own.

The converted model stays in the normal cache folder (`SPECDEC_HOME`, or the platform's), so it is fetched once for all test
runs.
"""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may ask a hub; those that pretend to replace the client


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
