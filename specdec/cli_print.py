"""What the command line prints of a run: rounds as they happen, the text, the figures; as JSON; and the table of pairs.

A verdict shows by its sign first, colour only repeats it:

    + accepted   - rejected   > replacement   ~ discarded   * bonus

Model text is data: control characters in it are shown, never sent to the terminal.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from specdec import metrics
from specdec.metrics import Summary, show
from specdec.trace import Round, Trace

if TYPE_CHECKING:
    from specdec.catalogue import PairSpec

SIGNS = {"accepted": "+", "rejected": "-", "replacement": ">", "discarded": "~", "bonus": "*"}
# The Okabe-Ito colours of the page, as near as 256 colours come.
_COLOURS = {"accepted": "38;5;36", "rejected": "38;5;166", "replacement": "38;5;32", "discarded": "38;5;244", "bonus": "38;5;214"}
_KEPT_CONTROLS = {"\n", "\t"}


def uses_colour(out: TextIO) -> bool:
    """On a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is a dumb one."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def quoted(text: str) -> str:
    """A token in quotation marks, on one line, with everything invisible escaped: `" the"`, `"\\n"`."""
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'


def printable(text: str) -> str:
    """A whole text for a terminal: line breaks and tabs stay, other control characters are escaped."""
    return "".join(c if c.isprintable() or c in _KEPT_CONTROLS else repr(c)[1:-1] for c in text)


def round_line(round_: Round, *, colour: bool = False) -> str:
    """One round on one line: number, accepted / drafted, then every token with the sign of what became of it."""
    parts = []
    for draft in round_.drafts:
        parts.append(_signed(draft.status, draft.text, colour))
        if draft.status == "rejected":
            parts.append(_signed("replacement", round_.outcome.text, colour))
    if round_.outcome.kind == "bonus":
        parts.append(_signed("bonus", round_.outcome.text, colour))
    count = f"{round_.accepted}/{len(round_.drafts)}"
    return f"{round_.index + 1:4}  {count:>5}  {' '.join(parts)}"


def _signed(what: str, text: str, colour: bool) -> str:
    return _coloured(what, SIGNS[what] + quoted(text), colour)


def _coloured(what: str, text: str, colour: bool) -> str:
    return f"\x1b[{_COLOURS[what]}m{text}\x1b[0m" if colour else text


class Silent:
    """Shows nothing while a run goes on."""

    def round(self, round_: Round) -> None:
        """One more round has happened."""

    def end(self, trace: Trace) -> None:
        """The run is over."""


class Live(Silent):
    """Shows a run while it goes on: a speculative one round by round, a plain one as growing text; at its end the figures."""

    def __init__(self, run: Any, out: TextIO) -> None:
        self._run, self._out, self._colour = run, out, uses_colour(out)
        self._shown = ""  # of a plain run's text
        self._speculative = run.settings.draft_length > 0
        drafter = f"drafter {run.settings.drafter}" if self._speculative else "plain decoding"
        where = f"{run.info.name} on {run.pair.device_name}, {run.info.dtype}"
        self._print(f"{where}, {drafter}; {len(run.prompt_ids)} prompt tokens")
        if self._speculative:
            self._print("   ".join(_coloured(what, f"{sign} {what}", self._colour) for what, sign in SIGNS.items()))
        self._print("")

    def round(self, round_: Round) -> None:
        if self._speculative:
            self._print(round_line(round_, colour=self._colour))
        else:
            pair = self._run.pair
            self._grow(pair.texts.decode([i for i in self._run.output_ids if i not in pair.eos_ids]))

    def end(self, trace: Trace) -> None:
        if self._speculative:
            self._print(f"\n{printable(trace.output_text)}\n")
        else:
            if not trace.output_text.startswith(self._shown):  # a tokenizer whose text of a longer run begins differently
                self._print("\n")
                self._shown = ""
            self._grow(trace.output_text)
            self._print("\n")
        for line in summary_lines(metrics.summary(trace)):
            self._print(line)

    def _grow(self, text: str) -> None:
        """Print what is new of a text that grows at its end."""
        if text.startswith(self._shown):
            self._out.write(printable(text[len(self._shown) :]))
            self._out.flush()
            self._shown = text

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def summary_lines(figures: Summary) -> list[str]:
    """The figures of a run for people, one line each; what is not known or not meant for this kind of run is left out."""

    def value(name: str) -> str:
        return show(name, getattr(figures, name))

    def titled(name: str, text: str) -> str:
        return f"{metrics.METRICS[name].title:<25} {text}"

    if not figures.new_tokens:
        return [f"No token was made; ended by: {figures.finish_reason}."]
    lines = [
        titled("new_tokens", f"{figures.new_tokens} in {figures.target_passes} target passes, ended by: {figures.finish_reason}"),
        titled("tokens_per_second", value("tokens_per_second")),
        titled("seconds_to_first_token", f"{value('seconds_to_first_token')} (prefill {value('seconds_prefill')})"),
    ]
    if figures.method == "speculative":
        of_judged, of_drafted = (
            f"{figures.accepted} of {figures.judged} judged",
            f"{figures.accepted} of {figures.drafted} drafted",
        )
        lines.append(titled("acceptance_rate", f"{value('acceptance_rate')} ({of_judged} drafts accepted)"))
        if figures.expected_acceptance_rate is not None:
            lines.append(
                titled(
                    "expected_acceptance_rate",
                    f"{value('expected_acceptance_rate')} ± {value('expected_acceptance_error')} from the overlap of p and q",
                )
            )
        lines.append(titled("draft_utilisation", f"{value('draft_utilisation')} ({of_drafted} tokens accepted)"))
        lines.append(titled("mean_acceptance_length", f"{figures.mean_acceptance_length:.2f} tokens per target pass"))
    shares = ("share_draft", "share_verify", "share_judge", "share_other")
    if figures.share_verify is not None:
        split = ", ".join(f"{metrics.METRICS[name].title.lower()} {value(name)}" for name in shares)
        lines.append(titled("seconds_decode", f"{value('seconds_decode')}: {split}"))
    if figures.cost_coefficient is not None:
        lines.append(
            f"{'Costs':<25} c = {value('cost_coefficient')}, v = {value('verify_ratio')}, "
            f"in plain steps of {value('plain_step_seconds')}"
        )
    sentence = metrics.speed_sentence(figures)
    return [*lines, sentence] if sentence else lines


def print_json(trace: Trace, out: TextIO) -> None:
    """One JSON object: what ran, its text, and every figure under its name in `specdec.metrics`."""
    figures = metrics.summary(trace)
    found: dict[str, Any] = {
        "pair": dataclasses.asdict(trace.pair),
        "device": trace.device,
        "versions": trace.versions,
        "settings": dataclasses.asdict(trace.settings),
        "prompt": trace.prompt,
        "output_text": trace.output_text,
        **dataclasses.asdict(figures),
        "acceptance_by_position": [dataclasses.asdict(place) for place in metrics.acceptance_by_position(trace)],
        "speed": metrics.speed_sentence(figures),
    }
    as_it_is = (out.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(found, ensure_ascii=not as_it_is, allow_nan=False, indent=2), file=out, flush=True)


def print_models(specs: Sequence[PairSpec], *, default: str, is_here: Callable[[PairSpec], bool], out: TextIO) -> None:
    """A table of pairs, one a line, with the memory that each takes in two formats and whether it needs no fetching any more."""
    rows = [("name", "target", "draft", "weights", "float32", "bfloat16", "gated", "here")]
    for spec in specs:
        rows.append(
            (
                spec.name + " *" * (spec.name == default),
                spec.target,
                spec.draft or "-",
                _billions(spec.parameters),
                f"{spec.memory('float32') / 1e9:.1f} GB",
                f"{spec.memory('bfloat16') / 1e9:.1f} GB",
                "yes" if spec.gated else "no",
                "yes" if is_here(spec) else "no",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=out)
    print("\n* the default. float32 and bfloat16: memory that both models take in that format. here: fetched already.", file=out)
    for spec in specs:
        if spec.remarks:
            print(f"{spec.name}: {spec.remarks}", file=out)


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.0f} M"
