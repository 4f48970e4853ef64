"""The timeline of a race and what its browser part is told: right numbers, nothing but data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sample_traces import SAMPLES
from test_race import drafted_run, plain_run

from specdec.race import Race, arrivals, bars
from specdec.ui import race_figures, race_stage
from specdec.ui.race_figures import timeline
from specdec.ui.race_stage import Lane, RaceStage

HERE = Path(__file__).parent
RACE = Path(race_stage.STATIC) / "race"


@pytest.fixture
def race():
    return Race(plain=plain_run(), speculative=drafted_run())


def groups(view):
    return {group["name"]: group for group in view.figure["data"]}


def test_every_bar_stands_where_it_was_measured(race):
    found = groups(timeline(race))
    assert set(found) == {"reading the prompt", "pass of the target", "draft step", "choosing or judging"}
    target = found["pass of the target"]
    assert target["y"] == [0] * 6 + [1] * 2  # plain above, speculative below
    assert target["x"] == pytest.approx([0.0996] * 6 + [0.12] * 2)
    assert target["base"] == pytest.approx([b.start for b in bars(race.plain) if b.kind == "plain"] + [0.06, 0.2034], rel=1e-4)
    assert found["draft step"]["y"] == [1] * 4 and found["draft step"]["x"] == pytest.approx([0.01] * 4)
    assert (
        "verify pass of the target over 3 tokens" in target["hovertext"][-1]
        and "120 ms, from 0.203 s on" in target["hovertext"][-1]
    )


def test_the_words_beside_the_lanes_and_for_those_who_cannot_see_them(race):
    view = timeline(race)
    words = [note["text"] for note in view.figure["layout"]["annotations"]]
    assert words[0] == "<b>Plain decoding</b>: first token 0.14 s, complete 0.64 s"
    assert words[1] == "<b>Speculative decoding</b>: first token 0.18 s, complete 0.32 s"
    assert "Plain decoding: first token after 0.14 s, complete after 0.64 s, 6 passes." in view.alt
    assert view.figure["layout"]["xaxis"]["range"] == [0, pytest.approx(0.643 * 1.01)]


def test_the_close_view_ends_earlier_and_has_the_same_table(race):
    long = Race(plain=plain_run(tuple(f" {i}" for i in range(40))), speculative=race.speculative)
    whole, close = timeline(long), timeline(long, close=True)
    step = (arrivals(long.plain)[-1] - arrivals(long.plain)[0]) / 39
    assert close.figure["layout"]["xaxis"]["range"][1] == pytest.approx((0.1804 + 8 * step) * 1.01)
    assert len(groups(close)["pass of the target"]["x"]) < len(groups(whole)["pass of the target"]["x"])
    assert close.rows == whole.rows and len(whole.rows) == len(bars(long.plain)) + len(bars(long.speculative))


def test_the_table_has_each_bar_in_milliseconds(race):
    rows = timeline(race).rows
    assert rows[0] == {
        "run": "plain",
        "round": None,
        "what": "reading the prompt, 1 token",
        "starts at, ms": 0.0,
        "takes, ms": 40.0,
    }
    last = rows[-1]
    assert (last["run"], last["round"], last["what"], last["takes, ms"]) == ("speculative", 2, "judging, 3 tokens come out", 0.4)


def test_a_long_race_draws_the_draft_steps_of_a_round_as_one(race, monkeypatch):
    monkeypatch.setattr(race_figures, "MOST", 10)
    view = timeline(race)
    assert groups(view)["draft step"]["x"] == pytest.approx([0.02] * 2) and len(view.rows) == 22


@pytest.mark.parametrize("name", SAMPLES)
def test_any_trace_makes_a_figure_that_is_json(name):
    race = Race(plain=SAMPLES["plain"](), speculative=SAMPLES[name]())
    for close in (False, True):
        view = timeline(race, close=close)
        assert json.dumps(view.figure, allow_nan=False) and "<img" not in json.dumps(view.figure)


# --- what the browser is told ---


def test_each_token_travels_with_its_origin_and_its_moment(race):
    sent = RaceStage.of(race, run="r", label="made-up").to_dict()
    plain, speculative = sent["lanes"]
    assert [t["at"] for t in plain["tokens"]] == pytest.approx(arrivals(race.plain), abs=1e-5)
    assert [t["origin"] for t in plain["tokens"]] == ["own"] * 6 and plain["ends"] == [1, 2, 3, 4, 5, 6]
    assert [t["origin"] for t in speculative["tokens"]] == ["accepted", "accepted", "bonus"] * 2 and speculative["ends"] == [3, 6]
    assert (sent["clock"], sent["kind"], sent["state"], plain["prefill"]) == (True, "recording", "done", 0.04)


def test_a_race_that_is_still_measured_has_texts_and_no_clock(race):
    view = RaceStage(
        run="r",
        label="Live",
        kind="live",
        state="running",
        prompt="Say",
        settings=race.speculative.settings,
        plain=Lane(name="plain", trace=race.plain),
        speculative=Lane(name="speculative", rounds=race.speculative.rounds[:1]),
        clock=False,
    ).to_dict()
    assert [len(lane["tokens"]) for lane in view["lanes"]] == [6, 3] and "at" not in view["lanes"][0]["tokens"][0]
    assert [lane["finish"] for lane in view["lanes"]] == ["length", None]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_text_that_travels_is_that_of_the_trace(name):
    trace = SAMPLES[name]()
    tokens = Lane(name="speculative", trace=trace).to_dict(clock=True)["tokens"]
    raw = b"".join(bytes.fromhex(t["bytes"]) if "bytes" in t else t["text"].encode() for t in tokens)
    assert raw.decode("utf-8", errors="ignore").startswith(trace.output_text)
    assert len(tokens) == len(trace.output_ids) and all("at" in t for t in tokens)


# --- the files of the browser's part ---


def test_model_text_never_becomes_markup_and_nobody_else_is_asked():
    files = list(RACE.glob("*.js"))
    assert {file.stem for file in files} == {"race", "clock", "lane"}
    for file in (*files, *RACE.glob("*.css")):
        code = re.sub(r"//.*|/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?:", code), file.name


def test_a_change_of_any_file_changes_the_version(tmp_path, monkeypatch):
    copy = tmp_path / "static"
    shutil.copytree(race_stage.STATIC, copy)
    monkeypatch.setattr(race_stage, "STATIC", copy)
    before = race_stage._version()
    (copy / "race" / "lane.js").write_text("// changed", encoding="utf-8")
    between = race_stage._version()
    (copy / "words.js").write_text("// changed", encoding="utf-8")
    assert len({before, between, race_stage._version()}) == 3


def test_the_clock_under_node(race, tmp_path):
    """tests/race.test.mjs, over a race with known moments."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed, so the JavaScript tests cannot run here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"Node {version.strip()} is too old for the JavaScript tests, which need 20")
    (tmp_path / "race.json").write_text(json.dumps(RaceStage.of(race, run="r", label="").to_dict()), encoding="utf-8")
    result = subprocess.run(
        [node, "--test", "--test-reporter=tap", str(HERE / "race.test.mjs")],
        env=os.environ | {"RACE_VIEW": str(tmp_path / "race.json")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert re.search(r"^# pass \d", result.stdout, re.M), "no test ran"
