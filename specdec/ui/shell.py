"""The entry script: page settings, navigation, and the frame around every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from specdec.ui import frame, links, looks
from specdec.ui.texts import text

ROOT = Path(__file__).resolve().parents[2]

st.set_page_config(
    page_title=text("app.title"),
    page_icon=str(ROOT / "assets" / "icon.png"),
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={"About": text("app.about")},
)
st.logo(ROOT / "assets" / "logo.svg", size="large", icon_image=ROOT / "assets" / "icon.png")
st.html(ROOT / "assets" / "app.css")

rounds = ROOT / "pages" / "rounds.py"
page = st.navigation(
    [
        st.Page(rounds, title=text("nav.rounds"), url_path="home", default=True),
        # The default page answers at / only; a link to it by name has to work as well.
        st.Page(rounds, title=text("nav.rounds"), url_path="rounds", visibility="hidden"),
        st.Page(ROOT / "pages" / "race.py", title=text("nav.race"), url_path="race"),
        st.Page(ROOT / "pages" / "walkthrough.py", title=text("nav.walkthrough"), url_path="walkthrough"),
        st.Page(ROOT / "pages" / "residual.py", title=text("nav.residual"), url_path="residual"),
        st.Page(ROOT / "pages" / "speedup.py", title=text("nav.speedup"), url_path="speedup"),
        st.Page(ROOT / "pages" / "limits.py", title=text("nav.limits"), url_path="limits"),
        st.Page(ROOT / "pages" / "measure.py", title=text("nav.measure"), url_path="measure"),
    ],
    position="top",
)
links.begin("rounds" if page.url_path in ("", "home", "rounds") else page.url_path)
frame.top(page.url_path)
with looks.turn():
    page.run()
st.html(f"<script>{(ROOT / 'assets' / 'app.js').read_text()}</script>", unsafe_allow_javascript=True)
