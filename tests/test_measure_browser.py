"""The page "Before adopting it" in a real browser: it opens with a recorded measurement and nothing is cut off."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 720, "light"), (390, 844, "dark")])
def test_verdicts_first_and_nothing_cut_off(server, chromium, tmp_path, width, height, scheme):
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True)
    page, complaints = context.new_page(), []
    page.set_default_timeout(60_000)
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    try:
        page.goto(f"{server}/measure?m_kinds=code")
        page.locator(".lesson-answer").wait_for()
        page.locator(".js-plotly-plot").first.wait_for()
        page.get_by_text("Measure it on this machine").click()
        page.get_by_text("python -m specdec measure").first.wait_for()
        assert "--kind code" in page.locator('[data-testid="stCode"]').first.inner_text()
        for view in ("Waiting", "Memory"):
            page.get_by_role("radio", name=view, exact=True).click()
            page.wait_for_function("name => location.search.includes(`show=${name}`)", arg=view.lower())  # the server writes it there
            page.locator(IDLE).wait_for()
            page.locator(".js-plotly-plot").first.wait_for()
            assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
        with page.expect_download() as download:
            page.get_by_role("button", name="Report (HTML)").click()
        download.value.save_as(tmp_path / "report.html")
        report = context.new_page()
        asked = []
        report.on("request", lambda r: asked.append(r.url))
        report.goto((tmp_path / "report.html").as_uri())
        assert report.get_by_role("heading", level=1).inner_text().startswith("Speculative decoding before adopting it")
        assert len(asked) == 1  # itself, and nothing else
    finally:
        context.close()
    assert [c for c in complaints if "404" not in c] == []
