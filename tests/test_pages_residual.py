"""The page "Why is the result exactly the target's?": its sums are p, its dice fit, its mistakes are off by the known figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest

from specdec import mistakes
from specdec.ui import residual_view, session

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    monkeypatch.setattr(session, "recordings", lambda: {"one": SAMPLES["rejected"](), "two": SAMPLES["greedy"]()})


def open_page(**query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / "residual.py"))
    at.run()
    assert not at.exception
    return at


def answer(at: AppTest) -> str:
    return next(h.proto.body for h in at.get("html") if "lesson-answer" in h.proto.body)


def charts(at: AppTest) -> list[dict]:
    return [json.loads(c.proto.spec) for c in at.get("plotly_chart")]


def named(figure: dict, words: str) -> dict:
    return next(t for t in figure["data"] if words in t["name"])


def test_the_first_picture_is_the_reference_example_and_its_parts_add_up_to_p():
    at = open_page()
    assert "<strong>0.65</strong>" in answer(at) and "<strong>0.35</strong>" in answer(at)
    parts = charts(at)[1]
    accepted, replaced, p = (named(parts, w)["y"] for w in ("accepted", "replaced", "target p"))
    assert accepted == [0.2, 0.25, 0.1, 0.1] and replaced == pytest.approx([0.3, 0, 0.05, 0])
    assert p == [0.5, 0.25, 0.15, 0.1] and [a + b for a, b in zip(accepted, replaced)] == pytest.approx(p)


def test_sliders_are_weights():
    at = open_page(p0="1.0", p1="1.0", p2="0.0", p3="0.0")
    assert named(charts(at)[1], "target p")["y"] == [0.5, 0.5, 0, 0]
    assert any("weights" in c.value for c in at.caption)
    at.slider(key="p0").set_value(0.0).run()
    at.slider(key="p1").set_value(0.0).run()
    assert any("All weights of p are 0" in w.value for w in at.warning) and not at.exception


@pytest.mark.parametrize("name", residual_view.PRESETS)
def test_every_preset_works_in_every_view(name):
    at = open_page(**{"from": name})
    p, q = (mistakes.normalised(w) for w in residual_view.PRESETS[name])
    assert named(charts(at)[0], "target p")["y"] == pytest.approx(p, abs=1e-4)
    assert named(charts(at)[0], "draft q")["y"] == pytest.approx(q, abs=1e-4)
    for view in ("draws", "mistakes"):
        assert open_page(**{"from": name, "show": view}).get("plotly_chart")


def test_a_token_of_a_run_brings_its_own_distributions():
    found = [n for n in residual_view.starts() if n not in residual_view.PRESETS]
    assert found
    at = open_page()
    at.selectbox(key="start").set_value(found[0]).run()
    words = charts(at)[0]["layout"]["xaxis"]["ticktext"]
    assert words[-1] == "<i>all others</i>" and not at.exception
    assert any(w.startswith("␣") for w in words)


def test_the_dice_fit_the_exact_rule_and_show_a_mistake():
    at = open_page(show="draws")
    assert "3,000 tokens: <strong>the dice fit p</strong>" in answer(at)
    at.selectbox(key="rule").set_value("argmax").run()
    assert "not the target's distribution" in answer(at).replace("&#x27;", "'") and "25.0 of 100" in answer(at)
    assert named(charts(at)[0], "where this mistake leads")["y"] == pytest.approx([0.42857, 0.5, 0.07143, 0], abs=1e-4)


def test_a_small_mistake_hides_in_few_draws():
    at = open_page(show="draws")
    at.selectbox(key="rule").set_value("temperature").run()
    at.select_slider(key="draws").set_value(100).run()
    assert "so few draws do not show it" in answer(at)
    at.select_slider(key="draws").set_value(100_000).run()
    assert "not the target" in answer(at)


def test_again_throws_other_dice():
    at = open_page(show="draws")
    before = named(charts(at)[0], "drawn")["y"]
    at.button(key="again").click().run()
    assert named(charts(at)[0], "drawn")["y"] != before


def test_the_mistakes_have_the_figures_of_the_reference():
    at = open_page(show="mistakes")
    bars = charts(at)[0]["data"][0]
    found = dict(zip(bars["y"], bars["x"]))
    assert found["The exact rule"] == pytest.approx(0, abs=1e-9)
    assert found["Replacement drawn from p"] == 12.5 and found["Favourite drafted, softmax reported"] == 25.0
    assert found["Unfiltered q reported"] == pytest.approx(14.3, abs=0.05)
    assert found["Wrong temperature reported"] == pytest.approx(4.9, abs=0.05)
    assert found["Sure drafter, p drawn again"] == 18.75 and found["Drafts kept twice as easily"] == 35.0


def test_where_the_models_agree_only_some_mistakes_hide():
    assert "every draft is accepted" in answer(open_page(**{"from": "identical"}))


def test_a_real_run_keeps_its_promises():
    at = open_page(show="real")
    assert len(charts(at)) == 2
    bodies = [h.proto.body for h in at.get("html") if "lesson-answer" in h.proto.body]
    assert "Σ max p" in bodies[0] and "Σ min(p, q)" in bodies[1]
    promised, seen = named(charts(at)[1], "promised"), named(charts(at)[1], "accepted")
    trace = SAMPLES["rejected"]()
    judged = [d for r in trace.rounds for d in r.drafts if d.status != "discarded"]
    assert promised["y"][-1] == pytest.approx(sum(d.overlap for d in judged), abs=1e-3)
    assert seen["y"][-1] == trace.totals.accepted


def test_no_model_and_no_torch_for_the_first_picture():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60)\n"
        f"at.switch_page({str(ROOT / 'pages' / 'residual.py')!r}); at.run()\n"
        "print([e.message for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"
