"""What the stage is told, and its pure JavaScript under Node. The stage in a real browser: test_stage_browser.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sample_traces import SAMPLES, all_samples
from trace_builder import EOS

from specdec.trace import Settings
from specdec.ui.stage import STATIC, _selection, _version
from specdec.ui.stage_view import ROWS, StageView

HERE = Path(__file__).parent


def view_of(name: str, **changes) -> StageView:
    return StageView.from_trace(SAMPLES[name](), run=name, label="made-up test data", **changes)


# --- what travels ---


def test_a_view_is_strict_json_in_the_names_of_the_trace():
    for name, trace in all_samples().items():
        data = json.loads(json.dumps(view_of(name).to_dict(), allow_nan=False))
        assert [r["index"] for r in data["rounds"]] == [r.index for r in trace.rounds]
        for sent, kept in zip(data["rounds"], trace.rounds, strict=True):
            assert [d["status"] for d in sent["drafts"]] == [d.status for d in kept.drafts]
            assert [d["u"] for d in sent["drafts"]] == [d.u and pytest.approx(d.u, rel=1e-5) for d in kept.drafts]
            assert sent["outcome"]["kind"] == kept.outcome.kind and sent["outcome"]["text"] == kept.outcome.text


def test_a_view_is_light_enough_to_be_sent_with_every_round():
    data = view_of("story").to_dict()
    drafts = sum(len(r["drafts"]) for r in data["rounds"])
    assert len(json.dumps(data)) < 500 * drafts


def test_a_recording_waits_and_a_live_run_plays():
    assert view_of("rejected").kind == "recording" and not view_of("rejected").play
    live = StageView.live(run="r", label="Live", prompt="Hi", settings=Settings(), state="running")
    assert live.kind == "live" and live.play and live.to_dict()["rounds"] == []
    assert StageView.empty().to_dict()["state"] == "empty"


def test_a_stopped_trace_is_shown_as_stopped():
    from dataclasses import replace

    trace = replace(SAMPLES["rejected"](), finish_reason="stopped")
    assert StageView.from_trace(trace, run="r", label="l").state == "stopped"


def test_the_list_of_a_position_has_the_drafted_token_even_when_neither_model_favours_it():
    for trace in all_samples().values():
        for round_ in view_dict(trace)["rounds"]:
            for draft in round_["drafts"]:
                row = next(r for r in draft["rows"] if r[0] == draft["id"])
                assert row[2:] == [draft["p"], draft["q"]]
                assert len(draft["rows"]) <= ROWS


def test_a_token_that_a_one_hot_draft_does_not_list_has_q_0_and_not_an_unknown_q():
    draft = view_dict(SAMPLES["lookup"]())["rounds"][1]["drafts"][0]
    assert [row[3] for row in draft["rows"]] == [1.0, 0.0, 0.0, 0.0, 0.0]


def view_dict(trace):
    return StageView.from_trace(trace, run="r", label="l").to_dict()


def test_what_is_left_over_is_p_minus_q_and_the_rejected_token_has_nothing_left():
    outcome = view_dict(SAMPLES["rejected"]())["rounds"][0]["outcome"]
    assert outcome["residual_mass"] == pytest.approx(0.43)
    left = {text: rest for _, text, _, _, rest in outcome["rows"]}
    assert left == pytest.approx({" report": 0.34, " file": 0.06, " money": 0.03, " invoice": 0.0})
    for _, _, p, q, rest in outcome["rows"]:
        assert rest == pytest.approx(max(0.0, p - q), abs=1e-6)


def test_the_replacement_is_always_among_the_tokens_listed():
    for trace in all_samples().values():
        for round_ in view_dict(trace)["rounds"]:
            outcome = round_["outcome"]
            if outcome["kind"] != "none":
                assert outcome["id"] in [row[0] for row in outcome["rows"]]


def test_a_greedy_view_names_the_target_s_first_choice():
    drafts = view_dict(SAMPLES["greedy"]())["rounds"][0]["drafts"]
    assert [d["choice"] for d in drafts[:3]] == [" send", " the", " report"]
    assert "choice" not in view_dict(SAMPLES["rejected"]())["rounds"][0]["drafts"][0]


# --- what comes back from the browser ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"run": "rejected", "round": 1, "token": 3}, {"round": 1, "token": 3}),
        ({"run": "rejected", "round": 0, "token": "outcome"}, {"round": 0, "token": "outcome"}),
        ({"round": 1, "token": 3}, {"round": 1, "token": 3}),
        ({"run": "another", "round": 1, "token": 3}, None),
        ({"run": "rejected", "round": None, "token": None}, None),
        ({"run": "rejected", "round": 4, "token": 0}, None),
        ({"run": "rejected", "round": -1, "token": 0}, None),
        ({"run": "rejected", "round": 0, "token": 4}, None),
        ({"run": "rejected", "round": True, "token": 0}, None),
        ({"run": "rejected", "round": 0, "token": "x"}, None),
        ("rubbish", None),
        (None, None),
    ],
)
def test_a_choice_is_believed_only_where_it_names_a_token(value, expected):
    assert _selection(value, view_of("rejected")) == expected


def test_there_is_no_outcome_to_choose_where_the_target_added_nothing():
    assert _selection({"round": 0, "token": "outcome"}, view_of("ends_in_drafts")) is None


# --- the files of the browser's part ---


def test_model_text_never_becomes_markup():
    for file in STATIC.glob("*.js"):
        code = re.sub(r"//.*|/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code), file.name


def test_the_stage_asks_nobody_else_for_anything():
    for file in (*STATIC.glob("*.js"), *STATIC.glob("*.css")):
        addresses = re.findall(r"https?://[^\"'\s)]+", file.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file.name


def test_every_module_is_loaded_and_a_change_of_any_changes_the_version(tmp_path, monkeypatch):
    entry = (STATIC / "stage.js").read_text(encoding="utf-8")
    for file in STATIC.glob("*.js"):
        assert file.stem == "stage" or f'"{file.stem}"' in entry, f"{file.name} is not loaded"
    for file in STATIC.glob("*.css"):
        assert f'"{file.stem}"' in entry, f"{file.name} is not loaded"
    copy = tmp_path / "static"
    shutil.copytree(STATIC, copy)
    monkeypatch.setattr("specdec.ui.stage.STATIC", copy)
    before = _version()
    (copy / "words.js").write_text("// changed", encoding="utf-8")
    assert _version() != before


def test_the_pure_parts_of_the_stage_under_node(tmp_path):
    """Steps, words, numbers, text from bytes, player: tests/stage.test.mjs."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed, so the JavaScript tests cannot run here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"Node {version.strip()} is too old for the JavaScript tests, which need 20")
    views = {
        name: {"view": view_dict(trace), "output_text": trace.output_text, "end": EOS} for name, trace in all_samples().items()
    }
    (tmp_path / "views.json").write_text(json.dumps(views), encoding="utf-8")
    result = subprocess.run(
        [node, "--test", "--test-reporter=tap", str(HERE / "stage.test.mjs")],
        env=os.environ | {"STAGE_VIEWS": str(tmp_path / "views.json")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert re.search(r"^# pass \d\d", result.stdout, re.M), "no test ran"


# --- inside Streamlit, without a browser ---


def _page() -> None:
    import streamlit as st
    from sample_traces import SAMPLES

    from specdec.ui.stage import StageView, stage

    st.text(repr(stage(StageView.from_trace(SAMPLES["rejected"](), run="rejected", label="made-up"))))


def test_a_click_comes_back_and_outlives_the_component():
    from streamlit.testing.v1 import AppTest

    at = AppTest.from_function(_page, default_timeout=20).run()
    assert not at.exception
    assert at.text[0].value == "None"
    sent = json.loads(at.get("bidi_component")[0].proto.json)
    assert sent["run"] == "rejected" and len(sent["rounds"]) == 4
    at.session_state["stage"] = {"selected": {"run": "rejected", "round": 0, "token": 2}}
    assert at.run().text[0].value == "{'round': 0, 'token': 2}"
    at.session_state["stage"] = {"selected": None}  # what a page switch leaves
    assert at.run().text[0].value == "{'round': 0, 'token': 2}"
