"""The entry script: page settings, navigation, and the frame around every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from specdec.ui import cards, cards_view, frame, links, looks, places, present
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

known = places.pages()
page = st.navigation([places.home(), *known.values()], position="top")
name = next((name for name, one in known.items() if one is page), "rounds")
present.begin()
links.begin(name)
cards.begin(name)
present.look()
frame.top(name, also=present.toggle)
cards_view.bar(known)
with looks.turn():
    page.run()
st.html(f"<script>{(ROOT / 'assets' / 'app.js').read_text()}</script>", unsafe_allow_javascript=True)
present.script()
