"""The stage in a real headless Chromium: animation, keys, choosing, growth of a live run, phone, projector, reduced motion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_traces import SAMPLES
from trace_builder import EOS

from specdec.ui.stage import STATIC

pytestmark = pytest.mark.browser
HERE = Path(__file__).parent
STAGE = "[...document.querySelectorAll('*')].map((e) => e.shadowRoot?.querySelector('.stage')).find(Boolean)"


@pytest.fixture(scope="module")
def browser(chromium):
    return chromium


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The harness page, served by Streamlit on a free port."""
    folder = tmp_path_factory.mktemp("stage")
    shutil.copytree(STATIC, folder / "static")
    shutil.copy(HERE / "stage_harness.py", folder)
    served = "import streamlit as st\nfrom specdec.ui.served import TEXTS\napp = st.App('stage_harness.py', routes=[TEXTS])\n"
    (folder / "app.py").write_text(served, encoding="utf-8")
    log = folder / "log"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port=0", "--server.address=127.0.0.1"]
    options = ["headless=true", "enableStaticServing=true", "fileWatcherType=none"]
    command += [f"--server.{o}" for o in options] + ["--browser.gatherUsageStats=false", "--runner.postScriptGC=false"]
    paths = os.pathsep.join([str(HERE.parent), str(HERE)])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        for _ in range(240):
            if found := re.search(r"http://127\.0\.0\.1:([1-9]\d*)", log.read_text()):
                yield found[0]
                break
            assert server.poll() is None, log.read_text()
            time.sleep(0.25)
        else:
            pytest.fail(f"the harness did not start: {log.read_text()}")
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="module")
def contexts(browser):
    """Browser contexts by their options, kept so that Streamlit's own files are fetched once."""
    kept = {}

    def context(**options):
        if repr(options) not in kept:
            kept[repr(options)] = browser.new_context(**options)
        return kept[repr(options)]

    return context


@pytest.fixture
def open_stage(contexts, address):
    """open_stage("sample=rejected", width=1280, ...) -> page with the stage drawn; no console error may have come by the end."""
    pages, errors = [], []

    def open_(query: str, *, width: int = 1280, height: int = 720, **options):
        page = contexts(viewport={"width": width, "height": height}, **options).new_page()
        pages.append(page)
        page.set_default_timeout(30_000)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(f"{address}/?{query}")
        page.locator(".stage .controls").wait_for()
        return page

    yield open_
    for page in pages:
        page.close()
    assert errors == []


def press(page, *keys: str) -> None:
    page.locator(".stage").focus()
    for key in keys:
        page.keyboard.press(key)


def state(page) -> tuple[str, str]:
    """(round, state) as the controls say them."""
    value = page.locator("input[type=range]").get_attribute("aria-valuetext")
    found = re.fullmatch(r"Round (\d+) of \d+, (\w+(?: \d+)?)", value)
    return found[1], found[2]


def append(page, rounds: int) -> None:
    """Let the live run have `rounds` rounds."""
    page.get_by_role("button", name="append").click()
    page.get_by_text(f"of {rounds} so far").wait_for()


def spoken(page) -> str:
    return page.locator("[role=status]").inner_text()


def test_the_arrows_step_through_the_states_of_a_round_and_each_is_spoken(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    press(page)
    said = [(state(page)[1], spoken(page))]
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        said.append((state(page)[1], spoken(page)))
    assert [s for s, _ in said] == ["draft", "verify", "judge 1", "judge 2", "judge 3", "commit"]
    assert said[0][1].startswith("Round 1. The draft model wrote four tokens: send, q .62;")
    assert "One pass of the target scored all places: send, p .71;" in said[1][1]
    assert said[4][1] == "Draft 3 of 4, invoice: rejected, u .72 is not below .39."
    assert said[5][1] == "Two of four drafts kept. report replaces invoice. Round 1 adds: send the report"
    page.keyboard.press("ArrowLeft")
    assert state(page) == ("1", "judge 3")
    page.keyboard.press("End")
    assert state(page) == ("4", "commit")
    page.keyboard.press("Home")
    assert state(page) == ("1", "draft")


def test_p_stays_hidden_until_the_pass_and_a_verdict_until_it_is_judged(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    cards = page.locator(".chips .card:not(.added)")
    looks = lambda: [cards.nth(i).get_attribute("data-look") for i in range(4)]  # noqa: E731
    numbers = page.locator(".chips .pq.p .n")
    assert looks() == ["drafted"] * 4 and numbers.all_inner_texts() == [""] * 5
    press(page, "ArrowRight")
    assert looks() == ["scored"] * 4 and numbers.all_inner_texts() == [".71", ".44", ".16", ".29", ""]
    press(page, "ArrowRight", "ArrowRight", "ArrowRight")
    assert looks() == ["accepted", "accepted", "rejected", "scored"]
    press(page, "ArrowRight")
    assert looks() == ["accepted", "accepted", "rejected", "discarded"]
    assert page.locator(".chips .card.added").get_attribute("data-look") == "replacement"


def test_play_moves_and_lands_and_space_pauses(open_stage):
    page = open_stage("sample=bonus")
    press(page, "Space")
    page.wait_for_function(f"{STAGE}.dataset.phase === 'verify'")
    assert page.evaluate(f"{STAGE}.getAnimations({{ subtree: true }}).length") > 3
    page.keyboard.press("Space")
    assert page.locator(".play").inner_text().strip() == "Play"
    frozen = state(page)
    page.wait_for_timeout(2500)
    assert state(page) == frozen
    page.locator("select.speed").select_option("4")
    press(page, "Space")
    page.wait_for_function(f"{STAGE}.querySelector('.play').textContent === 'Again'", timeout=30_000)
    assert state(page) == ("1", "commit")
    page.wait_for_function(f"{STAGE}.querySelectorAll('.ghost').length === 0")
    assert page.locator(".text .output").inner_text().strip() == "once upon a time,"


def test_buttons_scrubber_round_list_and_pills_go_to_the_same_places(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    page.get_by_role("button", name="Next round").click()
    assert state(page) == ("2", "draft")
    page.get_by_role("button", name="One step on").click()
    assert state(page) == ("2", "verify")
    page.get_by_role("button", name="Judge").click()
    assert state(page) == ("2", "judge 1")
    page.get_by_label("Round", exact=True).select_option(label="4")
    assert state(page) == ("4", "draft")
    page.get_by_role("slider", name="Place in the run").fill("0")
    assert state(page) == ("1", "draft")
    page.keyboard.press("ArrowRight")
    assert state(page) == ("1", "verify")


def test_space_plays_after_a_click_with_the_mouse_and_also_when_nothing_has_the_focus(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    page.keyboard.press("ArrowRight")
    assert state(page) == ("1", "verify")
    page.get_by_role("button", name="One step on").click()
    page.keyboard.press("Space")
    assert page.locator(".play").inner_text().strip() == "Pause"


def test_a_click_or_enter_on_a_token_tells_python(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    page.locator(".chips .card").nth(2).click()
    page.get_by_text("selected: {'round': 0, 'token': 2}").wait_for()
    page.locator(".chips .card.added").focus()
    page.keyboard.press("Enter")
    page.get_by_text("selected: {'round': 0, 'token': 'outcome'}").wait_for()
    assert page.locator(".chips .card.added").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    page.get_by_text("selected: None").wait_for()
    press(page, "End")
    page.locator(".output .t:not([hidden])").nth(3).click()
    page.get_by_text("selected: {'round': 1, 'token': 0}").wait_for()
    assert state(page) == ("2", "commit")


def test_choosing_nothing_sends_nothing_while_the_component_mounts(open_stage):
    page = open_stage("sample=rejected")
    page.get_by_text("selected: None").wait_for()


def test_model_text_is_shown_and_never_run(open_stage):
    page = open_stage("sample=hostile", reduced_motion="reduce")
    press(page, "End")
    assert page.locator(".text .output").inner_text().startswith('<img src=x onerror="window.hacked=1"></span>')
    assert page.locator(".text .prompt").inner_text() == "<b>hi</b><script>window.hacked=1</script>"
    assert page.evaluate(f"{STAGE}.querySelectorAll('img, script, b.hi').length") == 0
    assert page.evaluate("window.hacked") is None
    press(page, "Home")
    assert "<img␣src=x␣onerror=" in page.locator(".chips .card").first.inner_text()


@pytest.mark.parametrize("name", ["emoji", "hostile", "story", "ends_in_drafts"])
def test_the_whole_text_is_the_output_of_the_run(open_stage, name):
    page = open_stage(f"sample={name}", reduced_motion="reduce")
    press(page, "End")
    shown = page.evaluate(f"[...{STAGE}.querySelectorAll('.output .t:not([hidden])')].map((e) => e.textContent).join('')")
    assert shown.replace(EOS, "") == SAMPLES[name]().output_text


def test_half_a_character_shows_as_bytes_until_it_is_whole(open_stage):
    page = open_stage("sample=emoji", reduced_motion="reduce")
    page.get_by_role("button", name="Commit").click()
    assert page.locator(".openbytes").inner_text() == "⟨F0 9F⟩"
    page.get_by_label("Round", exact=True).select_option(label="2")
    page.get_by_role("button", name="Commit").click()
    assert "😀" in page.locator(".text .output").inner_text()


def test_an_appended_round_and_a_rerun_leave_the_animation_alone(open_stage):
    page = open_stage("sample=story&mode=live", reduced_motion="reduce")
    press(page, "Space", "Home", "ArrowRight")
    page.evaluate(f"{STAGE}.dataset.same = 'yes'")
    append(page, 2)
    append(page, 3)
    page.get_by_role("button", name="rerun").click()
    page.wait_for_timeout(500)
    assert page.evaluate(f"{STAGE}.dataset.same") == "yes"
    assert state(page) == ("1", "verify")


def test_a_live_run_is_followed_to_its_end(open_stage):
    page = open_stage("sample=rejected&mode=live", reduced_motion="reduce")
    page.locator("select.speed").select_option("4")
    assert page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "true"
    append(page, 2)
    append(page, 3)
    page.get_by_role("button", name="append").click()
    page.wait_for_function(f"{STAGE}.querySelector('.play').textContent === 'Again'", timeout=60_000)
    assert state(page) == ("4", "commit")
    assert page.get_by_role("button", name="Live").count() == 0


def test_the_place_in_a_run_survives_leaving_the_page(open_stage):
    page = open_stage("sample=story&mode=away", reduced_motion="reduce")
    page.get_by_label("Round", exact=True).select_option(label="8")
    page.get_by_role("button", name="Verify").click()
    toggle = page.locator('[data-testid="stCheckbox"] label')
    toggle.click()
    page.locator(".stage").wait_for(state="detached")
    toggle.click()
    page.locator(".stage .controls").wait_for()
    assert state(page) == ("8", "verify")


def test_with_reduced_motion_nothing_moves_but_the_states_go_on(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    press(page, "ArrowRight", "ArrowRight")
    moving = f"{STAGE}.getAnimations({{ subtree: true }}).filter((a) => a.effect.getKeyframes().length).length"
    assert page.evaluate(moving) == 0
    page.locator("select.speed").select_option("4")
    press(page, "Space")
    page.wait_for_function(f"{STAGE}.dataset.phase === 'commit'", timeout=30_000)
    assert page.evaluate(moving) == 0


@pytest.mark.parametrize("name", ["rejected", "greedy", "eight_drafts", "lookup", "hostile"])
def test_a_round_fits_a_projector_and_keeps_its_height_in_every_state(open_stage, name):
    page = open_stage(f"sample={name}&quiet", reduced_motion="reduce")
    fits_and_keeps_its_height(page)
    page.set_viewport_size({"width": 960, "height": 720})
    page.wait_for_function(f"{STAGE}.getBoundingClientRect().right <= 960")
    fits_and_keeps_its_height(page)


def fits_and_keeps_its_height(page) -> None:
    press(page, "Home")
    heights, cut = set(), []
    for _ in range(int(page.locator("input[type=range]").get_attribute("max")) + 1):
        top, bottom, boxes = page.evaluate(
            f"""(() => {{
                const s = {STAGE};
                const parts = [...s.querySelectorAll('.box, .judge, .controls')].filter((e) => e.offsetParent);
                const cut = parts.filter((e) => e.scrollHeight > e.clientHeight + 1).map((e) => e.textContent);
                const box = s.querySelector('.controls').getBoundingClientRect();
                return [s.getBoundingClientRect().top, box.bottom, cut];
            }})()"""
        )
        heights.add(round(bottom - top))
        cut += boxes
        page.keyboard.press("ArrowRight")
    assert bottom <= 720
    assert len(heights) == 1 and heights.pop() <= 605
    assert cut == []


def test_a_phone_has_one_column_and_fingers_find_every_button(open_stage):
    page = open_stage("sample=rejected", width=390, height=844, reduced_motion="reduce")
    press(page, "End")
    assert page.evaluate(f"{STAGE}.dataset.layout") == "chips"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(f"{STAGE}.scrollWidth <= {STAGE}.clientWidth")
    small = page.evaluate(
        f"[...{STAGE}.querySelectorAll('button, select, summary')].filter((e) => e.offsetParent)"
        ".filter((e) => e.getBoundingClientRect().height < 44 || e.getBoundingClientRect().width < 44).map((e) => e.textContent)"
    )
    assert small == []
    assert page.locator(".controls").bounding_box()["y"] + page.locator(".controls").bounding_box()["height"] <= 844


def test_a_larger_base_font_makes_everything_larger(open_stage):
    sizes = []
    for big in ("", "&big=24"):
        page = open_stage(f"sample=rejected{big}", width=1920, height=1080)
        sizes.append(page.evaluate(f"parseFloat(getComputedStyle({STAGE}.querySelector('.why p')).fontSize)"))
    assert sizes[1] == pytest.approx(1.5 * sizes[0])


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("empty", "Write a prompt and press Run."),
        ("loading", "Reading weights, 61 of 98 MB"),
        ("queued", "Runs before yours: 1."),
        ("running", "The target reads the prompt"),
        ("failed", "The models need 9.1 GB and 6.2 GB are free: choose a smaller pair."),
        ("stopped", "Stopped before the first round"),
    ],
)
def test_without_a_round_the_stage_says_why(open_stage, mode, words):
    page = open_stage(f"mode={mode}")
    page.locator(".blank").get_by_text(words).wait_for()
    assert words in spoken(page)


def test_without_a_round_the_stage_reserves_the_room_of_one(open_stage):
    tops = [open_stage(query).locator(".controls").bounding_box()["y"] for query in ("mode=running", "sample=rejected")]
    assert tops[0] == pytest.approx(tops[1], abs=2)


def test_a_failed_run_keeps_its_rounds_and_says_what_failed(open_stage):
    page = open_stage("mode=failed&have=2", reduced_motion="reduce")
    assert "The models need 9.1 GB" in page.locator(".status").inner_text()
    press(page, "End")
    assert state(page) == ("2", "commit")


def test_a_recording_is_called_a_recording_in_every_state(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    for key in ("Home", "ArrowRight", "End"):
        press(page, key)
        assert page.locator(".badge").inner_text().strip() == "Made-up test data · 29 Nov 2026 · cpu"
        assert page.locator(".badge").get_attribute("data-kind") == "recording"


def test_the_round_can_be_read_as_a_table(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    page.get_by_text("This round as a table").click()
    rows = page.locator(".table tbody tr")
    assert rows.nth(2).locator("td").all_inner_texts() == ["3", "“␣invoice”", ".41", ".16", ".39", ".72", "rejected"]
    assert rows.nth(4).locator("td").all_inner_texts()[:2] == ["target", "“␣report”"]
    page.get_by_role("button", name="Next round").click()
    assert page.locator(".table caption").inner_text() == "Round 2"


def test_colours_follow_the_theme_of_the_page(open_stage):
    def ink(scheme):
        page = open_stage("sample=rejected", color_scheme=scheme)
        return page.evaluate(f"getComputedStyle({STAGE}).color"), page.evaluate(
            f"getComputedStyle({STAGE}.querySelector('.chips .card')).backgroundColor"
        )

    assert ink("light") != ink("dark")


# --- predict first ---


def test_predict_first_asks_before_each_verdict_and_counts_the_answers_here(open_stage):
    page = open_stage("sample=rejected", reduced_motion="reduce")
    ask, score = page.locator(".ask"), page.locator(".score")
    assert not ask.is_visible()
    page.get_by_role("button", name="Predict").click()
    press(page, "ArrowRight", "ArrowRight")
    assert state(page) == ("1", "verify") and ask.is_visible() and not page.locator(".why").is_visible()
    assert page.locator(".chips .card").nth(0).get_attribute("data-look") == "scored"
    assert spoken(page).endswith("A: Accept, R: Reject")
    page.keyboard.press("a")
    assert state(page) == ("1", "judge 1") and score.inner_text() == "✓ Right. 1 of 1"
    assert spoken(page).startswith("Right. Draft 1 of 4, send: accepted")
    press(page, "ArrowRight", "r")
    assert state(page) == ("1", "judge 2") and score.inner_text() == "✕ Not this time. 1 of 2"
    press(page, "ArrowRight", "r")
    assert state(page) == ("1", "judge 2")  # the verdict does not show before the replacement was asked as well
    assert ask.locator("h3").inner_text() == "✓ Right. “␣invoice” falls. What replaces it?"
    ask.get_by_role("button", name="report").click()
    assert state(page) == ("1", "judge 3") and score.inner_text() == "✓ Right. 3 of 4"
    press(page, "Home", "ArrowRight", "ArrowRight", "ArrowRight")
    assert state(page) == ("1", "judge 2") and score.inner_text() == "3 of 4"  # nothing is asked twice


def test_playing_stops_for_a_question_and_goes_on_behind_it(open_stage):
    page = open_stage("sample=bonus", reduced_motion="reduce")
    page.get_by_role("button", name="Predict").click()
    page.locator("select.speed").select_option("4")
    press(page, "Space")
    page.locator(".ask").wait_for(timeout=30_000)
    assert page.locator(".play").inner_text().strip() == "Play" and state(page)[1] == "verify"
    press(page, "Space")  # only shown, so not counted
    page.wait_for_function(f"{STAGE}.querySelector('.ask:not([hidden])') && {STAGE}.dataset.phase === 'judge'", timeout=30_000)
    assert page.locator(".score").inner_text() == ""


@pytest.mark.parametrize(("width", "name"), [(1280, "rejected"), (960, "greedy"), (960, "eight_drafts"), (390, "rejected")])
def test_a_question_fits_its_box_and_moves_nothing(open_stage, name, width):
    page = open_stage(f"sample={name}&quiet", width=width, height=720 if width > 390 else 844, reduced_motion="reduce")
    page.get_by_role("button", name="Predict").click()
    height = f"{STAGE}.querySelector('.controls').getBoundingClientRect().bottom - {STAGE}.getBoundingClientRect().top"
    heights, cut, small, asked = set(), [], [], 0
    for _ in range(9):
        press(page, "ArrowRight")
        heights.add(round(page.evaluate(height)) if width > 390 else 0)
        if page.locator(".ask").is_visible():
            asked += 1
            cut += page.evaluate(f"((e) => (e.scrollHeight > e.clientHeight + 1 ? [e.textContent] : []))({STAGE}.querySelector('.ask'))")
            box = f"[...{STAGE}.querySelectorAll('.ask button')].filter((e) => e.offsetParent)"
            small += page.evaluate(f"{box}.filter((e) => e.getBoundingClientRect().height < 44).map((e) => e.textContent)")
    assert asked >= 4 and len(heights) == 1
    assert cut == [] and small == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
