"""The page "How much faster?" without a browser: its numbers are the formulas', its sentences say what they mean."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest

from specdec import metrics, theory
from specdec.ui import session

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")


@pytest.fixture
def runs(monkeypatch):
    """Made-up traces in place of the shipped recordings, so that the tests say exactly what must be seen."""
    monkeypatch.setattr(session, "recordings", lambda: {"one": SAMPLES["rejected"](), "two": SAMPLES["greedy"]()})


def open_page(page="speedup", **query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / f"{page}.py"))
    at.run()
    assert not at.exception
    return at


def answer(at: AppTest) -> str:
    return next(h.proto.body for h in at.get("html") if "lesson-answer" in h.proto.body)


def chart(at: AppTest, number: int = 0) -> dict:
    return json.loads(at.get("plotly_chart")[number].proto.spec)


def named(figure: dict, words: str) -> dict:
    return next(t for t in figure["data"] if words in t["name"])


def test_the_first_picture_is_the_formula_with_its_best_draft_length(runs):
    at = open_page()
    assert "γ = 4 gives <strong>2.80×</strong>" in answer(at)
    assert "<strong>γ = 8</strong>: <strong>3.09×</strong>" in answer(at)  # the reference table: c .05, α .8
    curve = named(chart(at), "formula")
    assert curve["x"] == list(range(25)) and curve["y"][0] == 1
    assert curve["y"][8] == pytest.approx(theory.speedup(0.8, 8, 0.05), abs=1e-3)
    assert named(chart(at), "best γ")["x"] == [8]


def test_a_link_sets_every_slider(runs):
    at = open_page(alpha="0.5", gamma="3", cost="0.2", slope="0.1")
    assert [at.slider(key=k).value for k in ("alpha", "gamma", "cost", "slope")] == [0.5, 3, 0.2, 0.1]
    found = next(m.value for m in at.metric if m.label == "Speed-up at γ")
    assert found == f"{theory.speedup(0.5, 3, 0.2, 1.3):.2f}×"


def test_the_papers_line_appears_when_checking_is_not_free(runs):
    assert not any("v = 1" in t["name"] for t in chart(open_page())["data"])
    figure = chart(open_page(slope="0.1"))
    assert named(figure, "v = 1")["y"][4] == pytest.approx(theory.speedup(0.8, 4, 0.05), abs=1e-3)
    assert named(figure, "formula")["y"][4] == pytest.approx(theory.speedup(0.8, 4, 0.05, 1.4), abs=1e-3)


def test_where_nothing_pays_it_says_so_and_what_would(runs):
    at = open_page(alpha="0.3", cost="0.5")
    assert "no draft length is faster" in answer(at) and "above 0.50" in answer(at)
    assert "whatever α is" in answer(open_page(alpha="1.0", cost="0.9", slope="0.2"))


@pytest.mark.parametrize("view, words", [("map", "break-even"), ("costs", "break-even"), ("balance", "arithmetic")])
def test_each_view_has_a_figure_with_units_and_words_for_those_who_cannot_see_it(runs, view, words):
    at = open_page(show=view)
    figure = chart(at)
    assert any(words in t["name"] for t in figure["data"])
    assert figure["layout"]["xaxis"]["title"]["text"] and figure["layout"]["yaxis"]["title"]["text"]
    assert at.get("plotly_chart")[0].proto.alt


def test_a_measured_run_says_where_and_when_on_hover():
    from specdec.ui.explain import origin_text
    from specdec.ui.speedup_figures import run_hover

    trace = SAMPLES["rejected"]()
    told = run_hover("A <b>, of mine", trace, metrics.summary(trace)).split("<br>")
    assert told[0] == "<b>A &lt;b&gt;, of mine</b>" and told[-1] == origin_text(trace) and len(told[-1]) > 40


def test_the_map_is_white_where_the_speed_up_is_one(runs):
    colours = chart(open_page(show="map", cost="0.0"))["data"][0]
    assert colours["customdata"][0][3] == 1 and colours["z"][0][3] == 0  # α = 0 at c = 0: exactly as fast
    assert colours["zmin"] == -colours["zmax"]


def test_sliders_go_where_a_run_was(runs, monkeypatch):
    trace = SAMPLES["greedy"]()
    at = open_page()
    name = trace.title or "two"
    at.menu_button(key="take").click(name).run()
    figures = metrics.summary(trace)
    assert at.slider(key="alpha").value == pytest.approx(figures.acceptance_rate, abs=0.005)
    assert at.slider(key="gamma").value == trace.settings.draft_length
    assert any("measured in" in c.value for c in at.caption)
    at.slider(key="alpha").set_value(0.33).run()
    assert not any("measured in:" in c.value for c in at.caption)  # no longer true


def test_one_run_every_length_and_closely(runs):
    at = open_page(show="replay")
    figure = chart(at)
    replayed = named(figure, "this very text")
    assert replayed["x"] == list(range(1, 17))
    at = open_page(show="text")
    assert len(at.get("plotly_chart")) == 3 and "judged drafts were accepted" in answer(at)


def test_the_literature_is_named_as_such(runs):
    at = open_page(show="published")
    assert "T5-small" in "".join(chart(at)["data"][0]["y"])
    assert any("none was measured here" in c.value for c in at.caption)


def test_without_any_run_the_page_still_teaches(monkeypatch):
    monkeypatch.setattr(session, "recordings", dict)
    assert "3.09×" in answer(open_page())
    assert any("Make one" in i.value for i in open_page(show="replay").info)


def test_an_unknown_view_in_the_address_falls_back(runs):
    assert "γ = 4 gives" in answer(open_page(show="nonsense", alpha="7"))


def test_no_model_and_no_torch_for_the_first_picture():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60)\n"
        f"at.switch_page({str(ROOT / 'pages' / 'speedup.py')!r}); at.run()\n"
        "print([e.message for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"
