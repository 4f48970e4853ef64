"""The page in a real browser, over the real pair: type, run, step with the keyboard, click a token, stop, open a file, leave.

One server and one Chromium serve the whole session. Without a browser the tests are skipped; in CI that is a failure.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browsers import LOGS
from sample_traces import SAMPLES

ROOT = Path(__file__).resolve().parents[1]
LOAD = 240_000  # milliseconds: a cold pair on a busy machine
RUN = 90_000

OVER = "ended by itself|length limit reached"

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(server, chromium):
    """visit(path, ...) -> a page that has drawn its stage. Whatever the console complains about fails the test at its end."""
    contexts, complaints = [], []

    def open_page(path="/", *, width=1280, height=720, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(RUN)
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}") if complains(m) else None)
        page.on("pageerror", lambda e: complaints.append(f"page error: {e}"))
        page.goto(server + path)
        page.locator(".stage .badge, .stage .top").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def complains(message) -> bool:
    """Whether a line of the console is a complaint; on a link to a page Streamlit tries two addresses that are not there."""
    own_search = "/rounds/_stcore/" in message.location.get("url", "")
    return message.type in ("error", "warning") and not own_search


def ready(server: str) -> dict:
    try:
        with urllib.request.urlopen(f"{server}/readyz", timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:  # 503: not loaded yet
        return json.load(error)


def wait_for(condition, *, seconds: float) -> float:
    """Seconds until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "waited in vain"
        time.sleep(0.05)
    return time.monotonic() - begun


def top(page) -> str:
    return page.locator(".stage .top").inner_text()


def says(page, words: str, *, timeout: int = RUN) -> None:
    page.locator(".stage .top", has_text=re.compile(words)).wait_for(timeout=timeout)


def check_it_goes_on(page, server: str, end: float) -> None:
    """Fail at once, with the reason, when the run has failed or the time is over."""
    if "failed" in top(page) or time.monotonic() > end:
        pytest.fail(f"{page.locator('.stage').inner_text()}\n{ready(server)}\n{LOGS[server].read_text()[-3000:]}")


def run(page, prompt: str) -> None:
    box = page.get_by_role("textbox", name="Prompt")
    box.fill(prompt)
    box.press("Control+Enter")
    page.locator(".stage .top", has_text="Live").wait_for()


def test_the_first_picture_is_a_recording_and_asks_for_no_model(visit, server):
    page = visit("/")
    assert "Recording" in top(page)
    page.locator(".js-plotly-plot").first.wait_for()
    assert page.locator(".stage").count() == 1
    assert ready(server)["state"] in ("empty", "ready")
    assert page.get_by_role("heading", level=1).inner_text().startswith("Run and watch")


def test_a_link_by_name_opens_with_its_settings(visit):
    page = visit("/rounds?draft_length=7&temperature=0.8&drafter=early-exit")
    assert page.get_by_role("slider", name="Draft length").input_value() == "7"
    assert page.get_by_role("combobox", name="Drafter").input_value() == "Early exit"
    assert page.get_by_text("Page not found").count() == 0


def test_type_and_run_and_watch(visit, server):
    page = visit("/?max_new_tokens=32&drafter=early-exit")
    run(page, "Count from one to ten.")
    tops = [page.locator(".stage").bounding_box()["y"]]
    end = time.monotonic() + LOAD / 1000
    while not re.search(OVER, top(page)):
        tops.append(page.locator(".stage").bounding_box()["y"])
        page.wait_for_timeout(100)
        check_it_goes_on(page, server, end)
    assert max(tops) - min(tops) <= 1, f"the stage must not jump while a run goes on: it was at {sorted(set(tops))}"
    assert page.locator(".stage").count() == 1
    assert "prompt=Count+from+one+to+ten." in page.url and ready(server)["state"] == "ready"
    page.get_by_role("button", name="Stop", exact=True).and_(page.locator(":disabled")).wait_for()
    figures = page.locator('[data-testid="stMetricValue"]').all_inner_texts()
    assert len(figures) == 6 and "–" not in figures
    assert re.search(r"\d\.\d\d× the speed of plain decoding|As fast as plain decoding", page.locator('[data-testid="stAlert"]').inner_text())


def test_the_keyboard_steps_through_a_run(visit):
    page = visit("/", reduced_motion="reduce")
    page.locator(".stage").focus()
    scrubber = page.locator(".stage input[type=range]")
    page.keyboard.press("Home")
    first = scrubber.input_value()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert int(scrubber.input_value()) == int(first) + 2
    page.keyboard.press("ArrowLeft")
    assert int(scrubber.input_value()) == int(first) + 1
    page.keyboard.press("End")
    assert scrubber.input_value() == scrubber.get_attribute("max")


def test_a_click_on_a_token_shows_its_numbers_below(visit):
    page = visit("/", reduced_motion="reduce", height=1600)
    page.locator(".stage").focus()
    page.keyboard.press("Home")
    page.locator(".stage .card").nth(1).click()
    headline = page.locator("h4")
    headline.get_by_text("Round 1:").wait_for()
    token = page.locator(".stage .card .tok").nth(1).inner_text().strip()
    page.locator("h4 code").first.wait_for()
    assert headline.locator("code").first.inner_text().strip("␣⏎") in token or token in headline.inner_text()
    page.locator(".katex").first.wait_for()


def test_another_control_does_not_kill_a_run_and_stop_stops_it(visit, server):
    page = visit("/?max_new_tokens=256&drafter=early-exit")
    run(page, "Tell me a long story about a dragon.")
    says(page, "tokens? so far", timeout=LOAD)
    page.get_by_role("slider", name="Draft length").press("ArrowRight")
    page.wait_for_timeout(1000)
    assert ready(server)["running"] and re.search("so far|running", top(page))
    page.get_by_role("button", name="Stop", exact=True).click()
    assert wait_for(lambda: not ready(server)["running"], seconds=20) < 15
    says(page, "[Ss]topped")
    page.get_by_role("button", name="Stop", exact=True).and_(page.locator(":disabled")).wait_for()


def test_closing_the_tab_frees_the_engine(visit, server):
    page = visit("/?max_new_tokens=256&drafter=early-exit")
    run(page, "Tell me a long story about a whale.")
    says(page, "tokens? so far", timeout=LOAD)
    page.close()
    wait_for(lambda: not ready(server)["running"], seconds=15)


def test_a_broken_file_is_one_sentence_and_hostile_tokens_are_text(visit, tmp_path):
    page = visit("/", height=1400)
    before = page.locator("h4").inner_text()
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": 1, "rounds": "none"}')
    page.locator('input[type="file"]').set_input_files(broken)
    message = page.locator('[data-testid="stAlert"]', has_text="broken.json was not opened")
    message.wait_for()
    assert "Recording" in top(page) and page.locator("h4").inner_text() == before

    page.get_by_role("button", name="Remove").first.click()
    hostile = tmp_path / "hostile.json"
    hostile.write_text(SAMPLES["hostile"]().to_json(), encoding="utf-8")
    page.locator('input[type="file"]').set_input_files(hostile)
    says(page, "From your file")
    page.locator(".stage").focus()
    page.keyboard.press("End")
    page.wait_for_timeout(500)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".stage img, .stage script, .js-plotly-plot img").count() == 0
    assert page.locator(".stage", has_text="onerror").count() == 1


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 720, "light"), (390, 844, "dark")])
def test_nothing_is_cut_off_sideways(visit, width, height, scheme):
    page = visit("/", width=width, height=height, color_scheme=scheme)
    page.locator(".js-plotly-plot").first.wait_for()
    wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert wide <= width
    play = page.locator(".stage").get_by_role("button", name="Play")
    assert play.is_visible()
    if width > 1000:  # prompt, one round and the controls of the stage fit a projector
        assert play.bounding_box()["y"] + play.bounding_box()["height"] <= height
