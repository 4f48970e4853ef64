"""Pages that measure: a few runs one after the other, kept as they end; Stop and failures leave what there is."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest
from waiting import until

from specdec import engine as engine_module
from specdec.engine import Engine
from specdec.metrics import summary
from specdec.ui import session

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")


class FakeRun:
    """Plays a made-up trace with the settings that were asked for."""

    def __init__(self, trace, stop):
        self.full, self.stop, self.prompt_ids = trace, stop, list(trace.prompt_ids)

    def __iter__(self):
        for round_ in self.full.rounds:
            if self.stop():
                return
            yield round_

    def trace(self):
        return self.full


@pytest.fixture
def fake(monkeypatch):
    state = SimpleNamespace(requests=[], broken=False)
    made_up = SAMPLES["rejected"]()
    made_up = dataclasses.replace(made_up, pair=dataclasses.replace(made_up.pair, name="embedded"))

    def start(_pair, request, stop):
        state.requests.append(request)
        if state.broken:
            raise RuntimeError("no memory left")
        settings = request.settings.replace(max_new_tokens=made_up.settings.max_new_tokens)
        return FakeRun(dataclasses.replace(made_up, settings=settings, method=request.method), stop)

    state.engine = Engine(lambda name, progress: SimpleNamespace(drafters=("head", "lookup")), start=start)
    monkeypatch.setattr(engine_module, "_shared", state.engine)
    monkeypatch.setattr(session, "recordings", lambda: {"one": made_up})
    yield state
    state.engine.close()


def open_page(page: str, **query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / f"{page}.py"))
    at.run()
    assert not at.exception
    return at


def look_until(at: AppTest, words: str) -> None:
    def captions() -> list[str]:
        assert not at.run().exception
        return [c.value for c in at.caption]

    until(lambda: any(words in caption for caption in captions()), pause=0.05, said=captions)


def chart(at: AppTest) -> dict:
    return json.loads(at.get("plotly_chart")[0].proto.spec)


def test_measuring_some_draft_lengths_puts_them_beside_the_replay(fake):
    at = open_page("speedup", show="replay")
    at.button(key="start_every").click().run()
    look_until(at, "5 runs measured")
    assert [r.settings.draft_length for r in fake.requests] == [1, 2, 4, 8, 16]
    assert len({r.prompt for r in fake.requests}) == 1 and all(r.pair == "embedded" for r in fake.requests)
    measured = next(t for t in chart(at)["data"] if t["name"] == "measured now")
    assert measured["x"] == [1, 2, 4, 8, 16]
    assert any("Measured here: γ = 16" in o for o in at.selectbox(key="which").options)


def test_without_a_clock_the_replay_counts_tokens(fake):
    at = open_page("speedup", show="replay")
    if not at.toggle:
        pytest.skip("the made-up run has no plain step")
    at.toggle(key="clockless").set_value(True).run()
    assert chart(at)["layout"]["yaxis"]["title"]["text"] == "tokens per round"


def test_every_drafter_on_one_prompt(fake):
    at = open_page("limits", gamma="6")
    at.text_area(key="measure_prompt").set_value("Say hi").run()
    at.button(key="start_drafters").click().run()
    look_until(at, "runs measured")
    names = [r.settings.drafter for r in fake.requests]
    assert {"head", "lookup", "early-exit", "random"} <= set(names) and all(names.count(name) == 3 for name in names)
    assert names[: len(set(names))] != names[len(set(names)) : 2 * len(set(names))]  # each turn begins with another one
    assert {(r.settings.draft_length, r.settings.greedy, r.prompt) for r in fake.requests} == {(6, True, "Say hi")}


def test_picture_and_sentence_take_the_same_runs_and_only_whole_series(fake):
    """Every run has another plain step here; all are held against the median of those of the middle runs."""
    start = fake.engine._start

    def uneven(pair, request, stop):
        run = start(pair, request, stop)
        run.full = dataclasses.replace(run.full, plain_step_seconds=0.01 * (1 + len(fake.requests) % 4))
        return run

    fake.engine._start = uneven
    at = open_page("limits")
    told = sentence(at)
    at.button(key="start_drafters").click().run()
    until(lambda: len(at.run().session_state["_series_drafters"].done) == 2)
    assert sentence(at) == told  # the recordings, until every drafter has run
    look_until(at, "runs measured")
    said = dict(re.findall(r"(\S+) (\d+\.\d\d)×", sentence(at)))
    assert set(said) == {r.settings.drafter for r in fake.requests}
    runs = {t.settings.drafter: t for t in at.session_state["_measured"].values()}
    assert len({t.plain_step_seconds for t in runs.values()}) == 1
    assert {name: f"{summary(t).speedup:.2f}" for name, t in runs.items()} == said
    assert any("each drafter ran 3 times" in c.value for c in at.caption)


def sentence(at: AppTest) -> str:
    """What every drafter made of one prompt, without its bold."""
    found = next(h.proto.body for h in at.get("html") if "down to one that guesses" in h.proto.body)
    return re.sub("</?strong>", "", found)


def test_three_texts_of_one_prompt(fake):
    at = open_page("residual", show="real")
    at.button(key="start_three").click().run()
    look_until(at, "3 runs measured")
    assert [(r.method, r.settings.seed) for r in fake.requests] == [("speculative", 1), ("speculative", 2), ("plain", 1)]
    assert len(at.text) == 3


def test_a_failure_is_one_sentence_and_ends_the_series(fake):
    fake.broken = True
    at = open_page("speedup", show="replay")
    at.button(key="start_every").click().run()
    look_until(at, "no memory left")
    assert len(fake.requests) == 1 and not at.button(key="start_every").disabled
