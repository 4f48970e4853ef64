"""Texts by language: what is missing is listed and falls back to English, places for values are the same in every language."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sample_traces import SAMPLES
from streamlit.testing.v1 import AppTest

from specdec import texts

ROOT = Path(__file__).resolve().parents[1]
OTHERS = [code for code in texts.LANGUAGES if code != texts.ENGLISH]
# Names and titles of papers, and what a model that was taught in English is to go on with, stay as they are.
ENGLISH_ALONE = {"residual.two.example", "residual.law.example", "residual.p", "residual.q", "speedup.take.arm"}


def leaves(value, name):
    """(name, text) of every string in it."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, f"{name}[{key}]")
    elif isinstance(value, list):
        for key, one in enumerate(value):
            yield from leaves(one, f"{name}[{key}]")
    elif isinstance(value, str):
        yield name, value


def strings(code: str) -> dict[str, str]:
    return {name: words for top, value in texts.table(code).items() for name, words in leaves(value, top)}


def wanted(name: str) -> bool:
    """Whether a text is to be translated: formulas, sources and what steers a card are not."""
    top = name.split("[")[0]
    words = strings("en")[name]
    steers = top == "walkthrough.cards" and any(f"[{key}]" in name for key in ("parts", "before", "options", "answer"))
    return not (top in ENGLISH_ALONE or top.endswith(".sources") or words.startswith("$") or steers)


@pytest.mark.parametrize("code", OTHERS)
def test_missing_texts_are_listed(code):
    missing = [name for name in strings("en") if wanted(name) and name not in strings(code)]
    assert missing == [], f"{len(missing)} texts are missing in {code}:\n" + "\n".join(missing)


@pytest.mark.parametrize("code", OTHERS)
def test_no_text_is_too_many_and_every_one_has_the_places_of_the_english_one(code):
    english, other = strings("en"), strings(code)
    assert not (extra := sorted(other.keys() - english.keys())), f"English lacks {extra}"
    for name, words in other.items():
        if not words.startswith("$"):
            assert texts.placeholders(words) == texts.placeholders(english[name]), f"{code} {name}: {words}"
            assert words.count("**") % 2 == 0 and words.count("`") == english[name].count("`"), f"{code} {name}"
    for name, value in texts.table(code).items():
        assert type(value) is type(texts.table("en")[name])
        if isinstance(value, list):
            assert len(value) == len(texts.table("en")[name]), name


@pytest.mark.parametrize("code", list(texts.LANGUAGES))
def test_a_question_of_a_card_has_its_answer_among_the_options(code, monkeypatch):
    monkeypatch.setattr(texts, "_asked", [lambda: code])
    for card in texts.get("walkthrough.cards"):
        assert "options" not in card or card["answer"] in card["options"], card["title"]
        assert {"title", "body", "round", "parts"} <= card.keys()


@pytest.mark.parametrize(
    ("code", "shown", "thousands"),
    [("en", "0.50", "1,234"), ("de", "0,50", "1.234"), ("es", "0,50", "1.234"), ("zh", "0.50", "1,234")],
)
def test_numbers_are_written_as_the_language_does(code, shown, thousands, monkeypatch):
    monkeypatch.setattr(texts, "_asked", [lambda: code])
    assert texts.fill("{x:.2f} {n:,} {name}", x=0.5, n=1234, name="v1.2,3") == f"{shown} {thousands} v1.2,3"
    assert texts.number(0.5, ".2f") == shown and texts.separators()[0] == shown[1]
    assert texts.fill("{n}", n=2) == "2" and texts.fill("{yes}", yes=True) == "True"


def test_what_is_missing_falls_back_to_english(tmp_path, monkeypatch):
    (tmp_path / "en.json").write_text(json.dumps({"a": "A {n}", "b": ["x", "$y"], "c": {"k": "K", "l": "L"}, "d": "D"}))
    (tmp_path / "part.en.json").write_text(json.dumps({"present.e": "E"}))
    (tmp_path / "de.json").write_text(json.dumps({"a": "Ä {n}", "b": ["X", None], "c": {"k": "k"}, "d": ["no text"]}))
    monkeypatch.setattr(texts, "FOLDER", tmp_path)
    monkeypatch.setattr(texts, "_asked", [lambda: "de"])
    texts.table.cache_clear()
    try:
        assert texts.text("a", n=1) == "Ä 1" and texts.get("b") == ["X", "$y"] and texts.get("c") == {"k": "k", "l": "L"}
        assert texts.text("d") == "D" and texts.text("present.e") == "E"
        with pytest.raises(KeyError):
            texts.text("nothing")
        (tmp_path / "part.en.json").write_text(json.dumps({"a": "again"}))
        texts.table.cache_clear()
        with pytest.raises(ValueError, match="part.en.json .* another file of en has: a"):
            texts.table("en")
    finally:
        texts.table.cache_clear()


def test_the_texts_of_the_browser_are_served_whole_in_every_language():
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from specdec.ui.served import TEXTS

    client = TestClient(Starlette(routes=[TEXTS]))
    english = client.get("/texts/en.json").json()
    assert english["stage.why"] == "Why" and not [name for name in english if not name.startswith(("stage.", "present."))]
    assert client.get("/texts/de.json").json()["stage.why"] == "Warum"
    assert client.get("/texts/de.json").json().keys() == english.keys() and client.get("/texts/xx.json").json() == english
    assert client.get("/texts/..%2Fen.json").status_code in (200, 404)


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("page", sorted(path.stem for path in (ROOT / "pages").glob("*.py")))
def test_every_page_opens_in_every_language(page, code):
    at = AppTest.from_file(str(ROOT / "specdec" / "ui" / "shell.py"), default_timeout=60)
    at.query_params["lang"] = code
    at.switch_page(str(ROOT / "pages" / f"{page}.py"))
    at.run()
    assert not at.exception, [e.value for e in at.exception]


def test_a_verdict_is_said_in_the_language_of_the_tab_and_written_in_english(monkeypatch):
    from specdec.measure_analysis import verdict

    monkeypatch.setattr(texts, "_asked", [lambda: "de"])
    nothing = verdict("", [])
    assert nothing.said() == "noch nichts zu vergleichen." and nothing.sentence == "All tasks: nothing to compare yet."
    with texts.spoken("es"):
        assert texts.language() == "es"
    assert texts.language() == "de"


def test_columns_are_named_in_the_language_of_the_tab():
    from specdec import measure_tables
    from specdec.measure_analysis import ALL
    from specdec.ui import lesson, measure_controls

    analysis = measure_controls.analysis_of(next(iter(measure_controls.recorded().values())))
    by_kind = (measure_tables.speed, measure_tables.acceptance, measure_tables.waiting, measure_tables.time_split)
    tables = [table(analysis, ALL) for table in by_kind]
    tables += [measure_tables.memory(analysis), measure_tables.loads(analysis, 1.0)]
    known = texts.get("columns")
    assert all(column in known for table in tables for row in table for column in row)
    with texts.spoken("de"):
        assert lesson.headed([{"arm": 1, "γ 3": 2}]) == [{"Arm": 1, "γ 3": 2}]
        assert lesson.headed([{"rate": 1, "Rate": 2}]) == [{"rate": 1, "Rate": 2}]  # both would be "Rate"
    assert lesson.headed(tables[0]) == tables[0]


def figures():
    """Some figures, from every module that has words of its own in hovers."""
    from specdec import experiments
    from specdec.busy import BusyFinding
    from specdec.measure_analysis import ALL
    from specdec.ui import (
        experiment_figures,
        limits_figures,
        measure_controls,
        measure_figures,
        residual_figures,
        run_figures,
        speedup_figures,
    )
    from specdec.ui.figures import OTHERS

    run = SAMPLES["rejected"]()
    now = speedup_figures.Inputs(alpha=0.8, cost=0.05, slope=0.0, draft_length=4)
    analysis = measure_controls.analysis_of(next(iter(measure_controls.recorded().values())))
    return {
        "experiment": experiment_figures.busy_measured(experiments.recorded("busy", BusyFinding), alpha=0.8),
        "limits": limits_figures.poor_draft(now, {"a run": run}),
        "t5": limits_figures.t5_paradox(),
        "measure": measure_figures.by_length(analysis, ALL),
        "residual": residual_figures.two_parts(["a", OTHERS], np.array([0.7, 0.3]), np.array([0.5, 0.5])),
        "run": run_figures.accepted_per_round(run),
        "speedup": speedup_figures.by_length(now, {"a run": run}),
        "balance": speedup_figures.tokens_and_cost(now),
        "published": speedup_figures.published(),
        "map": speedup_figures.alpha_by_length(now, {"a run": run}),
    }


def hovers(view) -> str:
    found = [trace.get("hovertext") or trace.get("hovertemplate") or "" for trace in view.figure["data"]]
    return "\n".join(one if isinstance(one, str) else "\n".join(one) for one in found)


def test_figures_are_told_in_the_language_of_the_tab():
    with texts.spoken("de"):
        german = figures()
    said = {
        "experiment": ("Gemessene Durchgänge", "× mit γ = "),
        "limits": ("Annahmerate, bei γ 4 und c 0,05.", "gemessen: 1,8"),
        "t5": ("Veröffentlicht: T5-large", "α 0,75, γ 7: 3,4×"),
        "measure": ("Gemessene Beschleunigung: head", ", Formel: 1,"),
        "residual": ("alle übrigen: angenommen 0,300 und ersetzt 0,000", "alle übrigen<br>entworfen und angenommen: 0,300"),
        "run": ("Anteil der Runden nach der Zahl angenommener Entwürfe", "0 angenommen: 0,2"),
        "speedup": ("für α 0,8 und c 0,05.", "α = 0,5, γ = %{x}: %{y:.2f}×"),
        "balance": ("flachen bei 5,00 ab", "γ = %{x}: %{y:.2f} einfache Schritte"),
        "published": ("Eigenes Entwurfsmodell, Vicuna-7B, A100: 1,5", "T5-XXL 11B + T5-small, Übersetzen (α 0,75): 3,40×"),
        "map": ("Karte der Beschleunigung", "α %{y:.2f}"),
    }
    assert german.keys() == said.keys()
    for name, (alt, hover) in said.items():
        assert alt in german[name].alt and hover in hovers(german[name]), (name, german[name].alt, hovers(german[name]))
        shown = re.sub(r"arXiv [\d.]+", "", german[name].alt + hovers(german[name]))
        assert not re.search(r"\d\.\d", shown), (name, shown)
    assert "0,25×" in german["map"].figure["data"][0]["colorbar"]["ticktext"]
    english = figures()
    assert english["speedup"].alt == (
        "Speed-up by the formula against the draft length, for α 0.8, c 0.05. It is 1 at γ 0, 1.71 at γ 1, "
        "best at γ 8 with 3.09, and 2.26 at γ 24."
    )
    assert "α 0.75, γ 7: 3.4×" in hovers(english["t5"]) and "γ = %{x}: %{y:.2f} plain steps" in hovers(english["balance"])


FIGURES = sorted((ROOT / "specdec" / "ui").glob("*figures.py")) + [ROOT / "specdec" / "ui" / "whole_run.py"]
SAME = {"ms", "GB", "br"}  # units, and the tag of a new line: the same in every language


def spoken_in(node: ast.AST) -> list[str]:
    """The words that the source itself has in an expression: not names of texts, formats of numbers and keys of rows."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("text", "number", "getattr"):
        return [word for keyword in node.keywords for word in spoken_in(keyword.value)]
    if isinstance(node, ast.Subscript):
        return spoken_in(node.value)
    if isinstance(node, ast.FormattedValue):
        return spoken_in(node.value)
    if isinstance(node, ast.Constant):
        return re.findall(r"[A-Za-z]{2,}", re.sub(r"%\{[^}]*\}", "", node.value)) if isinstance(node.value, str) else []
    return [word for child in ast.iter_child_nodes(node) for word in spoken_in(child)]


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_no_figure_has_words_of_its_own(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and re.search("alt|hover|told", t.id) for t in node.targets
        ):
            found.append(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "hover":
            found.append(node.value)
        elif isinstance(node, ast.Dict):
            found += [
                v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant) and k.value == "hovertext"
            ]
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called == "View":
                found += node.args[1:2]
            elif called in ("line", "points", "bars"):
                found += node.args[2:3]  # the name of the trace; `race.bars` has one argument
    words = [(node.lineno, word) for node in found for word in spoken_in(node) if word not in SAME]
    assert found and not words, f"{path.name} says {words} in English whatever the language"
