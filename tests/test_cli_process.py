"""The command line as a process of its own: signals, pipes, terminals, what it imports; and its progress lines."""

import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from specdec import cli_io
from specdec.trace import Trace

ROOT = Path(__file__).parent.parent


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(out, *calls, keep=True):
    """What a person sees of (second, stage, done, total)."""
    now = [0.0]
    with cli_io.Progress(out, keep=keep, clock=lambda: now[0]) as progress:
        for now[0], *call in calls:
            progress(*call)
    return out.getvalue()


def test_progress_in_plain_lines_has_stage_bytes_rate_and_time_left():
    text = told(
        io.StringIO(),
        (0.0, "downloading", 0, 100_000_000),
        (0.1, "downloading", 1_000_000, 100_000_000),
        (2.0, "downloading", 20_000_000, 100_000_000),
        (3.0, "downloading", 30_000_000, 100_000_000),
        (7.5, "downloading", 75_000_000, 100_000_000),
        (10.0, "downloading", 100_000_000, 100_000_000),
        (10.1, "unpacking", 10_000_000, 10_000_000),
    )
    assert text.splitlines() == [
        "downloading:  20 %  20 MB of 100 MB, 10.0 MB/s, 8 s left",
        "downloading:  75 %  75 MB of 100 MB, 10.0 MB/s, 2 s left",
        "downloading: 100 MB (9.9 MB/s), done",
        "unpacking: 10 MB, done",
    ]


def test_progress_on_a_terminal_is_one_line_that_is_cleared():
    calls = [(0.0, "loading x", 0, 10), (0.2, "loading x", 5, 10), (0.21, "loading x", 6, 10), (0.4, "measuring", 0, None)]
    text = told(Terminal(), *calls, keep=False)
    assert "\n" not in text
    shown = [part.strip() for part in text.split("\r\x1b[K")]
    assert shown == ["", "loading x:   0 %", "loading x:  50 %", "", "measuring …", ""]


def test_quick_stages_are_silent_where_nobody_watches():
    quick = [(0.1 * i, "loading", i, 10) for i in range(10)]
    assert told(io.StringIO(), *quick, keep=False) == ""
    assert told(io.StringIO(), (0.0, "asking the hub", 0, None), keep=False) == "asking the hub …\n"


def test_progress_without_a_total():
    text = told(io.StringIO(), (0.0, "downloading", 0, None), (6.0, "downloading", 60_000_000, None))
    assert text.splitlines() == ["downloading …", "downloading:  60 MB, 10.0 MB/s", "downloading: 60 MB (10.0 MB/s), done"]


# As a process of its own


def process(*arguments, code=None, **options):
    command = [sys.executable, *(["-c", code] if code else ["-m", "specdec"]), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes | options)


WITHOUT_TORCH = """
import sys
from importlib.abc import MetaPathFinder
class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('torch', 'transformers', 'streamlit', 'plotly'):
            raise AssertionError(name + ' was imported')
sys.meta_path.insert(0, Refuse())
from specdec.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--help"], 0, b"COMMAND"),
        (["--version"], 0, b"specdec 0."),
        (["run", "--help"], 0, b"--draft-length"),
        (["models"], 0, b"embedded"),
        (["run", "x", "--top-k", "-1"], 2, b""),
    ],
)
def test_help_and_models_import_no_torch(arguments, code, words):
    ran = process(*arguments, code=WITHOUT_TORCH)
    out, err = ran.communicate(timeout=60)
    assert (ran.returncode, b"AssertionError" in err) == (code, False), err.decode()
    assert words in out


REPLAYED = textwrap.dedent("""
    # The command line in a process of its own, over a made-up run of 24 rounds in the place of the real loop: no torch, no wait.
    import dataclasses, sys, time, types
    sys.path.insert(0, "tests")
    from sample_traces import story
    from specdec.cli import main

    class Run:
        def __init__(self, pair, prompt, settings, *, stop, time_plain=False):
            self.pair, self.settings, self.stop, self.made, self.story = pair, settings, stop, 0, story()
            self.info, self.prompt_ids = self.story.pair, self.story.prompt_ids

        def __iter__(self):
            for round_ in self.story.rounds:
                if self.stop():
                    return
                time.sleep(0.05)
                self.made += 1
                yield round_

        def trace(self):
            reason = "length" if self.made == len(self.story.rounds) else "stopped"
            return dataclasses.replace(story(rounds=self.made), finish_reason=reason)

    pair = types.SimpleNamespace(device_name="cpu")
    sys.modules["specdec.models"] = types.SimpleNamespace(load_pair=lambda *a, **k: pair)
    sys.modules["specdec.decoding"] = types.SimpleNamespace(stream=Run, stream_plain=Run)
    sys.exit(main(sys.argv[1:]))
""")


def test_a_reader_that_goes_away_ends_the_run_quietly(tmp_path):
    ran = process("run", "Once", "--trace", str(tmp_path / "t.json"), code=REPLAYED)
    for _ in range(5):
        assert ran.stdout.readline()
    ran.stdout.close()
    err = ran.stderr.read()
    assert ran.wait(timeout=60) == 141
    assert err.decode() == "loading libraries …\n"
    trace = Trace.from_json((tmp_path / "t.json").read_bytes())
    assert 1 <= len(trace.rounds) < 10  # stopped there, and kept what it had


def test_a_real_ctrl_c():
    ran = process("run", "Once", code=REPLAYED)
    for _ in range(5):
        assert ran.stdout.readline()
    ran.send_signal(signal.SIGINT)
    out, err = ran.communicate(timeout=60)
    assert ran.returncode == 130
    assert b"ended by: stopped" in out
    assert err.decode().splitlines() == ["loading libraries …", "specdec: interrupted; this is what was made."]


def test_a_terminal_that_knows_only_ascii():
    ran = process("run", "Once", code=REPLAYED, env={"PYTHONIOENCODING": "ascii"})
    out, _ = ran.communicate(timeout=60)
    assert ran.returncode == 0
    assert b"Acceptance rate \\u03b1" in out
