"""What `python -m specdec race` prints: the verdict, a table of both runs, the two texts."""

from __future__ import annotations

import dataclasses
import json
from typing import TextIO

from specdec.cli_print import printable
from specdec.race import Race, Side, compare, first_difference
from specdec.race_words import seconds, texts, verdict


def print_race(race: Race, out: TextIO) -> None:
    """For people."""
    won, said, trace = verdict(race), texts(race), race.speculative
    drafter = f"drafter {trace.settings.drafter}, γ = {trace.settings.draft_length}"
    lines = [
        f"{trace.pair.name} on {trace.device}, {trace.pair.dtype}; {drafter}",
        "",
        f"{won.head} {won.rest}".strip(),
        "",
        *table(race),
        "",
        f"{said.head} {said.rest}".strip(),
        "",
    ]
    if first_difference(race) is None:
        lines.append(printable(max(race.plain.output_text, race.speculative.output_text, key=len)))
    else:
        lines += [f"plain: {printable(race.plain.output_text)}", "", f"speculative: {printable(race.speculative.output_text)}"]
    print("\n".join(lines), file=out, flush=True)


def table(race: Race) -> list[str]:
    """Both runs, line by line."""
    found = compare(race)

    def line(title: str, plain: str, speculative: str) -> str:
        return f"{title:<26}{plain:>12}{speculative:>14}"

    def each(title: str, value) -> str:
        return line(title, value(found.plain), value(found.speculative))

    def per_pass(side: Side) -> str:
        return "–" if side.tokens_per_pass is None else f"{side.tokens_per_pass:.2f}"

    return [
        line("", "plain", "speculative"),
        each("time to first token", lambda side: seconds(side.first)),
        each("time to complete answer", lambda side: seconds(side.complete)),
        each("tokens", lambda side: str(side.tokens)),
        each("target passes", lambda side: str(side.passes)),
        each("tokens per pass", per_pass),
    ]


def print_json(race: Race, out: TextIO) -> None:
    """One JSON object with every figure of the comparison."""
    difference = first_difference(race)
    found = {
        "title": race.title,
        "device": race.speculative.device,
        "settings": dataclasses.asdict(race.speculative.settings),
        "prompt": race.speculative.prompt,
        **dataclasses.asdict(compare(race)),
        "verdict": verdict(race).head,
        "texts": texts(race).head,
        "first_difference": None if difference is None else dataclasses.asdict(difference),
        "plain_text": race.plain.output_text,
        "speculative_text": race.speculative.output_text,
    }
    as_it_is = (out.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(found, ensure_ascii=not as_it_is, allow_nan=False, indent=2), file=out, flush=True)
