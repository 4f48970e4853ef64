"""A link is a picture of a page: every setting by name in the address, checked before anything reads it.

`?lang=de` is the language. `?hide=seed,top_k` takes controls away and `?lock=temperature` shows them with their value but nobody
can move them, so that a link is an exercise; all three go along from page to page. Names are those of the controls (`SETTINGS`, and
`PARTS` for what has no value). What cannot be read or is out of range is left out of the address, and one notice names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import streamlit as st

from specdec.texts import ENGLISH, LANGUAGES
from specdec.ui.texts import choose_language, examples, language, text

TEACHING = ("residual", "speedup", "limits", "walkthrough", "measure")
DECODING = ("rounds", "race")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One name in the addresses. pages: where it has a control. usual: as the address writes it; None if it has no fixed one.

    low, high: of a number, both included. whole: no decimals. choices: what else there is. longest: characters of a text.
    several: the address may have it more than once.
    """

    pages: tuple[str, ...] = ()
    usual: str | None = None
    low: float | None = None
    high: float | None = None
    whole: bool = False
    choices: Callable[[], Iterable[str]] | None = None
    longest: int | None = None
    several: bool = False

    def fits(self, value: str) -> bool:
        if self.choices is not None:
            return value in self.choices()
        if self.longest is not None:
            return len(value) <= self.longest
        if self.low is None:
            return True
        try:
            number = float(value)
        except ValueError:
            return False
        return math.isfinite(number) and self.low <= number <= self.high and (not self.whole or number == int(number))


def _number(pages, usual, low, high, *, whole=False) -> Setting:
    return Setting(pages=pages, usual=f"{usual:g}", low=low, high=high, whole=whole)


def _whole(pages, usual, low, high) -> Setting:
    return _number(pages, usual, low, high, whole=True)


def _switch(pages) -> Setting:
    return Setting(pages=pages, usual="false", choices=lambda: ("true", "false", "True", "False", "1", "0"))


def _one(pages, choices, usual=None, *, several=False) -> Setting:
    return Setting(pages=pages, usual=usual, choices=choices, several=several)


def _words(pages, longest) -> Setting:
    return Setting(pages=pages, longest=longest)


# Where a list of choices costs an import, it is asked for only when the address has the name.


def _drafters() -> tuple[str, ...]:
    from specdec.ui import session

    return session.offered_drafters(session.pair())


def _pairs() -> tuple[str, ...]:
    from specdec.ui import session

    return session.offered_pairs()


def _hardware(which: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from specdec import roofline
        from specdec.ui import limits_view

        return (*getattr(roofline, which), limits_view.OWN)

    return names


def _mixtures() -> Iterable[str]:
    from specdec.experts import MIXTURES

    return MIXTURES


def _of(module: str, name: str, shown: Callable[[object], str] = str) -> Callable[[], Iterable[str]]:
    def values() -> Iterable[str]:
        from importlib import import_module

        return tuple(shown(value) for value in getattr(import_module(f"specdec.ui.{module}"), name))

    return values


def _kinds() -> tuple[str, ...]:
    from specdec.prompt_sets import shipped

    return shipped().kinds


def _recordings() -> Iterable[str]:
    from specdec.ui import session

    return session.recordings()


def _races() -> Iterable[str]:
    from specdec.ui import race_view

    return race_view.recordings()


def _named(name: str) -> Callable[[], Iterable[str]]:
    return lambda: text_table(name)


def text_table(name: str) -> dict[str, str]:
    from specdec.texts import get

    return get(name)


def _shows() -> set[str]:
    return {
        *text_table("residual.views"),
        *text_table("speedup.views"),
        *text_table("limits.views"),
        *text_table("adopt.views"),
        *text_table("lesson.views"),
    } | {
        "whole",
        "close",
    }


def _thousands(value: object) -> str:
    return f"{value:,}"


SETTINGS: dict[str, Setting] = {
    "prompt": _words(DECODING, 8_000),
    "pair": _one(DECODING, _pairs),
    "drafter": _one(DECODING, _drafters),
    "draft_length": _whole(DECODING, 4, 1, 12),
    "adaptive": _switch(DECODING),
    "temperature": _number(DECODING, 0, 0, 2),
    "max_new_tokens": _whole(DECODING, 64, 8, 256),
    "seed": _whole(DECODING, 0, 0, 2**31 - 1),
    "top_k": _whole(DECODING, 0, 0, 1000),
    "top_p": _number(DECODING, 1, 0.05, 1),
    "raw": _switch(DECODING),
    "recording": _one(("rounds",), _recordings),
    "race": _one(("race",), _races),
    "show": _one((*TEACHING, "race", "lesson"), _shows),
    "step": _whole(("walkthrough",), 1, 1, 8),
    "dice_p": Setting(pages=("walkthrough",), low=0, high=1),
    "dice_q": Setting(pages=("walkthrough",), low=0.05, high=1),
    "dice_u": Setting(pages=("walkthrough",), low=0, high=0.99),
    "own_text": _words(("walkthrough",), 300),
    "real_prompt": _words(("walkthrough",), 500),
    "from": Setting(pages=("residual",)),
    **{f"{letter}{i}": Setting(pages=("residual",), low=0, high=1) for letter in "pq" for i in range(4)},
    "rule": _one(("residual",), _named("residual.rules")),
    "draws": _one(("residual",), _of("residual_view", "DRAWS", _thousands), "3,000"),
    "dice": _whole(("residual",), 1, 1, 1_000_000),
    "two_prompt": _words(("residual",), 2000),
    "law_prompt": _words(("residual",), 400),
    "law_count": _one(("residual",), _of("law_view", "COUNTS"), "200"),
    "law_place": _one(("residual",), _named("residual.law.places")),
    "precision_prompt": _words(("residual",), 2000),
    "alpha": _number(("speedup", "limits"), 0.8, 0, 1),
    "gamma": _whole(("speedup", "limits"), 4, 1, 24),
    "cost": _number(("speedup", "limits"), 0.05, 0, 1),
    "slope": _number(("speedup", "limits"), 0, 0, 0.5),
    "clockless": _switch(("speedup",)),
    "measure_prompt": _words(("limits",), 2000),
    "device": _one(("limits",), _hardware("DEVICES")),
    "pairing": _one(("limits",), _hardware("PAIRINGS")),
    "precision": _one(("limits",), _hardware("PRECISIONS")),
    "context": _one(("limits",), _of("limits_view", "CONTEXTS", _thousands), "1,024"),
    "own_rate": _number(("limits",), 0.2, 0.01, 100_000),
    "own_band": _number(("limits",), 20, 0.1, 100_000),
    "own_room": _number(("limits",), 24, 0.5, 100_000),
    "requests": _one(("limits",), _of("limits_figures", "REQUESTS"), "1"),
    "memory_requests": _one(("limits",), _of("limits_figures", "REQUESTS"), "16"),
    "reading": _one(("limits",), _of("workload_figures", "READING"), "100"),
    "answer_tokens": _one(("limits",), _of("workload_figures", "LENGTHS"), "64"),
    "mixture": _one(("limits",), _mixtures),
    "expert_requests": _one(("limits",), _of("workload_figures", "REQUESTS"), "1"),
    "kind": _one(("measure",), lambda: ("", *_kinds())),
    "m_source": _one(("measure",), _named("adopt.source.options")),
    "m_kinds": _one(("measure",), _kinds, several=True),
    "m_per_kind": _whole(("measure",), 6, 1, 6),
    "m_drafters": _one(("measure",), _drafters, several=True),
    "m_lengths": _one(("measure",), _of("measure_controls", "LENGTHS"), several=True),
    "m_repeats": _whole(("measure",), 1, 1, 5),
    "m_tokens": _one(("measure",), _of("measure_controls", "TOKENS"), "48"),
    "m_temperature": _number(("measure",), 0, 0, 1.5),
    "m_together": _switch(("measure",)),
    "m_price": _number(("measure",), 2, 0, 20),
}

# What hide and lock may name as well: buttons and lists, which have no value in the address.
PARTS = {
    "run", "stop", "example", "download", "file", "keep_run", "kept", "race_download", "race_file", "race_recording", "take", "start",
    "keep", "again", "throw", "strip", "whole", "copy_link", "language", "bar", "start_campaign",
}  # fmt: skip
FRAME = {"lang", "hide", "lock", "present", "card", "lesson", "predict", "embed", "embed_options"}  # no controls of a page
NAMES = re.compile(r"[a-z][a-z0-9_]*")


def begin(page: str) -> None:
    """Check the address of this page and take in language, hidden and locked controls. Call it before any control."""
    state, query = st.session_state, st.query_params
    if state.get("_link_page") != page:
        state["_link_page"], state["_link_notice"] = page, ""
    if "lang" in query and query["lang"] in LANGUAGES:
        choose_language(query["lang"])
    bad = [name for name in query if not _good(name, query.get_all(name))]
    wrong = [f"{name}={_short(' '.join(query.get_all(name)))}" for name in bad]
    for kind in ("hide", "lock"):
        if kind in query:
            asked = [name.strip() for name in ",".join(query.get_all(kind)).split(",") if name.strip()]
            known = tuple(dict.fromkeys(name for name in asked if name in SETTINGS or name in PARTS))
            wrong += [f"{kind}={_short(name)}" for name in asked if name not in known and kind not in bad]
            state[f"_{kind}"] = known
            query.pop(kind) if not known else query.update({kind: ",".join(known)})
        elif state.get(f"_{kind}"):
            query[kind] = ",".join(state[f"_{kind}"])  # a page switch has cleared the address
    if "lang" not in query and (language() != ENGLISH or state.get("_language_asked")):
        query["lang"] = language()
    if wrong:
        state["_link_notice"] = text("link.bad", names=", ".join(wrong[:6]), n=len(wrong))
    for name in bad:
        if name in query:
            del query[name]
    if bad:
        st.rerun()  # the address as it was when the page was opened counts until then


def _good(name: str, values: list[str]) -> bool:
    if name in ("hide", "lock"):
        return True
    if name == "lang":
        return values[-1] in LANGUAGES
    if name in FRAME:
        return True
    setting = SETTINGS.get(name)
    return setting is not None and all(setting.fits(value) for value in (values if setting.several else values[-1:]))


def _short(value: str) -> str:
    shown = "".join(c if c.isprintable() else "·" for c in value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


def notice() -> str:
    """What was wrong with the address, to be shown while this page is open; "" if nothing."""
    return st.session_state.get("_link_notice", "")


def locked(name: str) -> bool:
    """Whether the link fixes this control."""
    return name in st.session_state.get("_lock", ())


def hidden_css() -> str:
    """A style sheet that takes the hidden controls away, also from the keyboard and from screen readers."""
    names = [name for name in st.session_state.get("_hide", ()) if NAMES.fullmatch(name)]
    selectors = ", ".join(f".st-key-{name}" for name in names)
    return f"<style>{selectors} {{ display: none !important; }}</style>" if names else ""


def usual(page: str) -> dict[str, str]:
    """What a copied link adds for settings that the address leaves out because they have their usual value."""
    found = {name: s.usual for name, s in SETTINGS.items() if page in s.pages and s.usual is not None}
    if page in DECODING:
        found |= {"pair": _pairs()[0], "drafter": _drafters()[0], "prompt": next(iter(examples().values()))}
    return found | {"lang": language()}


# A choice whose titles depend on the language has its own name in the address, not the title that Streamlit would put there.


def choice(name: str, options: Iterable[str], *, key: str = "") -> dict:
    """Arguments for a selectbox or a row of buttons: ?name=option, the first option is the usual one."""
    offered = tuple(options)
    key = key or name
    if key not in st.session_state:
        wanted = st.query_params.get(name)
        st.session_state[key] = wanted if wanted in offered else offered[0]
    return {"key": key, "on_change": _to_link, "args": (name, key, offered[0]), "disabled": locked(name) or locked(key)}


def _to_link(name: str, key: str, first: str) -> None:
    put(name, st.session_state[key], usual=first)


def put(name: str, value: str | None, *, usual: str | None = None) -> None:
    """Write a name into the address; the usual value needs none."""
    if value in (usual, None):
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = value
