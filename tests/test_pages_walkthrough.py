"""The walkthrough: its rounds are made by the real loop, its cards tell only what has been told, its dice are real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from specdec import story
from specdec.trace import Round
from specdec.ui.board import PARTS, board, scale

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")
CARDS = json.loads((ROOT / "assets" / "texts" / "lessons.en.json").read_text(encoding="utf-8"))["walkthrough.cards"]


def open_page(**query) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(ROOT / "pages" / "walkthrough.py"))
    at.run()
    assert not at.exception
    return at


def html_of(at: AppTest, words: str) -> str:
    return next((h.proto.body for h in at.get("html") if words in h.proto.body), "")


def told(at: AppTest) -> str:
    return " ".join(m.value for m in at.markdown)


def without_times(round_: Round) -> tuple:
    return (round_.index, round_.start, round_.drafts, round_.outcome)


def test_the_kept_traces_are_what_the_real_loop_makes():
    for name, again in (("walkthrough", story.greedy_run()), ("walkthrough-sampled", story.sampled_round(story.Dice()))):
        kept = story.kept(name)
        assert [without_times(r) for r in kept.rounds] == [without_times(r) for r in again.rounds]
        assert kept.output_ids == again.output_ids and kept.settings == again.settings


def test_the_story_is_the_one_of_the_guide():
    first, second = story.kept("walkthrough").rounds
    assert [(d.text, d.status) for d in first.drafts] == [
        (" send", "accepted"),
        (" the", "accepted"),
        (" invoice", "rejected"),
        (" today", "discarded"),
    ]
    assert (first.outcome.kind, first.outcome.text) == ("replacement", " report")
    assert [d.status for d in second.drafts] == ["accepted"] * 4 and second.outcome.kind == "bonus"
    assert story.kept("walkthrough").output_text == " send the report to the team today."


def test_plain_decoding_of_the_same_target_gives_the_same_text():
    from specdec.decoding import plain

    assert plain(story.pair(), story.PROMPT, story.GREEDY).output_ids == story.kept("walkthrough").output_ids


@pytest.mark.parametrize(
    "p, q, u, kept",
    [(0.3, 0.6, 0.49, True), (0.3, 0.6, 0.51, False), (0.6, 0.3, 0.99, True), (0.0, 0.5, 0.0, False), (0.0, 1.0, 0.0, False)],
)
def test_the_verdict_follows_the_rule(p, q, u, kept):
    round_ = story.sampled_round(story.Dice(p=p, q=q, u=u)).rounds[0]
    draft = round_.drafts[story.PLACE]
    assert draft.text == " invoice" and (draft.p, draft.q, draft.u) == (pytest.approx(p), pytest.approx(q), u)
    assert (draft.status == "accepted") is kept
    assert round_.outcome.kind == ("bonus" if kept else "replacement")
    if not kept:
        assert round_.outcome.residual_mass == pytest.approx(sum(max(0, a - b) for a, b in zip(*_rows(p, q))))


def _rows(p, q):
    two, tokens = story.pair(story.Dice(p=p, q=q)), (0, 1, 2)
    return two.target.next_distribution(tokens), two.draft.next_distribution(tokens)


def test_the_tables_are_distributions():
    for p in (0.0, 0.3, 1.0):
        for row in _rows(p, 0.6):
            assert sum(row) == pytest.approx(1) and min(row) >= 0


def test_the_first_card_is_there_at_once_and_nothing_is_told_too_early():
    at = open_page()
    first = html_of(at, '<table class="board"')
    assert first.count("not checked yet") == 4 and "report" not in first and "falls" not in first


def test_a_question_comes_before_its_answer():
    at = open_page(step="2")
    assert "report" not in html_of(at, '<table class="board"') and CARDS[1]["body"] not in told(at)
    at.button(key="guess_1_0").click().run()
    assert any("The answer: invoice" in w.value for w in at.warning)
    assert html_of(at, '<table class="board"').count("✓ kept") == 2 and CARDS[1]["body"] in told(at)
    at = open_page(step="2")
    at.button(key="guess_1_2").click().run()
    assert any("Right: invoice" in s.value for s in at.success)
    at = open_page(step="2")
    at.button(key="show_1").click().run()
    assert not at.success and not at.warning and CARDS[1]["body"] in told(at)


def test_next_and_back_go_through_all_cards():
    at = open_page()
    for number in range(2, len(CARDS) + 1):
        at.button(key="next").click().run()
        assert not at.exception and any(CARDS[number - 1]["title"] in s.value for s in at.subheader)
    assert at.button(key="next").disabled
    at.button(key="back").click().run()
    assert any(CARDS[-2]["title"] in s.value for s in at.subheader)


@pytest.mark.parametrize("step", ["0", "9", "two", ""])
def test_a_bad_link_opens_the_first_card(step):
    assert any(CARDS[0]["title"] in s.value for s in open_page(step=step).subheader)


def test_the_dice_card():
    at = open_page(step="7")
    assert "invoice is thrown away" in html_of(at, "lesson-answer") and "report" in html_of(at, "lesson-answer")
    at.slider(key="dice_u").set_value(0.2).run()
    assert "invoice is kept" in html_of(at, "lesson-answer") and not at.exception
    at.button(key="throw").click().run()
    assert any("Drawn 1 times" in c.value for c in at.caption)
    at.slider(key="dice_p").set_value(0.6).run()
    assert not any("Drawn" in c.value for c in at.caption)  # another chance, another tally


def test_the_real_tokenizer_is_shown_without_a_model():
    at = open_page(step="8")
    assert html_of(at, "␣invoice") and any("kept from a real call" in c.value for c in at.caption)


def test_the_kept_split_is_the_tokenizers(embedded_pair):
    kept = json.loads((story.FOLDER / "split.json").read_text(encoding="utf-8"))
    for tokens in kept["texts"]:
        ids = embedded_pair.encode("".join(tokens), raw=True)
        assert [embedded_pair.texts.text(i) for i in ids] == tokens


def test_words_on_the_board_are_text():
    round_ = story.kept("walkthrough").rounds[0]
    assert "<script>" not in board(round_, before=["<script>alert(1)</script>"], parts=PARTS)
    assert "kept" in scale(0.5, 0.2) and "thrown away" in scale(0.5, 0.6)


def test_no_model_and_no_torch_for_the_first_picture():
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({SHELL!r}, default_timeout=60)\n"
        f"at.switch_page({str(ROOT / 'pages' / 'walkthrough.py')!r}); at.run()\n"
        "print([e.message for e in at.exception], [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[] []"
