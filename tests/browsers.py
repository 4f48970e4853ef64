"""Fixtures of the browser tests: one Chromium and one server for the whole session.

Without a browser the tests are skipped; in CI that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

LOGS: dict[str, Path] = {}  # of the servers by address, to be quoted when something goes wrong


def missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI must run the browser tests")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def server(embedded_folder, tmp_path_factory):
    """Address of the app, started once."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true", "--server.port", "0"]
    command += ["--server.address", "127.0.0.1", "--browser.serverAddress", "127.0.0.1"]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "SPECDEC_PRELOAD": "0"}
        )
    try:
        end = time.monotonic() + 90
        while (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < end, f"the server did not start:\n{log.read_text()}"
            time.sleep(0.1)
        address = f"http://127.0.0.1:{found[1]}"
        LOGS[address] = log
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="session")
def chromium():
    """A headless browser. There can be only one: playwright's synchronous interface starts once in a process."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    named = os.environ.get("SPECDEC_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None or not Path(path).exists():
        missing("no Chromium or Chrome was found (SPECDEC_CHROMIUM can name one)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()
