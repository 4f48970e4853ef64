"""The page "When does the extra model not help?": each answer is a formula's, says so, and turns where the formula turns."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest

from specdec import theory
from specdec.experts import MIXTURES
from specdec.roofline import DEVICES, PAIRINGS, Load, most_requests
from specdec.ui import session

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")
PAIR = "Llama-3.1-8B + Llama-3.2-1B"


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    monkeypatch.setattr(session, "recordings", lambda: {"one": SAMPLES["rejected"](), "two": SAMPLES["greedy"]()})


def open_page(**query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / "limits.py"))
    at.run()
    assert not at.exception
    return at


def answer(at: AppTest) -> str:
    """The last one of the view: above it may be that of a measurement."""
    return [h.proto.body for h in at.get("html") if '<p class="lesson-answer' in h.proto.body][-1]


def charts(at: AppTest) -> list[dict]:
    return [json.loads(c.proto.spec) for c in at.get("plotly_chart")]


def named(figure: dict, words: str) -> dict:
    return next(t for t in figure["data"] if words in t["name"])


def test_a_poor_draft_pays_from_the_break_even_on():
    at = open_page(alpha="0.5", gamma="4", cost="0.2")
    wanted = theory.break_even_acceptance(4, 0.2)
    assert f"α = {wanted:.2f}" in answer(at) and "(formula)" in answer(at)
    line = named(charts(at)[0], "formula, γ = 4")
    for x, y in zip(line["x"], line["y"]):
        assert abs(x - wanted) < 0.011 or (y > 1) == (x > wanted)
    assert named(charts(at)[0], "recorded runs, measured")["text"]


def test_where_nothing_pays_it_says_so():
    assert "never pays" in answer(open_page(gamma="4", cost="1.0", slope="0.2"))
    assert "does not pay even if drafting took no time" in answer(open_page(show="costly", alpha="0.1", gamma="4", slope="0.5"))


def test_a_costly_draft_may_cost_so_much():
    at = open_page(show="costly", alpha="0.8", gamma="4")
    assert f"{theory.break_even_cost(0.8, 4):.2f} plain steps" in answer(at)
    t5 = charts(at)[1]
    assert len(t5["data"]) == 4
    for group in t5["data"]:  # the paradox: α rises from small to large, the speed-up falls
        assert group["x"] == sorted(group["x"]) and group["y"] == sorted(group["y"], reverse=True)
    assert any("not measured here" in c.value for c in at.caption)


def test_a_busy_server_is_a_roofline_and_says_so():
    at = open_page(show="busy", device="L4", alpha="0.7", gamma="5")
    load = Load(pairing=PAIRINGS[PAIR], device=DEVICES["L4"], sequences=1, context=1024)
    assert f"{load.speedup(0.7, 5):.2f}×" in answer(at) and "not measured" in answer(at)
    assert named(charts(at)[-1], "v: checking 6")["y"][0] == pytest.approx(load.verify_ratio(5), abs=1e-3)
    assert any("NVIDIA L4 datasheet" in c.value for c in at.caption)


def test_a_device_of_ones_own():
    at = open_page(show="busy", device="My own figures")
    assert len(at.number_input) == 3
    at.number_input(key="own_rate").set_value(0.05).run()
    assert "never free" in answer(at)
    at.number_input(key="own_rate").set_value(0.01).run()
    assert "does not pay" in answer(at) and any("your own figures" in c.value for c in at.caption)


def test_memory():
    at = open_page(show="memory")
    fit = [
        most_requests(PAIRINGS[PAIR], DEVICES["H100 SXM"], context=1024, bytes_per_weight=2, drafting=d) for d in (False, True)
    ]
    assert f"<strong>{fit[0]}</strong>" in answer(at) and f"<strong>{fit[1]}</strong>" in answer(at)
    at.selectbox(key="pairing").set_value("Llama-3.1-70B + Llama-3.1-8B").run()
    assert "does not fit" in answer(at)
    at.selectbox(key="precision").set_value("4-bit").run()
    assert "does not fit" not in answer(at)


def test_no_model_and_no_torch_for_the_first_picture():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60)\n"
        f"at.switch_page({str(ROOT / 'pages' / 'limits.py')!r}); at.run()\n"
        "print([e.message for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"


def test_words_beside_points_cover_neither_each_other_nor_a_point():
    from specdec.ui.charts import free_places

    assert free_places([0.5], [1.0], ["a"], width=1, height=4) == ["middle right"]
    close = free_places([0.10, 0.12, 0.5], [0.4, 0.4, 2.0], ["draft", "early-exit", "head"], width=1, height=4)
    assert close[0] != "middle right" and close[1:] == ["middle right", "middle right"]
    same = free_places([0.5] * 4, [1.0] * 4, ["head"] * 4, width=1, height=4)
    assert len(set(same)) == 4
    # Where no side is free, a word that stands there already is left out, and only such a word.
    assert free_places([0.5] * 6, [1.0] * 6, ["head"] * 6, width=1, height=4)[4:] == ["", ""]
    assert all(free_places([0.5] * 6, [1.0] * 6, list("abcdef"), width=1, height=4))
    assert free_places([0.5], [1.0], ["lookup"], width=1, height=4, marks=[(0.6, 1.0)]) == ["middle left"]  # a cross stands at the right


def test_numbers_of_requests_that_do_not_fit_are_no_advice():
    """A roofline has no walls: what the sentence says stops where the memory does."""
    full = most_requests(PAIRINGS[PAIR], DEVICES["L4"], context=4096, bytes_per_weight=2, drafting=True)
    at = open_page(show="busy", device="L4", alpha="0.9", gamma="4", context="4,096")
    assert full < 64 and f"More than {full} at once do not fit" in answer(at)
    paying = [int(n) for n in re.findall(r"B = (\d+)", answer(at))]
    assert all(n <= full for n in paying), (full, answer(at))
    at = open_page(show="busy", device="L4", requests="1024", context="4,096")
    assert "lesson-bad" in answer(at)
    at = open_page(show="busy", device="L4", pairing="Llama-3.1-70B + Llama-3.1-8B")
    assert "does not fit" in answer(at) and "lesson-bad" in answer(at)


def test_a_long_prompt_leaves_little_of_the_speedup():
    at = open_page(show="reading", reading="100", answer_tokens="64", alpha="0.8", gamma="4", cost="0.05")
    alone = theory.speedup(0.8, 4, 0.05)
    whole = (100 + 64) / (100 * 1.05 + 64 / alone)
    assert f"<strong>{whole:.2f}×</strong> in all, of {alone:.2f}×" in answer(at)
    assert f"longer than <strong>{100 * 0.05 / (1 - 1 / alone):.1f} tokens</strong>" in answer(at)
    line = named(charts(at)[0], "prompt of 100 plain steps")
    assert line["y"][line["x"].index(1)] == pytest.approx(101 / (105 + 1 / alone), abs=1e-3)
    assert "no answer is long enough" in answer(open_page(show="reading", alpha="0.1", cost="0.5"))
    assert "it pays from" not in answer(open_page(show="reading", reading="0"))
    measured = [h.proto.body for h in at.get("html") if "Measured (" in h.proto.body]
    assert measured and "\\" not in measured[0]  # no Markdown, so nothing is escaped for it


def test_what_reading_left_is_that_of_the_records():
    """Reading takes 0.5 s, a plain step 0.1 s: 5 steps. Ten tokens in 1 s against 0.5 s; with reading 1.5 s against 1 s."""
    from made_up_measurements import made_up

    from specdec.measure_records import Arm
    from specdec.ui.workload_view import read_and_decoded

    made = made_up([2.0])
    records = tuple(dataclasses.replace(r, seconds_prefill=0.5, seconds_verify=1.0) for r in made.records)
    found = read_and_decoded(dataclasses.replace(made, records=records), Arm("head", 4))
    assert found == pytest.approx((5.0, 2.0, 1.5))
    assert read_and_decoded(made, Arm("lookup", 2)) is None


def test_a_mixture_of_experts_reads_more_for_checking():
    at = open_page(show="experts", mixture="Mixtral 8x7B", alpha="0.8", gamma="4", cost="0.05")
    chosen = MIXTURES["Mixtral 8x7B"]
    ratio = float(chosen.verify_ratio(4))
    assert f"<strong>{ratio:.2f} times</strong>" in answer(at) and f"{theory.speedup(0.8, 4, 0.05):.2f}×" in answer(at)
    assert f"<strong>{theory.speedup(0.8, 4, 0.05, ratio):.2f}×</strong> remains" in answer(at)
    assert [s.key for s in at.slider if s.key == "slope"] == []  # the mixture says what checking costs
    assert "Least at B" in answer(open_page(show="experts", expert_requests="256"))
