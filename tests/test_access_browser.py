"""Every page once in a real browser: nothing serious for axe-core in either theme, its language, a copied link, and a run by keys.

One visit a page, for time's sake. What is Streamlit's own and not ours to mend would be named in `THEIRS`.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

PAGES = ["", "race", "lesson", "walkthrough", "residual", "speedup", "limits", "measure"]
THEIRS: set[tuple[str, str]] = set()  # (rule, part of the HTML)
WAIT = 90_000
# Streamlit fades what a running script has not written yet: such colours are nobody's choice.
AT_REST = """() => !document.querySelector('[data-stale="true"], [data-test-script-state]:not([data-test-script-state="notRunning"])')
    && document.getAnimations().every((one) => one.playState !== "running" || one.effect.getComputedTiming().iterations === Infinity)"""

pytestmark = pytest.mark.browser


def grave(page, **options) -> list[str]:
    """Violations that shut somebody out, each as one line. options: of axe-core."""
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(600)  # charts come a moment after the page, and formulas are looked at once their font is there
    for _ in range(5):  # where the page starts to run again in the meantime, colours in between would be looked at
        page.wait_for_function(AT_REST)
        violations = Axe().run(page, options=options).response["violations"]
        if page.evaluate(AT_REST):
            break
    found = []
    for rule in violations:
        if rule["impact"] not in ("serious", "critical"):
            continue
        for node in rule["nodes"]:
            if not any(rule["id"] == name and part in node["html"] for name, part in THEIRS):
                why = next((check["message"] for check in (*node["any"], *node["all"], *node["none"])), "")
                found.append(f"{rule['id']} {node['target']}: {why} {node['html'][:150]}")
    return found


@pytest.fixture
def visit(server, chromium):
    contexts = []

    def open_page(path: str, **options):
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 720}, "reduced_motion": "reduce"} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.goto(server + path)
        page.locator("h1").first.wait_for(state="attached")
        page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
        page.wait_for_timeout(300)
        return page

    yield open_page
    for context in contexts:
        context.close()


def test_no_page_has_a_serious_violation(visit):
    page, found = None, {}
    for name in PAGES:
        if page is None:
            page = visit(f"/{name}", color_scheme="light")
        else:
            page.locator(f'[data-testid="stTopNavLink"][href$="/{name}"]').click()
            page.wait_for_url(f"**/{name}*")
            page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
        found[name or "rounds"] = grave(page)
        show(page, "dark")
        found[name or "rounds"] += grave(page, runOnly=["color-contrast"])  # nothing else hangs on the theme
        show(page, "light")
    assert len(found) == len(PAGES) and {page: violations for page, violations in found.items() if violations} == {}


def show(page, scheme: str) -> None:
    """Streamlit follows the system's theme while a page is open."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    bright = "getComputedStyle(document.querySelector('.stApp')).backgroundColor.match(/\\d+/g).every((part) => part > 127)"
    page.wait_for_function(bright if scheme == "light" else f"!{bright}")


def test_a_run_with_the_keyboard_alone_and_its_link(visit):
    """In German, with a locked control: tab to the prompt, write, Ctrl+Enter, play, and copy the link with Enter."""
    page = visit("/?lang=de&max_new_tokens=8&lock=max_new_tokens&hide=adaptive", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=re.compile("Abspielen")).wait_for()
    assert page.locator(".st-key-adaptive").is_hidden() and page.get_by_role("slider", name="Längste Antwort").is_disabled()
    focus = "document.activeElement"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"{focus}?.closest?.('.st-key-prompt') != null && {focus}.matches('textarea')"):
            break
    else:
        pytest.fail("the prompt cannot be reached with Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("Say hello.")
    page.keyboard.press("Control+Enter")
    page.locator(".stage .badge", has_text="Live").wait_for()
    page.locator(".stage .status", has_text=re.compile("beendet|erreicht")).wait_for(timeout=240_000)  # loading included
    page.locator(".stage").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "Runde 1" in page.get_by_role("slider", name="Stelle im Lauf").get_attribute("aria-valuetext")
    page.locator("button.copy-link").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Kopiert", exact=True).wait_for()
    query = parse_qs(urlsplit(page.evaluate("navigator.clipboard.readText()")).query)
    assert query["prompt"] == ["Say hello."] and query["seed"] == ["0"] and query["max_new_tokens"] == ["8"]
    assert query["lock"] == ["max_new_tokens"] and query["hide"] == ["adaptive"] and query["lang"] == ["de"]
    assert {"drafter", "draft_length", "temperature", "top_k", "top_p", "raw", "adaptive"} <= query.keys()
