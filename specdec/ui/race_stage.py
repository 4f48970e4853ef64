"""The race on screen: two texts side by side that grow on one clock, animated in the browser.

    race_stage(RaceStage.of(race, run="rec-1", label="Recording · 29 Nov 2026 · cpu"))

`RaceStage` is all that the browser knows: for each side its tokens with the moment at which each was there. Clock, playing, speed
and place live in the browser (`static/race/*.js`), so a rerun of the page never disturbs them. While a race is being measured
there is no clock yet: the texts simply grow (`RaceStage.live`). Model text goes as data and is shown as text, never as markup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from specdec.race import Race, arrivals
from specdec.texts import FOLDER, language
from specdec.trace import Round, Settings, Trace
from specdec.ui import cards, present
from specdec.ui.stage import STATIC, component

Name = Literal["plain", "speculative"]
State = Literal["empty", "loading", "queued", "running", "done", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One side. trace: once there is one; rounds: what has been decoded so far, while there is no complete trace."""

    name: Name
    trace: Trace | None = None
    rounds: Sequence[Round] = ()

    def to_dict(self, *, clock: bool) -> dict[str, Any]:
        rounds = self.trace.rounds if self.trace is not None else self.rounds
        times = arrivals(self.trace) if clock and self.trace is not None else ()
        tokens: list[dict[str, Any]] = []
        ends: list[int] = []
        for round_ in rounds:
            tokens += _tokens(round_)
            ends.append(len(tokens))
        for token, at in zip(tokens, times, strict=False):
            token["at"] = round(at, 5)
        return {
            "name": self.name,
            "tokens": tokens,
            "ends": ends,  # tokens that are there after each pass of the target
            "prefill": self.trace.totals.seconds_prefill if clock and self.trace is not None else None,
            "finish": self.trace.finish_reason if self.trace is not None else None,
        }


@dataclass(frozen=True, kw_only=True)
class RaceStage:
    """What the browser is told. run: identity of the race; the clock starts anew when it changes.

    kind: a recording waits for Play, what was measured just now plays by itself. clock: whether the times are there already.
    title: a name that a person gave. settings: those of the speculative side. first_difference: number of the token at which
    greedy texts part, else None.
    """

    run: str
    label: str
    kind: Literal["recording", "live"]
    state: State
    prompt: str
    settings: Settings
    plain: Lane
    speculative: Lane
    clock: bool
    title: str = ""
    message: str = ""
    progress: float | None = None
    first_difference: int | None = None

    @classmethod
    def of(
        cls, race: Race, *, run: str, label: str, kind: Literal["recording", "live"] = "recording", difference: int | None = None
    ) -> RaceStage:
        """A race that is over, to be replayed."""
        stopped = "stopped" in (race.plain.finish_reason, race.speculative.finish_reason)
        return cls(
            run=run,
            label=label,
            kind=kind,
            state="stopped" if stopped else "done",
            prompt=race.plain.prompt,
            settings=race.speculative.settings,
            plain=Lane(name="plain", trace=race.plain),
            speculative=Lane(name="speculative", trace=race.speculative),
            clock=True,
            title=race.title,
            first_difference=difference,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, about 60 bytes a token."""
        return {
            "run": self.run,
            "label": self.label,
            "kind": self.kind,
            "state": self.state,
            "title": self.title,
            "message": self.message,
            "progress": self.progress,
            "prompt": self.prompt,
            "raw": self.settings.raw,
            "drafter": self.settings.drafter,
            "draft_length": self.settings.draft_length,
            "clock": self.clock,
            "difference": self.first_difference,
            "lanes": [lane.to_dict(clock=self.clock) for lane in (self.plain, self.speculative)],
        }


def _tokens(round_: Round) -> list[dict[str, Any]]:
    """The tokens that a round commits, each with its origin, as on the stage of one run."""
    own = "replacement" if round_.outcome.kind == "replacement" else "bonus" if round_.drafts else "own"
    found = [_token(d.text, "accepted", d.bytes) for d in round_.drafts if d.status == "accepted"]
    return found if round_.outcome.id is None else [*found, _token(round_.outcome.text, own, round_.outcome.bytes)]


def _token(text: str, origin: str, raw: str | None) -> dict[str, Any]:
    return {"text": text, "origin": origin} | ({"bytes": raw} if raw is not None else {})


def race_stage(view: RaceStage, *, key: str = "race") -> None:
    """Show it. Call it at the same place of the page in every run of the script, once a run, with one `key`."""
    data = view.to_dict() | {"present": present.on("present")} | cards.for_stage()
    _component(language())(key=key, data=data)


def _version() -> str:
    """Changes with every change of the browser's part, the modules that it shares with the stage included."""
    files = sorted(f for f in STATIC.rglob("*") if f.suffix in (".js", ".css")) + sorted(FOLDER.glob("*.json"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


@cache
def _component(code: str) -> Any:
    return component("race", f"race/race.js?v={_version()}&lang={code}", code)
