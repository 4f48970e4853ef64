"""Present in a real browser: keys alone lead through the lesson, text boxes and sliders keep theirs, and a class can read it."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.browser

IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'


@pytest.fixture(scope="module")
def contexts(chromium):
    """Browser contexts by their options, kept so that Streamlit's own files are fetched once."""
    kept = {}

    def context(**options):
        if repr(options) not in kept:
            kept[repr(options)] = chromium.new_context(reduced_motion="reduce", **options)
        return kept[repr(options)]

    yield context
    for one in kept.values():
        one.close()


@pytest.fixture
def visit(server, contexts):
    """visit(path) -> a page at rest. What the console complains about fails the test at its end."""
    pages, complaints = [], []

    def open_page(path, *, width=1280, height=720, **options):
        page = contexts(viewport={"width": width, "height": height}, **options).new_page()
        pages.append(page)
        page.set_default_timeout(60_000)
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(f"page error: {e}"))
        page.goto(server + path)
        page.locator(IDLE).wait_for()
        return page

    yield open_page
    for page in pages:
        page.close()
    # Below a path of its own Streamlit first looks for its settings under that path; the 404 is its own.
    assert [c for c in complaints if "404" not in c] == []


def at_card(page, number: int) -> None:
    page.locator(".st-key-cardwords, .st-key-cardbody").get_by_text(re.compile(rf"^{number} · ")).first.wait_for()
    page.locator(IDLE).wait_for()
    page.wait_for_function("window.specdecPresent === true")  # the keys are there


def press_for(page, key: str, wanted) -> None:
    """Press a key that brings something; once, however busy the page is."""
    page.keyboard.press(key)
    wanted.wait_for()


def lead(page, key: str, number: int) -> None:
    """Press a key that leads to another card."""
    press_for(page, key, page.locator(".st-key-cardwords, .st-key-cardbody").get_by_text(re.compile(rf"^{number} · ")).first)
    at_card(page, number)


def at_step(page, words: str) -> None:
    page.wait_for_function(
        "words => [...document.querySelectorAll('*')].some((e) => e.shadowRoot?.querySelector('input[type=range]')"
        "?.getAttribute('aria-valuetext')?.toLowerCase() === words)",
        arg=words.lower(),
    )


def test_space_leads_through_the_steps_of_a_card_and_on_to_the_next_and_back_leads_back(visit):
    page = visit("/lesson?present=1")
    at_card(page, 1)
    press_for(page, "Space", page.locator(".stage.race .plain"))
    page.keyboard.press("Space")  # without movement the race is at its end at once
    at_step(page, "3.84 s")
    lead(page, "Space", 2)
    at_step(page, "Round 15 of 98, draft")
    page.wait_for_url(re.compile(r"/rounds\?.*present=1"))
    page.keyboard.press("ArrowRight")
    at_step(page, "Round 15 of 98, verify")
    lead(page, "Space", 3)
    at_step(page, "Round 15 of 98, verify")
    page.keyboard.press("End")
    at_step(page, "Round 15 of 98, judge 2")
    bottom = page.locator(".stage .below").bounding_box()
    assert bottom["y"] + bottom["height"] <= 720
    assert not page.locator('[data-testid="stHeader"]').is_visible() and not page.locator(".stage .controls").is_visible()
    page.keyboard.press("Home")
    lead(page, "ArrowLeft", 2)
    page.keyboard.press("Escape")
    page.locator('[data-testid="stHeader"]').wait_for()
    page.wait_for_function("!location.search.includes('present')")
    page.locator(".stage .controls").wait_for()  # a moment later, once the stage has been told
    page.wait_for_url("**card=2**")


def test_the_last_cards_lead_to_the_questions_which_open_one_by_one(visit):
    page = visit("/limits?card=8&show=poor&present=1")
    at_card(page, 8)
    lead(page, "PageDown", 9)
    page.locator(".adopt-verdicts").wait_for()
    lead(page, "Space", 10)
    for opened in (1, 2):
        page.keyboard.press("Space")
        page.wait_for_function("n => document.querySelectorAll('details.asked[open]').length === n", arg=opened)


def test_text_boxes_and_sliders_keep_their_keys(visit):
    page = visit("/limits?card=8&show=poor&present=1")
    at_card(page, 8)
    box = page.get_by_label("Prompt to measure")
    box.fill("")
    box.press_sequentially("a b")
    box.press("ArrowLeft")
    assert box.input_value() == "a b"
    box.press("Escape")  # out of the text, not out of the presentation
    assert "present=1" in page.url
    slider = page.get_by_role("slider", name="Acceptance rate α")
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_function("location.search.includes('alpha=0.79')")
    page.wait_for_url("**card=8**")


def test_what_a_card_speaks_of_is_outlined(visit):
    page = visit("/residual?card=6")
    outlined = "(e) => e && getComputedStyle(e).outlineStyle === 'solid' && parseFloat(getComputedStyle(e).outlineWidth) >= 3"
    for marked in (".st-key-chart_sum", ".lesson-answer"):
        page.wait_for_function(f"({outlined})(document.querySelector('{marked}'))")
    page.get_by_role("link", name="All cards").click()
    at_card(page, 6)


@pytest.mark.parametrize("path", ["/lesson", "/lesson?show=notes", "/rounds?card=4&predict=1"])
def test_the_lesson_fits_a_phone(visit, path):
    page = visit(path, width=390, height=844, has_touch=True)
    page.locator(".st-key-cardbody, .st-key-notes, .stage .controls").first.wait_for()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    assert page.locator('[data-testid="stException"]').count() == 0
