"""The page Run and watch, without a browser: what it shows first, what a run is asked for, and that nothing is ever lost."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest
from waiting import until

from specdec import engine as engine_module
from specdec import metrics
from specdec.engine import Engine, Limits
from specdec.ui import later, session

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")


class FakeRun:
    """Plays a made-up trace as if it were being decoded; waits for a permit before each round."""

    def __init__(self, trace, stop, permits):
        self.full, self.stop, self.permits, self.made, self.ended = trace, stop, permits, 0, False
        self.prompt_ids = list(trace.prompt_ids)

    def __iter__(self):
        for round_ in self.full.rounds:
            while not self.permits.acquire(timeout=0.01):
                if self.stop():
                    return
            self.made += 1
            yield round_
        self.ended = True

    def trace(self):
        rounds = self.full.rounds[: self.made]
        reason = self.full.finish_reason if self.ended else "stopped"
        return dataclasses.replace(self.full, rounds=rounds, finish_reason=reason)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The process's engine over a made-up run; `fake.permits` lets rounds happen."""
    state = SimpleNamespace(permits=threading.Semaphore(100), requests=[], trace=SAMPLES["rejected"]())

    def start(_pair, request, stop):
        state.requests.append(request)
        return FakeRun(state.trace, stop, state.permits)

    loader = lambda name, progress: SimpleNamespace(drafters=("early-exit", "lookup"))  # noqa: E731
    state.engine = Engine(loader, start=start, limits=Limits(at_once=1))
    monkeypatch.setattr(engine_module, "_shared", state.engine)
    # Made-up traces stand in for the shipped recordings here, so that the tests say exactly what must be seen.
    monkeypatch.setattr(session, "recordings", lambda: {"one": SAMPLES["rejected"](), "two": SAMPLES["greedy"]()})
    monkeypatch.setattr(session, "TRAINED", tmp_path)  # no trained drafters, whatever is shipped
    yield state
    state.engine.close()


def open_page(**query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=30)
    for name, value in query.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception and not at.get("plotly_chart")  # the stage comes first,
    at.session_state[later.STORE] = True  # and when the browser has drawn it, the charts follow
    at.run()
    assert not at.exception
    return at


def stage_of(at: AppTest) -> dict:
    return json.loads(at.get("bidi_component")[0].proto.json)


def charts(at: AppTest) -> list[dict]:
    return [json.loads(c.proto.spec) for c in at.get("plotly_chart")]


def strip(at: AppTest) -> dict[str, str]:
    return {m.label: m.value for m in at.metric}


def headline(at: AppTest) -> str:
    return next(m.value for m in at.markdown if m.value.startswith("#### "))


def settle(at: AppTest, state: str) -> None:
    """Poll as the fragment does, until the stage says `state`."""
    until(lambda: stage_of(at.run())["state"] == state, pause=0.02, said=lambda: stage_of(at)["state"])
    assert not at.exception


def test_the_first_picture_is_a_recording_with_its_figures_and_a_chosen_token(fake):
    at = open_page()
    view = stage_of(at)
    assert view["label"] == "Recording · 29 Nov 2026 · cpu" and view["kind"] == "recording" and len(view["rounds"]) == len(fake.trace.rounds)
    assert strip(at)["Acceptance rate α"] == f"{metrics.summary(fake.trace).acceptance_rate:.2f}"
    assert headline(at) == "#### Round 1: `␣invoice` is rejected, `␣report` takes its place"
    assert len(charts(at)) == 2 and len(at.latex) == 1
    assert fake.requests == [] and fake.engine.state == "empty"


def test_the_first_picture_needs_no_torch():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60).run()\n"
        "print([str(e.value) for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"


def test_every_figure_of_the_strip_carries_its_definition(fake):
    for metric in open_page().metric:
        assert metric.help == next(m.definition for m in metrics.METRICS.values() if m.title == metric.label)


def test_a_link_restores_every_setting(fake):
    query = dict(
        prompt="Say hi",
        drafter="early-exit",
        draft_length="7",
        temperature="0.8",
        top_k="40",
        top_p="0.9",
        max_new_tokens="32",
        seed="11",
        raw="true",
    )
    at = open_page(**query)
    at.button(key="run").click().run()
    settle(at, "done")
    (request,) = fake.requests
    s = request.settings
    assert (request.prompt, s.drafter, s.draft_length, s.temperature) == ("Say hi", "early-exit", 7, 0.8)
    assert (s.top_k, s.top_p, s.max_new_tokens, s.seed, s.raw) == (40, 0.9, 32, 11, True)


def test_a_bad_link_falls_back_to_the_defaults(fake):
    at = open_page(drafter="nobody", draft_length="999", temperature="hot", seed="-3", raw="maybe")
    at.button(key="run").click().run()
    settle(at, "done")
    s = fake.requests[0].settings
    assert (s.drafter, s.draft_length, s.temperature, s.seed, s.raw) == ("lookup", 4, 0.0, 0, False)


def test_the_best_drafter_that_is_there_is_offered_first(fake, tmp_path):
    assert open_page().selectbox(key="drafter").value == "lookup"
    (tmp_path / "head.safetensors").write_bytes(b"")
    assert open_page().selectbox(key="drafter").value == "head"


def test_a_run_appears_round_by_round_and_ends_with_its_figures(fake):
    fake.permits = threading.Semaphore(2)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "running")
    until(lambda: len(stage_of(at.run())["rounds"]) >= 2)
    assert stage_of(at)["kind"] == "live" and not at.button(key="stop").disabled
    fake.permits.release(10)
    settle(at, "done")
    at.run()
    assert len(stage_of(at)["rounds"]) == len(fake.trace.rounds) and at.button(key="stop").disabled
    assert strip(at)["Mean acceptance length τ"] == metrics.show(
        "mean_acceptance_length", metrics.summary(fake.trace).mean_acceptance_length
    )


def test_moving_another_control_does_not_disturb_a_run(fake):
    fake.permits = threading.Semaphore(1)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "running")
    run = stage_of(at)["run"]
    at.slider(key="draft_length").set_value(9).run()
    at.text_area(key="prompt").set_value("something else").run()
    assert stage_of(at)["run"] == run and stage_of(at)["state"] == "running" and len(fake.requests) == 1


def test_while_a_run_goes_on_only_a_token_that_was_chosen_is_worked_out(fake):
    fake.permits = threading.Semaphore(1)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "running")
    until_round(at)
    assert charts(at) == [] and not at.latex and not [m for m in at.markdown if m.value.startswith("#### ")]
    at.session_state["_stage_selected"] = {"run": stage_of(at)["run"], "round": 0, "token": 0}
    at.run()
    assert headline(at).startswith("#### Round 1: ") and len(charts(at)) >= 1
    del at.session_state["_stage_selected"]
    fake.permits.release(100)
    settle(at, "done")
    assert headline(at) and len(charts(at)) >= 1  # now there is time to choose one that has something to show


def until_round(at: AppTest) -> None:
    until(lambda: stage_of(at.run())["rounds"])


def test_who_waits_is_told_a_place_and_a_time_and_no_time_that_nobody_can_tell(fake):
    fake.permits = threading.Semaphore(0)
    first, second = open_page(prompt="first"), open_page(prompt="second")
    for at in (first, second):
        at.button(key="run").click().run()
    settle(first, "running")
    ahead, behind = (at.session_state["_shown"].job for at in (first, second))
    assert (stage_of(second.run())["queue"], stage_of(second)["message"], stage_of(first)["message"]) == (2, "", "")
    ahead.due = behind.due = time.time() + 30.3
    assert "first round is here in about 30 s" in stage_of(first.run())["message"]
    assert re.fullmatch(r"Runs before yours: 1\. Yours begins in about (30|29) s, .*", stage_of(second.run())["message"])
    ahead.due = behind.due = time.time() - 1  # it took longer: nothing is said rather than something wrong
    assert stage_of(first.run())["message"] == stage_of(second.run())["message"] == ""
    fake.permits.release(100)
    settle(second, "done")


def test_stop_stops_and_keeps_what_was_decoded(fake):
    fake.permits = threading.Semaphore(1)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "running")
    until(lambda: stage_of(at.run())["rounds"])
    at.button(key="stop").click().run()
    settle(at, "stopped")
    assert len(stage_of(at)["rounds"]) == 1 and headline(at)


def test_an_empty_prompt_is_one_sentence_and_the_picture_stays(fake):
    at = open_page()
    at.text_area(key="prompt").set_value("   ").run()
    at.button(key="run").click().run()
    assert [e.value for e in at.error] == [r"The prompt is empty\: write something for the models to answer or continue\."]
    assert stage_of(at)["kind"] == "recording" and fake.requests == []
    assert not at.run().error  # said once


def test_a_crash_is_said_on_the_stage_and_the_next_run_works(fake, monkeypatch):
    good = fake.engine._start
    monkeypatch.setattr(fake.engine, "_start", lambda *_: 1 / 0)
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "failed")
    assert "ZeroDivisionError" in stage_of(at)["message"]
    monkeypatch.setattr(fake.engine, "_start", good)
    at.button(key="run").click().run()
    settle(at, "done")


def test_a_saved_run_plays(fake):
    at = open_page()
    at.file_uploader(key="file").set_value(("mine.json", SAMPLES["bonus"]().to_json().encode(), "application/json")).run()
    view = stage_of(at)
    assert view["label"] == "From your file · 29 Nov 2026 · cpu" and len(view["rounds"]) == 1 and not at.error
    assert headline(at).startswith("#### Round 1: `␣once`")
    at.slider(key="draft_length").set_value(9).run()  # the file stays chosen, and is not opened again
    at.button(key="run").click().run()
    settle(at, "done")


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[]", b'{"schema": 99}', b'{"schema": 1}', b"\xff\xfe\x00", b"[" * 100_000]
)
def test_a_broken_file_is_a_message_and_the_picture_stays(fake, content):
    at = open_page()
    at.file_uploader(key="file").set_value(("broken *x*.json", content, "application/json")).run()
    assert not at.exception and len(at.error) == 1
    assert at.error[0].value.startswith(r"broken \*x\*\.json was not opened, everything stays as it was\.")
    assert stage_of(at)["kind"] == "recording" and headline(at)


def test_a_click_on_a_token_shows_its_numbers(fake):
    at = open_page()
    at.session_state["_stage_selected"] = {"run": "recording-one", "round": 0, "token": 3}
    at.run()
    assert headline(at) == "#### Round 1: `␣today` is discarded"
    at.session_state["_stage_selected"] = {"run": "recording-one", "round": 0, "token": "outcome"}
    at.run()
    assert headline(at) == "#### Round 1: `␣report` replaces `␣invoice`" and len(charts(at)) == 2


def test_an_example_fills_the_prompt_and_a_recording_can_be_chosen(fake):
    at = open_page()
    at.menu_button(key="example").click("Code").run()
    assert at.text_area(key="prompt").value.startswith("Write a Python function")
    at.menu_button(key="recording").click("two").run()
    assert stage_of(at)["run"] == "recording-two" and stage_of(at)["greedy"] is True


def test_hostile_tokens_stay_text(fake):
    fake.trace = SAMPLES["hostile"]()
    at = open_page()
    at.button(key="run").click().run()
    settle(at, "done")
    for chart in charts(at):
        assert not any("<img" in label or "<script" in label for label in chart["layout"]["yaxis"]["ticktext"])
    assert all("<img" not in m.value.replace("`", "\0").split("\0")[0] for m in at.markdown)


def test_two_people_do_not_see_each_other(fake):
    fake.permits = threading.Semaphore(0)
    first, second = open_page(prompt="first"), open_page(prompt="second")
    first.button(key="run").click().run()
    settle(first, "running")
    second.button(key="run").click().run()
    view = stage_of(second)
    assert (view["state"], view["queue"], view["prompt"]) == ("queued", 2, "second")
    fake.permits.release(100)
    settle(second, "done")
    settle(first, "done")
    assert [r.prompt for r in fake.requests] == ["first", "second"] and stage_of(first)["prompt"] == fake.trace.prompt


@pytest.mark.parametrize(
    ("done", "total", "spent", "said"),
    [
        (0, None, 3, "Fetching"),
        (30_000_000, 90_000_000, 10, "Fetching: 30 of 90 MB, about 20 s left"),
        (90_000_000, 90_000_000, 10, "Fetching: 90 of 90 MB"),
        (3, 20, 0, "Fetching: 3 of 20"),
    ],
)
def test_loading_says_stage_amount_and_time_left(done, total, spent, said):
    from specdec.engine import Progress
    from specdec.ui.panels import loading_text

    assert loading_text(Progress(stage="fetching", done=done, total=total, since=time.time() - spent)) == said


def test_the_token_chosen_at_first_is_the_one_with_most_to_show():
    from specdec.ui.panels import default_selection

    assert default_selection(SAMPLES["rejected"]().rounds) == {"round": 0, "token": 2}
    assert default_selection(SAMPLES["bonus"]().rounds) == {"round": 0, "token": 0}
    assert default_selection(()) is None


def test_the_shipped_recordings_are_real_runs_that_can_be_read():
    names = sorted(p.stem for p in session.RECORDINGS.glob("*.json"))
    assert names and sorted(session.recordings()) == names
    for trace in session.recordings().values():
        assert trace.title and trace.pair.target == "SmolLM2-135M-Instruct" and trace.plain_step_seconds and trace.rounds


def test_a_kept_run_says_when_and_where_and_survives_a_strange_date():
    from specdec.ui import panels
    from specdec.ui.session import Shown

    trace = SAMPLES["rejected"]()
    shown = Shown(kind="file", run="x", label="x", trace=dataclasses.replace(trace, created="2026-02-03T10:00:00+00:00", device="cpu (AMD)"))
    assert panels.view_of(shown).to_dict()["label"].endswith("· 3 Feb 2026 · cpu")
    strange = Shown(kind="file", run="x", label="x", trace=dataclasses.replace(trace, created="once <b>upon</b>", device="cpu"))
    assert panels.view_of(strange).to_dict()["label"].endswith("· cpu")


def test_the_whole_run_shows_the_time_of_each_round_and_the_acceptance_at_each_place():
    from specdec.ui.whole_run import time_by_round

    trace = SAMPLES["rejected"]()
    view = time_by_round(trace)
    verify = next(bar for bar in view.figure["data"] if bar["name"] == "verifying")
    assert verify["y"] == pytest.approx([1e3 * r.seconds.verify for r in trace.rounds], rel=1e-4)
    assert [row["round"] for row in view.rows] == [r.index + 1 for r in trace.rounds]
    assert not [shape for shape in view.figure["layout"]["shapes"] if shape["line"]["dash"] == "solid"]
    measured = dataclasses.replace(trace, read_bandwidth=4 * trace.pair.target_parameters / 0.025)
    floor = [shape["y0"] for shape in time_by_round(measured).figure["layout"]["shapes"] if shape["line"]["dash"] == "solid"]
    assert trace.pair.dtype == "float32" and floor == [pytest.approx(25)]  # 4 bytes of each weight
