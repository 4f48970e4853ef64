"""The measured half of "A busy server": passes of the real pair; a recorded measurement until there is one."""

from __future__ import annotations

from specdec import experiments, prompt_sets
from specdec.busy import Busy, BusyFinding
from specdec.engine import RunRequest
from specdec.ui import experiment_figures, lesson, measuring, session
from specdec.ui.explain import literal
from specdec.ui.lesson import text

BUSY = "busy"  # the series that measures it


def measured(*, alpha: float) -> None:
    """The answer in a sentence, the figure, the button. alpha: of the slider, for the thin line."""
    own = measuring.finding(BUSY, BusyFinding)
    found = own if own is not None and own.passes else experiments.recorded("busy", BusyFinding)
    if found is not None:
        lesson.answer(_sentence(found, here=found is own), good=found.stops_at() != found.passes[0].at_once)
        view = experiment_figures.busy_measured(found, alpha=alpha)
        lesson.chart(view.figure, view.alt, key="chart_busy_measured")
        lesson.table(view.rows, name="limits-busy-measured")
    measuring.panel(BUSY, label=text("limits.busy.measure"), requests=_requests)
    if found is not None:
        said = text("limits.kind.measured", where=found.where, drafter=found.drafter, turns=found.passes[0].turns)
        lesson.kind(literal(said if found is own else f"{text('measure.recorded')} {said}"))


def _sentence(found: BusyFinding, *, here: bool) -> str:
    at, last = found.stops_at(), found.passes[-1]
    shown = next(p for p in found.passes if p.at_once == at) if at is not None else last
    length, speed = found.best(shown)
    low, high = found.spread(shown, length)
    first, alone = found.best(found.passes[0])
    close = found.pays(last) is None
    which = "close" if close else "never" if at is None else "always" if at == found.passes[0].at_once else "stops"
    place = text("limits.busy.here" if here else "limits.busy.there")
    values = {"b": shown.at_once, "speed": speed, "low": low, "high": high, "gamma": length, "alone": alone, "first": first}
    words = text(f"limits.busy.{which}", place=place, drafter=found.drafter, **values)
    others = [str(b) for b in found.unclear() if not (close and b == last.at_once)]
    return words if not others else f"{words} {text('limits.busy.unclear', numbers=', '.join(others))}"


def _requests() -> list[tuple[str, RunRequest]]:
    prompts = tuple(prompt.text for prompt in prompt_sets.shipped().choose(per_kind=3).prompts)
    asked = Busy(prompts=prompts, drafter=session.offered_drafters()[0])
    return [("B = 1 … 16", RunRequest(prompt=prompts[0], experiment=asked))]
