"""`python -m specdec experiment` carries out what the pages ask for and keeps its record."""

from __future__ import annotations

import pytest

from specdec import experiment_cli, experiments
from specdec.busy import Busy, BusyFinding
from specdec.cli import main
from specdec.engine import RunRequest
from specdec.law import LawFinding
from specdec.trace import Trace


@pytest.fixture
def tiny(tiny_pair, monkeypatch):
    pair = tiny_pair()
    monkeypatch.setattr("specdec.models.load_pair", lambda *args, **options: pair)
    return pair


def test_the_law_is_drawn_and_kept(tiny, tmp_path, capsys):
    assert main(["experiment", "law", "--count", "9", "--prompt", "abc", "--out", str(tmp_path)]) == 0
    found = experiments.from_json(LawFinding, (tmp_path / "law.json").read_bytes())
    assert found.prompt == "abc" and found.counts == (9, 9) and "9 speculative and 9 plain" in capsys.readouterr().out


def test_every_drafter_and_one_that_guesses(tiny, tmp_path, capsys):
    assert main(["experiment", "drafters", "--prompt", "a b a b a b", "--out", str(tmp_path)]) == 0
    names = [*tiny.drafters, "random"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"drafter-{name}.json" for name in names)
    texts = {Trace.from_json((tmp_path / f"drafter-{name}.json").read_bytes()).output_text for name in names}
    assert len(texts) == 1 and len(capsys.readouterr().out.splitlines()) == len(names)  # of three runs of each the middle one


def test_ctrl_c_keeps_what_there_is(tiny, tmp_path, monkeypatch, capsys):
    def interrupted(pair, request, stop):
        def steps():
            for number, step in enumerate(begin(pair, request, stop)):
                if number == 4:
                    raise KeyboardInterrupt
                yield step

        going = begin(pair, request, stop)
        going._steps = steps()
        return going

    begin = experiments.begin
    asked = Busy(prompts=("a b c a b c", "d e"), drafter="draft", at_once=(1, 2), draft_lengths=(1,), turns=3)
    monkeypatch.setattr(experiment_cli, "requests", lambda *_: [("busy", RunRequest(prompt="x", experiment=asked))])
    monkeypatch.setattr(experiment_cli, "start", interrupted)
    assert main(["experiment", "busy", "--out", str(tmp_path)]) == 130
    assert experiments.from_json(BusyFinding, (tmp_path / "busy.json").read_bytes()).finish_reason == "stopped"


@pytest.mark.parametrize("arguments", [["law", "--count", "0"], ["law", "--out", "/nowhere/at/all"]])
def test_bad_input_is_one_line(arguments, capsys):
    assert main(["experiment", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("specdec: --") and said.count("\n") == 1
