"""The entry script: page settings, navigation, and the frame around every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from specdec.ui import looks

ROOT = Path(__file__).resolve().parents[2]

st.set_page_config(
    page_title="Speculative decoding",
    page_icon=str(ROOT / "assets" / "icon.png"),
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={"About": "Speculative decoding with real models, round by round."},
)
st.logo(ROOT / "assets" / "logo.svg", size="large", icon_image=ROOT / "assets" / "icon.png")
st.html(ROOT / "assets" / "app.css")

rounds = ROOT / "pages" / "rounds.py"
page = st.navigation(
    [
        st.Page(rounds, title="Run and watch", url_path="home", default=True),
        # The default page answers at / only; a link to it by name has to work as well.
        st.Page(rounds, title="Run and watch", url_path="rounds", visibility="hidden"),
        st.Page(ROOT / "pages" / "race.py", title="With and without", url_path="race"),
        st.Page(ROOT / "pages" / "walkthrough.py", title="One round", url_path="walkthrough"),
        st.Page(ROOT / "pages" / "residual.py", title="Why exact?", url_path="residual"),
        st.Page(ROOT / "pages" / "speedup.py", title="How fast?", url_path="speedup"),
        st.Page(ROOT / "pages" / "limits.py", title="When not?", url_path="limits"),
        st.Page(ROOT / "pages" / "measure.py", title="Measure", url_path="measure"),
    ],
    position="top",
)
with looks.turn():
    page.run()
st.html(f"<script>{(ROOT / 'assets' / 'app.js').read_text()}</script>", unsafe_allow_javascript=True)
