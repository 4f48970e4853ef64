"""The entry script: page settings, navigation, and the frame around every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

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

page = st.navigation(
    [st.Page(ROOT / "pages" / "rounds.py", title="Run and watch", url_path="rounds", default=True)],
    position="top",
)
page.run()
