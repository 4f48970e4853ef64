"""The lesson: its cards open what they say, with the settings they say; each number in the answers of the notes is recomputed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from specdec import metrics, texts, theory
from specdec.ui import cards, cards_view, places, race_view, session
from specdec.ui.cards import CARDS
from specdec.ui.charts import figure, larger, note, points

ROOT = Path(__file__).resolve().parents[1]
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")
TEXTS = json.loads((ROOT / "assets" / "texts" / "present.en.json").read_text(encoding="utf-8"))


def open_page(name: str, **query: str) -> AppTest:
    at = AppTest.from_file(SHELL, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page(str(ROOT / "pages" / f"{name}.py"))
    at.run()
    assert not at.exception
    return at


def bar_of(at: AppTest) -> str:
    return next((m.value for m in at.markdown if re.match(r"\*\*\d+ · ", m.value)), "")


def sent(at: AppTest) -> dict:
    return json.loads(at.get("bidi_component")[0].proto.json)


# --- the numbers of the notes ---


def notes(code: str) -> str:
    return (cards_view.NOTES / f"notes.{code}.md").read_text(encoding="utf-8")


def exercises(code: str) -> str:
    return notes(code).split("\n## ")[-2]


def answers(code: str) -> dict[int, str]:
    items = re.split(r"^(\d+)\. ", notes(code).split("\n## ")[-1], flags=re.M)[1:]
    return {int(number): text for number, text in zip(items[::2], items[1::2], strict=True)}


def numbers(text: str, code: str) -> list[str]:
    """The numbers in a text, as Python writes them."""
    mark = "," if code in texts.COMMA else "."
    return [number.replace(mark, ".") for number in re.findall(rf"\d+(?:{re.escape(mark)}\d+)?", text)]


def by_hand() -> list[float]:
    p, q = np.array([0.5, 0.25, 0.15, 0.10]), np.array([0.2, 0.5, 0.1, 0.2])
    kept, left = np.minimum(p, q), np.maximum(0, p - q)
    rest = left / left.sum()
    summed = [*kept, theory.overlap(p, q)]
    residual = [left[0], left[2], left.sum(), rest[0], rest[2]]
    report = [kept[0], 1 - theory.overlap(p, q), rest[0], left.sum() * rest[0], kept[0] + left.sum() * rest[0]]
    return [*summed, p[1], q[1], p[1] / q[1], *residual, *report]


def story() -> list[float]:
    _, a, tiny, _ = session.recordings()[cards.STORY].rounds[cards.TOLD].drafts
    outcome = session.recordings()[cards.STORY].rounds[cards.TOLD].outcome
    assert (a.text, a.status, tiny.text, tiny.status, outcome.text) == (" a", "accepted", " tiny", "rejected", " lighthouse")
    left = next(t.probability for t in outcome.distribution if t.id == outcome.id) * outcome.residual_mass
    assert a.u < a.accept_probability
    return [a.p, a.q, a.p / a.q, tiny.p / tiny.q, left, outcome.residual_mass, left / outcome.residual_mass]


def two_rates() -> list[float]:
    trace = session.recordings()[cards.STORY]
    found = metrics.summary(trace)
    drafted, tokens, rounds = sum(len(r.drafts) for r in trace.rounds), len(trace.output_ids), len(trace.rounds)
    assert (rounds, drafted) == (98, 388) and found.speedup == pytest.approx(1.0, abs=0.005)  # as the exercise says
    c, v = round(found.cost_coefficient, 2), round(found.verify_ratio, 2)
    alpha, used = found.accepted / found.judged, found.accepted / drafted
    assert (alpha, used) == pytest.approx((found.acceptance_rate, found.draft_utilisation))
    rates = [found.accepted, found.judged, alpha, found.accepted, drafted, used, tokens, rounds, tokens / rounds]
    return [*rates, c, v, theory.round_cost(4, found.cost_coefficient, found.verify_ratio)]


def copied() -> list[float]:
    round_ = session.recordings()[cards.COPY].rounds[5]
    the = round_.drafts[1]
    assert (the.text, the.status, the.q, round_.outcome.text) == (" the", "rejected", 1.0, " eggs")
    assert the.top_p[0].id == the.id  # "although the target itself liked it best"
    return [1, the.u, the.p, round_.outcome.residual_mass]


ANSWERS = {
    1: by_hand,
    2: story,
    3: lambda: [*(theory.expected_tokens(0.8, n) for n in (4, 8)), 1 / (1 - 0.8), 1, 1, 0.8],
    4: lambda: [
        theory.expected_tokens(0.8, 4),
        theory.round_cost(4, 0.05, 1),
        theory.speedup(0.8, 4, 0.05),
        *theory.best_draft_length(0.8, 0.05),
        *theory.best_draft_length(0.8, 0.2),
    ],
    5: two_rates,
    6: copied,
    7: lambda: [theory.break_even_acceptance(4, 0.05), 1 + 4 * 0.1, theory.break_even_acceptance(4, 0.05, 1 + 4 * 0.1)],
    8: lambda: [theory.operations_factor(0.8, 4, 0.05)],
}


@pytest.mark.parametrize("code", texts.LANGUAGES)
@pytest.mark.parametrize("number", ANSWERS)
def test_every_number_in_an_answer_is_what_the_formulas_and_the_recordings_say(number, code):
    written = numbers(answers(code)[number], code)
    right = ANSWERS[number]()
    assert len(written) == len(right), (written, right)
    for shown, value in zip(written, right, strict=True):
        digits = len(shown.partition(".")[2])
        assert f"{value:.{digits}f}" == shown, (shown, value, written)


@pytest.mark.parametrize("code", texts.LANGUAGES)
def test_every_exercise_has_its_answer(code):
    asked = re.findall(r"^(\d+)\. ", exercises(code), flags=re.M)
    assert [int(n) for n in asked] == list(answers(code)) == list(ANSWERS)


def test_the_givens_of_the_exercises_are_those_of_the_recordings():
    tasks = exercises("en")
    _, a, tiny, _ = session.recordings()[cards.STORY].rounds[cards.TOLD].drafts
    the = session.recordings()[cards.COPY].rounds[5].drafts[1]
    givens = [f"q = {a.q:.3f}", f"p = {a.p:.3f}", f"{a.u:.3f}", f"q = {tiny.q:.4f}", f"p = {tiny.p:.7f}"]
    givens += [f"p = {the.p:.3f}", f"{the.u:.3f}"]
    assert [g for g in givens if g not in re.sub(r"\s+", " ", tasks)] == []
    assert f"round {cards.TOLD + 1} of the recorded story" in re.sub(r"\s+", " ", tasks)


@pytest.mark.parametrize("code", [code for code in texts.LANGUAGES if code != "en"])
def test_notes_in_another_language_have_the_numbers_of_the_english_ones(code):
    assert sorted(numbers(exercises(code), code)) == sorted(numbers(exercises("en"), "en"))
    rows = [[len(re.findall(r"^\|", part, flags=re.M)) for part in notes(one).split("\n## ")] for one in (code, "en")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("code", texts.LANGUAGES)
def test_the_notes_name_pages_and_switches_as_the_app_does(code):
    said, table = re.sub(r"\s+", " ", notes(code)), texts.table(code)
    bold = [table[name] for name in ("nav.lesson", "present.switch", "predict.switch")]
    leaning = [table["nav.residual"], table["residual.views"]["mistakes"], table["residual.presets"]["sure"]]
    wanted = [*(f"**{name}**" for name in bold), *(f"*{name}*" for name in leaning)]
    assert [name for name in wanted if name not in said] == []


@pytest.mark.parametrize(("asked", "shown"), [("de", "de"), ("xx", "en")])
def test_the_notes_are_in_the_language_of_the_tab_or_in_english(asked, shown, monkeypatch):
    monkeypatch.setattr(texts, "_asked", [lambda: asked])
    assert cards_view.notes() == notes(shown) and notes("de") != notes("en")


# --- the cards ---


def test_ten_cards_name_pages_recordings_and_steps_that_exist():
    assert len(CARDS) == 10 and len({card.name for card in CARDS}) == 10
    for card in CARDS:
        assert (ROOT / "pages" / f"{card.page}.py").is_file() and card.page in places.NAMES
        assert card.recording in {"", *session.recordings(), *race_view.recordings()}
        if card.at:
            rounds = session.recordings()[card.recording].rounds
            for number, state, *token in (card.at, card.until):
                drafts = rounds[number].drafts
                assert state in ("draft", "verify", "judge", "commit")
                assert all(drafts[t].status != "discarded" for t in token)


def test_the_cards_tell_what_their_recordings_show():
    told = session.recordings()[cards.STORY].rounds[cards.TOLD]
    always, luck, fell, lost = told.drafts
    assert always.p > always.q and (always.status, luck.status) == ("accepted", "accepted")
    assert luck.u < luck.p / luck.q < 0.5
    assert (fell.status, lost.status, told.outcome.kind) == ("rejected", "discarded", "replacement")
    full = session.recordings()[cards.COPY].rounds[cards.FULL]
    assert {d.status for d in full.drafts} == {"accepted"} and full.outcome.kind == "bonus"
    faster = cards_view.values("faster")
    assert (faster["best"], round(faster["best_speed"], 2), round(faster["speed"], 2)) == (8, 3.09, 2.80)
    assert cards_view.values("slow")["passes"] == 45  # the plain side: a pass for every token


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_each_card_has_two_to_four_plain_sentences_and_all_its_numbers(card):
    words = cards_view.words(card)
    assert "{" not in words
    sentences = re.findall(r"[.?!](?: |$|\*\*)", re.sub(r"\d\.\d", "", words))
    assert 2 <= len(sentences) <= 5 and len(words) < 480


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_card_puts_its_recording_on_the_stage_and_names_its_steps_and_parts(number):
    card = CARDS[number - 1]
    at = open_page(card.page, **cards.link(number))
    assert bar_of(at).startswith(f"**{number} · {TEXTS[f'lesson.{card.name}.title']}**")
    told = sent(at)
    assert told["run"].endswith(card.recording)
    assert told["lesson"]["card"] == number and told["lesson"]["parts"] == list(card.parts)
    if card.at:
        assert told["lesson"]["at"] == {"round": card.at[0], "phase": card.at[1]}


def test_a_card_sets_the_page_even_where_somebody_was_before_and_a_link_may_differ():
    at = open_page("speedup")
    at.slider(key="alpha").set_value(0.3).run()
    for name, value in cards.link(7).items():
        at.query_params[name] = value
    at.run()
    assert at.slider(key="alpha").value == 0.8 and bar_of(at).startswith("**7 ")
    at.slider(key="alpha").set_value(0.4).run()
    assert at.slider(key="alpha").value == 0.4  # the card set it once, and does not hold it
    other = open_page("speedup", **cards.link(7) | {"alpha": "0.6"})
    assert other.slider(key="alpha").value == 0.6


@pytest.mark.parametrize("wanted", ["0", "11", "3x", "", "-1", "٣", "99999999999999999999"])
def test_a_card_that_does_not_exist_is_no_card(wanted):
    assert cards.number_of(wanted) is None


def test_another_page_than_the_card_s_has_no_bar():
    assert bar_of(open_page("speedup", card="3")) == bar_of(open_page("rounds", card="11")) == ""
    assert sent(open_page("rounds"))["lesson"] is None


def test_the_lesson_page_tells_a_card_its_questions_and_the_notes():
    at = open_page("lesson", card="3")
    assert at.segmented_control(key="lesson_card").value == "3"
    assert any("u < p / q" in m.value for m in at.markdown)
    at.segmented_control(key="lesson_card").set_value("10").run()
    asked = next(h.proto.body for h in at.get("html") if "details" in h.proto.body)
    assert asked.count("<summary>") == len(TEXTS["lesson.asked"]) == 5
    notes = open_page("lesson", show="notes")
    assert any(m.value.startswith("# Teacher notes") for m in notes.markdown)


# --- present and predict ---


def test_present_and_predict_stand_in_the_address_on_every_page():
    at = open_page("rounds", present="1", predict="1")
    assert at.toggle(key="present_switch").value is True
    told = sent(at)
    assert told["present"] is True and told["predict"]["on"] is True
    at.query_params.clear()
    at.switch_page(str(ROOT / "pages" / "speedup.py")).run()
    assert at.query_params["present"] in ("1", ["1"]) and at.query_params["predict"] in ("1", ["1"])
    at.toggle(key="present_switch").set_value(False).run()
    assert "present" not in at.query_params and at.query_params["predict"] in ("1", ["1"])


def test_the_switch_on_the_stage_comes_back_as_a_parameter():
    at = open_page("rounds")
    assert sent(at)["predict"]["on"] is False and "predict" not in at.query_params
    at = open_page("rounds", predict="maybe", present="no")
    assert "predict" not in at.query_params and "present" not in at.query_params


def test_all_texts_of_the_questions_are_there():
    told = sent(open_page("rounds"))["predict"]["texts"]
    assert {f"predict.{name}" for name in told} == {name for name in TEXTS if name.startswith("predict.")}
    assert told["score"].format(right=4, total=6) == "4 of 6"


def test_a_projector_s_figure_has_larger_words_and_leaves_the_usual_one_alone():
    usual = figure([points([1], [2], "a", "#000", labels=["here"])], x="x", y="y", notes=[note(1, 2, "best")])
    before = json.dumps(usual)
    large = larger(usual)
    assert json.dumps(usual) == before
    layout = large["layout"]
    sizes = [layout["font"], layout["legend"]["font"], layout["xaxis"]["tickfont"], layout["yaxis"]["title"]["font"]]
    sizes += [layout["annotations"][0]["font"], large["data"][0]["textfont"]]
    assert {font["size"] for font in sizes} == {19}
    assert layout["xaxis"]["title"]["text"] == "x" and layout["height"] > usual["layout"]["height"]


def test_a_card_whose_recordings_cannot_be_read_says_so(monkeypatch):
    from specdec.ui import limits_view, measure_controls

    cards_view.values.cache_clear()
    monkeypatch.setattr(limits_view, "recorded", dict)
    monkeypatch.setattr(measure_controls, "recorded", dict)
    monkeypatch.setattr(race_view, "recordings", dict)
    monkeypatch.setattr(session, "recordings", dict)
    try:
        said = {card.name: cards_view.words(card) for card in CARDS}
    finally:
        cards_view.values.cache_clear()
    unread = {name for name, words in said.items() if words == texts.text("lesson.unread")}
    assert {"slow", "draft", "bonus", "limits", "adopt"} <= unread and "faster" not in unread
    assert not any("{" in words for words in said.values())


def test_cards_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CARDS[0].page = "elsewhere"
