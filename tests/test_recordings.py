"""Runs that a tab keeps: under a name, in the list, renamed, removed, and with their name in the file; no more than a few."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from specdec.errors import SettingsError
from specdec.race import Race
from specdec.trace import Trace
from specdec.ui import race_view, recordings, session

ROOT = Path(__file__).resolve().parents[1]


def open_page(name: str, **query) -> AppTest:
    at = AppTest.from_file(str(ROOT / "specdec" / "ui" / "shell.py"), default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page(str(ROOT / "pages" / f"{name}.py"))
    return at.run()


@pytest.fixture
def tab(monkeypatch):
    """The state of one tab, without a page."""
    state = {}
    monkeypatch.setattr("specdec.ui.recordings.st.session_state", state)
    return state


def one() -> Trace:
    return next(iter(session.recordings().values()))


def test_a_run_is_kept_renamed_and_removed_and_its_file_has_the_name(tab):
    shelf = recordings.RUNS
    key = shelf.keep(one(), "  My\n first \0 run  ")
    assert shelf.kept[key].title == "My first run" and recordings.title(key, shelf.kept[key]).endswith("My first run")
    assert Trace.from_json(shelf.kept[key].to_json()) == dataclasses.replace(one(), title="My first run")
    shelf.rename(key, "x" * 500)
    assert shelf.kept[key].title == "x" * recordings.LONGEST
    shelf.rename(key, " \u200b")
    assert shelf.kept[key].title == "Without a name"
    shelf.remove(key)
    assert shelf.kept == {} and shelf.keep(one(), "again") != key  # a key is never used twice


def test_a_tab_keeps_a_few(tab):
    for i in range(recordings.MOST):
        recordings.RUNS.keep(one(), f"run {i}")
    with pytest.raises(SettingsError, match="keeps 8 runs: remove one"):
        recordings.RUNS.keep(one(), "one more")
    assert recordings.RACES.kept == {}


def test_a_race_is_kept_with_both_runs(tab):
    race = next(iter(race_view.recordings().values()))
    key = recordings.RACES.keep(race, "My race")
    assert Race.from_json(recordings.RACES.kept[key].to_json()) == dataclasses.replace(race, title="My race")


def test_every_shipped_recording_has_a_title_in_the_texts():
    for name, item in {**session.recordings(), **race_view.recordings()}.items():
        assert recordings.title(name, item) == item.title
    assert len(session.recordings()) == 5


@pytest.mark.parametrize(("page", "shelf"), [("rounds", "run"), ("race", "race")])
def test_keep_and_rename_on_the_page(page, shelf):
    at = open_page(page)
    name = next(t for t in at.text_input if t.key.startswith(f"kept_name_{shelf}"))
    name.set_value("<b>Mine</b>")
    at.button(key=f"kept_save_{shelf}").click().run()
    assert not at.exception and [i.title for i in at.session_state[f"_kept_{shelf}"].values()] == ["<b>Mine</b>"]
    again = next(t for t in at.text_input if t.key == f"kept_name_{shelf}_mine-1")
    assert again.value == "<b>Mine</b>"
    again.set_value("Other")
    at.button(key=f"kept_save_{shelf}").click().run()
    assert [i.title for i in at.session_state[f"_kept_{shelf}"].values()] == ["Other"]
    at.button(key=f"kept_remove_{shelf}").click().run()
    assert not at.exception and at.session_state[f"_kept_{shelf}"] == {}


def test_a_link_opens_a_recording():
    at = open_page("rounds", recording="5-early-exit-loses")
    assert at.session_state["_shown"].run == "recording-5-early-exit-loses"
    assert open_page("race", race="2-early-exit-loses").session_state["_race"].run == "race-2-early-exit-loses"
    at = open_page("rounds", recording="../../etc/passwd")
    assert at.session_state["_shown"].run == "recording-1-copying-sampled" and "recording=../../etc/passwd" in at.warning[
        0
    ].value.replace("\\", "")
