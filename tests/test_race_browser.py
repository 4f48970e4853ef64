"""The page With and without in a real browser: one clock for both sides, keys, a phone, and a race of the real pair."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.browser
LOAD = 240_000  # milliseconds: a cold pair on a busy machine


@pytest.fixture
def visit(server, chromium):
    """visit(path) -> a page that shows a race. What the console complains about fails the test at its end."""
    contexts, complaints = [], []

    def open_page(path="/race", *, width=1280, height=720, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(f"page error: {e}"))
        page.goto(server + path)
        page.locator(".race .controls, .race .notice").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Below a path of its own Streamlit first looks for its settings under that path; the 404 is its own.
    assert [c for c in complaints if "404" not in c] == []


def spoken(page) -> str:
    return page.locator(".race [role=status]").inner_text()


def texts(page) -> list[str]:
    """What both sides have written so far."""
    return page.evaluate(
        "[...document.querySelectorAll('*')].map((e) => e.shadowRoot?.querySelector('.race')).find(Boolean)"
        " && [...[...document.querySelectorAll('*')].map((e) => e.shadowRoot?.querySelector('.race')).find(Boolean)"
        ".querySelectorAll('.output')].map((o) => [...o.children].filter((s) => !s.hidden).map((s) => s.textContent).join(''))"
    )


def test_the_recorded_race_waits_at_its_telling_moment_and_follows_the_keys(visit):
    page = visit(reduced_motion="reduce")
    assert "complete after" in spoken(page) and re.search(r"\d+ of \d+ tokens", spoken(page))  # one is there, the other is not
    assert page.locator(".race[data-playing]").count() == 0 and page.locator(".lane[data-won]").count() == 1
    page.locator(".race").focus()
    page.keyboard.press("Home")
    assert texts(page) == ["", ""] and spoken(page).startswith("After 0.00 s. Plain decoding: 0 of")
    page.keyboard.press("ArrowRight")
    assert sum(map(bool, texts(page))) == 1  # the first token of the side that was quicker to begin
    page.keyboard.press("End")
    plain, speculative = texts(page)
    assert plain and plain == speculative
    page.keyboard.press("ArrowLeft")
    assert sum(map(len, texts(page))) < 2 * len(plain)
    page.get_by_label("Speed").select_option("2× speed")
    page.keyboard.press("Home")
    page.locator(".race").focus()
    page.keyboard.press(" ")
    page.locator(".race[data-playing]").wait_for()
    page.locator(".race:not([data-playing])").wait_for()
    assert texts(page) == [plain, speculative]


def test_nothing_is_cut_off_on_a_phone_and_both_sides_are_there(visit):
    page = visit(width=390, height=844, color_scheme="dark")
    page.locator(".js-plotly-plot").wait_for()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    boxes = [page.locator(".lane").nth(i).bounding_box() for i in range(2)]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"] and boxes[0]["width"] > 340
    for button in page.locator(".race .controls button:visible").all():
        assert (box := button.bounding_box())["width"] >= 43 and box["height"] >= 43 and box["x"] + box["width"] <= 390
    assert page.locator('[data-testid="stException"]').count() == 0


def test_a_race_of_the_real_pair_is_measured_then_replayed_and_the_texts_are_the_same(visit):
    page = visit("/race?drafter=lookup&max_new_tokens=16&draft_length=3")
    page.get_by_role("button", name="Run both").click()
    page.get_by_text(re.compile("Identical text, checked: all 16 tokens")).wait_for(timeout=LOAD)
    page.locator(".race .controls").wait_for()  # both have ended: the replay begins by itself
    page.locator(".race").focus()
    page.keyboard.press("End")
    plain, speculative = texts(page)
    assert plain and plain == speculative
    assert page.locator(".race .badge").inner_text() == "Live"
    for param in ("drafter=lookup", "max_new_tokens=16", "draft_length=3"):
        page.wait_for_url(f"**{param}**")
    page.get_by_text("The same as a table").click()
    page.get_by_role("button", name="Download as CSV").wait_for()
