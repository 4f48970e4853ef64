"""The lesson: ten cards over the pages of the app, and the notes for whoever teaches it."""

from __future__ import annotations

from specdec.ui import cards_view, lesson, places, session
from specdec.ui.lesson import text, texts

session.lease()
with lesson.page("lesson"):
    if lesson.choose("lesson_show", texts("lesson.views"), text("lesson.view")) == "notes":
        cards_view.show_notes()
    else:
        cards_view.show_cards(places.pages())
