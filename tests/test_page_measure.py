"""The page "Before adopting it": a measurement by the real loops on two tiny models, stopped, gone on with, shown, downloaded."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_measurements import batch, made_up
from streamlit.testing.v1 import AppTest
from test_vllm_import import HISTOGRAM, RESPONSE, metrics
from waiting import until

from specdec import engine as engine_module
from specdec.engine import Engine
from specdec.measure_analysis import analyse
from specdec.measure_records import PLAIN, Arm
from specdec.ui import measure_controls, measure_figures

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")


@pytest.fixture(scope="module")
def engine(tiny_pair):
    engine = Engine(lambda name, progress: tiny_pair())
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def shared(engine, monkeypatch):
    arm = Arm("head", 4)
    records = (
        *made_up([1.5, 1.4, 1.6, 1.7, 1.3, 1.8]).records,
        batch(PLAIN, 1, 8.0),
        batch(arm, 1, 4.0),
        batch(PLAIN, 8, 2.0),
        batch(arm, 8, 2.5),
    )
    old = dataclasses.replace(made_up([1.5, 1.4, 1.6, 1.7, 1.3, 1.8]), records=records, title="old")
    monkeypatch.setattr(engine_module, "_shared", engine)
    monkeypatch.setattr(measure_controls, "recorded", lambda: {"old": old})
    return engine


def open_page(**query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / "measure.py"))
    at.run()
    assert not at.exception
    return at


def answer(at: AppTest) -> str:
    return next((h.proto.body for h in at.get("html") if "lesson-answer" in h.proto.body), "")


def charts(at: AppTest) -> list[dict]:
    return [json.loads(c.proto.spec) for c in at.get("plotly_chart")]


def look_until(at: AppTest, said) -> None:
    until(lambda: said(at.run()), pause=0.05, said=lambda: [w.value for w in (*at.info, *at.error, *at.success)])
    assert not at.exception


def test_the_first_picture_is_a_recorded_measurement_and_says_so():
    at = open_page()
    assert "use it, head with γ = 4: 1.55×" in answer(at)
    assert any("Recorded" in c.value and "cpu" in c.value for c in at.caption)
    assert [round(x, 2) for x in charts(at)[0]["data"][0]["x"]] == [1.55]


@pytest.mark.parametrize("view", ["lengths", "waiting", "time", "load", "memory"])
def test_every_view_has_an_answer_a_picture_and_its_units(view):
    at = open_page(show=view)
    assert answer(at) or view == "memory"  # of a made-up run nobody knows the memory
    for figure in charts(at):
        titles = [figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
        assert view == "load" or any("(" in t for t in titles), titles
    assert charts(at)


def test_the_price_moves_the_cost():
    at = open_page(show="load", m_price="3.6")
    assert "<strong>plain</strong> is ahead: 400.0 tokens/s, <strong>2.50</strong>" in answer(at)  # 400 tokens/s at 3.60 an hour
    at.slider(key="m_price").set_value(7.2).run()
    assert "400.0 tokens/s, <strong>5.00</strong>" in answer(at) and "320.0 tokens/s, 6.25" in answer(at)


def test_measured_stopped_and_gone_on_with():
    at = open_page(m_source="paste", m_repeats="3", m_tokens="64")
    at.text_area(key="m_paste").set_value("abc abc\nhello hello\none two one").run()
    at.pills(key="m_drafters").set_value(["lookup"]).run()
    at.pills(key="m_lengths").set_value(["2"]).run()
    assert any("18 runs of at most 64 tokens" in c.value for c in at.caption)
    at.button(key="start_campaign").click().run()
    campaign = at.session_state["_campaign"]
    look_until(at, lambda at: campaign.measurement is not None and len(campaign.measurement.records) > 2)
    assert at.button(key="start_campaign").disabled
    if campaign.active:
        at.button(key="stop_campaign").click().run()
        campaign.wait(20)
        at.run()
        assert any("what was measured is below" in i.value for i in at.info)
        assert "stopped after" in at.caption[-1].value or any("stopped after" in c.value for c in at.caption)
        done = len(campaign.measurement.records)
        assert at.button(key="start_campaign").label == "Go on"
        at.button(key="start_campaign").click().run()
        campaign = at.session_state["_campaign"]
        campaign.wait(60)
        at.run()
        assert len(campaign.measurement.records) == 18 > done
    assert any("Done" in s.value for s in at.success)
    assert "lookup γ = 2" in answer(at) and any("Measured here at" in c.value for c in at.caption)
    at.selectbox(key="measurement").select("Recorded: old").run()
    assert "head with γ = 4" in answer(at)


def test_a_prompt_file_with_a_bad_row_is_used_without_it():
    at = open_page(m_source="upload")
    file = b'{"prompt": "one"}\n{"kind": 3}\n{"prompt": "two", "kind": "code"}\n'
    at.file_uploader(key="m_file").upload("mine.jsonl", file, "application/jsonl").run()
    assert any("Line 2 of mine" in w.value for w in at.warning)
    assert any("6 runs" in c.value for c in at.caption)
    assert "--prompts mine.jsonl" in at.code[0].value
    at.file_uploader(key="m_file").upload("mine.csv", b"a,b\n1,2\n", "text/csv").run()
    assert any("one of them" in w.value for w in at.warning) and at.button(key="start_campaign").disabled


def test_what_cannot_be_measured_is_said_beside_the_button():
    at = open_page()
    at.pills(key="m_drafters").set_value([]).run()
    assert any("No drafter was chosen" in w.value for w in at.warning) and at.button(key="start_campaign").disabled


def test_the_controls_are_in_the_address():
    at = open_page(m_kinds="code,story", m_per_kind="2", m_lengths="3,8", m_temperature="0.7")
    command = at.code[0].value
    if "--kind code --kind story" not in command:  # the form in which an address has a list
        at = open_page(m_kinds=["code", "story"], m_per_kind="2", m_lengths=["3", "8"], m_temperature="0.7")
        command = at.code[0].value
    assert (
        "--kind code --kind story --per-kind 2" in command and "--draft-lengths 3,8" in command and "--temperature 0.7" in command
    )


def test_a_server_is_explained_by_its_own_counters():
    at = open_page(show="server")
    at.text_area(key="server_text").set_value(metrics(extra=HISTOGRAM)).run()
    assert "50%" in answer(at) and "α = 0.65" in answer(at) and "2.50 tokens a round" in answer(at)
    assert any("70 of them stood behind a rejection" in m.value for m in at.markdown)
    counted, places = charts(at)
    assert counted["data"][0]["y"] == [0.2, 0.3, 0.3, 0.2]
    assert places["data"][0]["y"] == [0.8, 0.625, 0.4] and places["data"][1]["y"] == [0.8, 0.5, 0.2]
    at.text_area(key="server_text").set_value(json.dumps(RESPONSE)).run()
    assert "8%" in answer(at) and "α = 0.20" in answer(at)
    at.text_area(key="server_text").set_value("hello").run()
    assert at.error and not at.exception


def test_intervals_are_the_whiskers():
    view = measure_figures.by_kind(analyse(made_up([1.5, 1.4, 1.6, 1.7, 1.3, 1.8])))
    bar = view.figure["data"][0]["error_x"]
    assert bar["array"][0] == pytest.approx(1.8 - 1.55) and bar["arrayminus"][0] == pytest.approx(1.55 - 1.3)
    assert view.rows[0]["verdict"] == "use it" and view.rows[0]["prompts"] == 6


def test_no_model_and_no_torch_for_the_first_picture():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60)\n"
        f"at.switch_page({str(ROOT / 'pages' / 'measure.py')!r}); at.run()\n"
        "print([e.message for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"
