"""The page With and without, without a browser: the first picture, a race from Run to verdict, a stop, a file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest
from test_page_rounds import FakeRun
from test_race import drafted_run, other_ending, plain_run
from waiting import until

from specdec import engine as engine_module
from specdec.engine import Engine
from specdec.race import Race
from specdec.ui import later, race_view, session

ROOT = Path(__file__).resolve().parents[1]
PAGE = str(ROOT / "pages" / "race.py")


def won() -> Race:
    return Race(plain=plain_run(), speculative=drafted_run(), title="won")


def lost() -> Race:
    return Race(plain=plain_run(), speculative=drafted_run(kept=False), title="lost")


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The process's engine over two made-up runs; `fake.permits` lets their rounds happen."""
    state = SimpleNamespace(permits=threading.Semaphore(100), requests=[], race=won())

    def start(_pair, request, stop):
        state.requests.append(request)
        return FakeRun(state.race.plain if request.method == "plain" else state.race.speculative, stop, state.permits)

    state.engine = Engine(lambda name, progress: SimpleNamespace(drafters=("early-exit", "lookup")), start=start)
    monkeypatch.setattr(engine_module, "_shared", state.engine)
    monkeypatch.setattr(race_view, "recordings", lambda: {"one": won(), "two": lost()})
    monkeypatch.setattr(session, "TRAINED", tmp_path)  # no trained drafters, whatever is shipped
    yield state
    state.engine.close()


def open_page(**query) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=30)
    at.session_state[later.STORE] = True  # the browser has drawn the race, so the chart may come
    for name, value in query.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    return at


def stage_of(at: AppTest) -> dict:
    return next(json.loads(c.proto.json) for c in at.get("bidi_component") if "lanes" in c.proto.json)


def counts(at: AppTest) -> list[int]:
    return [len(lane["tokens"]) for lane in stage_of(at)["lanes"]]


def settle(at: AppTest, condition) -> None:
    """Poll as the fragment does, until `condition(what the stage is told)` holds."""
    until(lambda: condition(stage_of(at.run())), pause=0.02, said=lambda: stage_of(at))
    assert not at.exception


def test_the_first_picture_is_a_recorded_race_with_its_verdict_and_figures(fake):
    at = open_page()
    view = stage_of(at)
    assert (view["label"], view["kind"], view["clock"]) == ("Recording · 29 Nov 2026 · cpu", "recording", True)
    assert at.success[0].value.startswith("**The drafter pays here")
    assert at.success[1].value.startswith("**Identical text, checked")
    table = next(m.value for m in at.markdown if m.value.startswith("|")).replace("\u00a0", " ")
    assert "| Time to first token | 0.14 s | 0.18 s | +40.4 ms |" in table
    assert "| Time to complete answer | 0.64 s | 0.32 s | −0.32 s |" in table
    assert "| Target passes | 6 | 2 | −4 |" in table and "| Tokens per pass | 1.00 | 3.00 |  |" in table
    assert len(at.get("plotly_chart")) == 1 and fake.requests == [] and fake.engine.state == "empty"


def test_a_lost_race_is_said_at_the_top_with_its_cause(fake):
    at = open_page()
    at.menu_button(key="race_recording").click("two").run()
    assert at.warning[0].value.startswith("**The drafter loses here") and "The cause is α" in at.warning[0].value


def test_both_runs_appear_one_after_the_other_and_then_the_clock(fake):
    fake.permits = threading.Semaphore(2)
    at = open_page(drafter="early-exit", draft_length="2", max_new_tokens="8")
    at.button(key="run").click().run()
    settle(at, lambda view: len(view["lanes"][0]["tokens"]) == 2)
    view = stage_of(at)
    assert (view["state"], view["clock"], counts(at)) == ("running", False, [2, 0])
    assert view["message"].startswith("Measuring, 1 of 2") and not at.button(key="stop").disabled and not at.success
    fake.permits.release(5)
    settle(at, lambda view: len(view["lanes"][1]["tokens"]) == 3)
    assert stage_of(at)["message"].startswith("Measuring, 2 of 2") and counts(at) == [6, 3]
    fake.permits.release(10)
    settle(at, lambda view: view["clock"])
    at.run()
    view = stage_of(at)
    assert (view["state"], view["kind"], view["label"]) == ("done", "live", "Live")
    assert at.success[0].value.startswith("**The drafter pays here") and at.button(key="stop").disabled
    assert [r.method for r in fake.requests] == ["plain", "speculative"]
    assert {(r.settings.drafter, r.settings.draft_length, r.settings.max_new_tokens) for r in fake.requests} == {
        ("early-exit", 2, 8)
    }


@pytest.mark.parametrize(("permits", "kept"), [(3, [3, 0]), (7, [6, 3])])
def test_a_stop_keeps_what_there_is(fake, permits, kept):
    fake.permits = threading.Semaphore(permits)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, lambda view: sum(len(lane["tokens"]) for lane in view["lanes"]) == sum(kept))
    at.button(key="stop").click().run()
    settle(at, lambda view: view["state"] == "stopped")
    at.run()
    assert counts(at) == kept and at.button(key="stop").disabled
    if kept[1]:  # something of both: compared as far as both go
        assert stage_of(at)["clock"] and "the first 3 tokens" in at.success[0].value
    else:
        assert "A comparison needs both" in stage_of(at)["message"] and not at.success


def test_a_crash_is_said_and_the_next_race_works(fake, monkeypatch):
    good = fake.engine._start
    monkeypatch.setattr(fake.engine, "_start", lambda *_: 1 / 0)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, lambda view: view["state"] == "failed")
    assert "ZeroDivisionError" in stage_of(at)["message"]
    monkeypatch.setattr(fake.engine, "_start", good)
    at.button(key="run").click().run()
    settle(at, lambda view: view["clock"])


def test_a_crash_in_the_second_half_is_said_beside_what_there_is(fake, monkeypatch):
    good = fake.engine._start

    class Crashing(FakeRun):
        def __iter__(self):
            for made, round_ in enumerate(super().__iter__()):
                if made == 1:
                    raise RuntimeError("boom")
                yield round_

    def start(pair, request, stop):
        if request.method == "plain":
            return good(pair, request, stop)
        return Crashing(fake.race.speculative, stop, fake.permits)

    monkeypatch.setattr(fake.engine, "_start", start)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, lambda view: view["clock"])
    at.run()
    assert "boom" in at.error[0].value and counts(at)[0] == 6 and counts(at)[1] >= 3


def test_an_empty_prompt_is_one_sentence_and_the_picture_stays(fake):
    at = open_page()
    at.text_area(key="prompt").set_value(" ").run()
    at.button(key="run").click().run()
    assert at.error[0].value.startswith("The prompt is empty") and stage_of(at)["kind"] == "recording" and fake.requests == []


def test_moving_another_control_does_not_disturb_a_race(fake):
    fake.permits = threading.Semaphore(1)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, lambda view: view["lanes"][0]["tokens"])
    run = stage_of(at)["run"]
    at.slider(key="draft_length").set_value(9).run()
    assert (stage_of(at)["run"], stage_of(at)["state"], len(fake.requests)) == (run, "running", 1)


def test_texts_that_differ_are_shown_and_explained(fake, monkeypatch):
    monkeypatch.setattr(race_view, "recordings", lambda: {"tie": other_ending((0.4, 0.3999), (0.3999, 0.4))})
    at = open_page()
    assert stage_of(at)["difference"] == 2
    assert any("A numerical tie" in s.value for s in at.success)
    monkeypatch.setattr(race_view, "recordings", lambda: {"wrong": other_ending((0.6, 0.3), (0.3, 0.6))})
    assert any("report it" in e.value for e in open_page().error)


def test_a_sampled_race_says_two_texts_one_law(fake, monkeypatch):
    sampled = SAMPLES["rejected"]()
    plain = plain_run(settings=sampled.settings.replace(drafter="none", draft_length=0))
    monkeypatch.setattr(race_view, "recordings", lambda: {"sampled": Race(plain=plain, speculative=sampled)})
    at = open_page()
    assert any(i.value.startswith("**Two texts, one law") for i in at.info) and stage_of(at)["difference"] is None


def test_a_saved_race_plays_and_a_broken_file_is_a_message(fake):
    at = open_page()
    mine = dataclasses.replace(lost(), title="mine")
    at.file_uploader(key="race_file").set_value(("mine.json", mine.to_json().encode(), "application/json")).run()
    assert stage_of(at)["label"] == "From your file · 29 Nov 2026 · cpu" and at.warning
    at.file_uploader(key="race_file").set_value(("run.json", SAMPLES["bonus"]().to_json().encode(), "application/json")).run()
    assert len(at.error) == 1 and at.error[0].value.startswith(r"run\.json was not opened") and "no race" in at.error[0].value
    assert stage_of(at)["label"].startswith("From your file")


def test_hostile_tokens_stay_text(fake, monkeypatch):
    sampled = SAMPLES["hostile"]()
    plain = plain_run(settings=sampled.settings.replace(drafter="none", draft_length=0))
    monkeypatch.setattr(race_view, "recordings", lambda: {"hostile": Race(plain=plain, speculative=sampled, title="<b>x</b>")})
    at = open_page()
    assert "<img" in json.dumps(stage_of(at)) and not any("<img" in m.value for m in at.markdown)


def test_the_shipped_races_are_real_can_be_read_and_one_is_lost():
    from specdec.race import compare, first_difference

    names = sorted(p.stem for p in race_view.RACES.glob("*.json"))
    races = race_view.recordings()
    assert names and sorted(races) == names
    for race in races.values():
        assert race.title and race.plain.pair.target == "SmolLM2-135M-Instruct" and race.plain.prompt == race.speculative.prompt
        if race.plain.settings.greedy:
            assert first_difference(race) is None
    assert {True, False} <= {compare(race).faster for race in races.values()}
    assert compare(races[names[0]]).faster is True  # the first picture


def test_the_page_needs_no_torch_before_a_race():
    code = "import sys; from specdec.ui import race_view; race_view.recordings(); print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "set()"
