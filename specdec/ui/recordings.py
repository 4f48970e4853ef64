"""Runs and races that this tab keeps under names, beside the shipped ones. They are gone with the tab; a file lasts.

A shelf is one list of the sidebar: `RUNS` and `RACES`. What is kept is the trace (or the race) itself, its name as title, so that
a file saved from it brings the name along. Nothing here reaches the disk of the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from specdec.errors import SettingsError
from specdec.texts import table
from specdec.ui import links, session
from specdec.ui.texts import text

MOST = 8  # kept by one tab, of each shelf
LONGEST = 80  # characters of a name


@dataclass(frozen=True)
class Shelf:
    """name: of the widgets, and in the session. titled: the same thing with another title."""

    name: str
    titled: Callable[[Any, str], Any]

    @property
    def kept(self) -> dict[str, Any]:
        """What this tab keeps, by key ("mine-1"), the oldest first."""
        return st.session_state.setdefault(f"_kept_{self.name}", {})

    def keep(self, item: Any, name: str) -> str:
        """Keep `item` under `name`; returns its key. Raises SettingsError when the shelf is full."""
        if len(self.kept) >= MOST:
            raise SettingsError(text("kept.full", most=MOST))
        number = st.session_state[f"_kept_{self.name}_last"] = st.session_state.get(f"_kept_{self.name}_last", 0) + 1
        key = f"mine-{number}"
        self.kept[key] = self.titled(item, _clean(name))
        return key

    def rename(self, key: str, name: str) -> None:
        self.kept[key] = self.titled(self.kept[key], _clean(name))

    def remove(self, key: str) -> None:
        self.kept.pop(key, None)


def _clean(name: str) -> str:
    """One line of what can be seen; a name of blanks alone is no name."""
    seen = "".join(c if c.isprintable() else " " for c in name)
    return " ".join(seen.split())[:LONGEST] or text("kept.unnamed")


def title(key: str, item: Any) -> str:
    """What a list calls it: a shipped one in the language of the tab, one's own by its name."""
    if key.startswith("mine-"):
        return text("kept.mark", name=item.title)
    name = f"recording.{key}"
    return text(name) if name in table("en") else item.title or key


RUNS = Shelf("run", lambda trace, name: dataclasses.replace(trace, title=name))
RACES = Shelf("race", lambda race, name: race.renamed(name))


def chooser(shelf: Shelf, shipped: Mapping[str, Any], play: Callable[[str], None], *, key: str) -> None:
    """The list of shipped and kept ones; choosing one plays it. key: of the widget."""
    offered = {**shipped, **shelf.kept}
    st.menu_button(
        text("recordings"),
        list(offered),
        icon=":material/movie:",
        key=key,
        on_click=lambda: play(st.session_state[key]),
        format_func=lambda name: title(name, offered[name]) if name in offered else name,
        disabled=not offered or links.locked(key),
        width="stretch",
    )


def keeper(shelf: Shelf, item: Any, shown: str, suggested: str, play: Callable[[str], None]) -> None:
    """Keep what is on the stage under a name, or rename or remove it if it is one of the kept. shown: its key, if it is kept.

    item: None while there is nothing to keep. play: puts a kept one on the stage.
    """
    mine = shown in shelf.kept
    box = st.popover(
        text("kept.this" if mine else "kept.keep"),
        icon=":material/bookmark:",
        help=text("kept.keep.help"),
        disabled=item is None or links.locked(f"keep_{shelf.name}"),
        width="stretch",
        key=f"keep_{shelf.name}",
    )
    with box:
        field = f"kept_name_{shelf.name}_{shown}"
        st.text_input(text("kept.name"), value=suggested[:LONGEST], max_chars=LONGEST, key=field)

        def save() -> None:
            try:
                if mine:
                    shelf.rename(shown, st.session_state[field])
                play(shown if mine else shelf.keep(item, st.session_state[field]))
            except SettingsError as error:
                session.notice(str(error))

        def remove() -> None:
            shelf.remove(shown)

        st.button(text("kept.rename" if mine else "kept.save"), type="primary", key=f"kept_save_{shelf.name}", on_click=save)
        if mine:
            st.button(text("kept.remove"), icon=":material/delete:", key=f"kept_remove_{shelf.name}", on_click=remove)
