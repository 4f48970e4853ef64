"""`python -m specdec experiment`: the measurements of the teaching pages, made again; those in assets/experiments came of it.

    python -m specdec experiment busy                      # prints what was found
    python -m specdec experiment law --count 400 --out assets/experiments

Timed ones (busy, drafters) want a machine that does nothing else. Ctrl+C ends one and keeps what there is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdec import cli_io, experiments
from specdec.drafter_runs import middle_runs, requests_of_all, with_one_plain_step
from specdec.engine import RunRequest, start
from specdec.errors import SettingsError

NAMES = ("busy", "drafters", "law", "precision")
OPENING = "The best thing about the summer is"  # many continuations are likely
DRAFTERS_ON = {"Correct": "copying", "Story": "story"}  # kind of an example -> what its runs are called
EXAMPLES = Path(__file__).resolve().parents[1] / "assets" / "examples.json"


def main(arguments: list[str] | None = None) -> int:
    """Carry out one experiment, print what it found, and write its record if asked to; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.count < 1:
        raise SettingsError(f"--count is {options.count}: draw one continuation at least.")
    folder = Path(options.out).expanduser() if options.out else None
    if folder is not None and not folder.is_dir():
        raise SettingsError(f"--out {options.out} is no folder: make it first, or give another one.")
    from specdec.models import load_pair

    with cli_io.Progress(sys.stderr) as progress:
        pair = load_pair(options.pair, device=options.device, progress=progress)
    if options.name == "drafters":
        return _drafters(options, pair, folder)
    for name, request in requests(options, pair):
        record, interrupted = _carry_out(pair, name, request)
        print(said(name, record), flush=True)
        if folder is not None:
            cli_io.write_whole(folder / f"{name}.json", experiments.to_json(record))
        if interrupted:
            return 130
    return 0


def _drafters(options: argparse.Namespace, pair: Any, folder: Path | None) -> int:
    """Every drafter on each prompt, several times in turns; kept is the middle run of each."""
    prompts = {DRAFTERS_ON[row["kind"]]: row["prompt"] for row in _examples() if row["kind"] in DRAFTERS_ON}
    for kind, prompt in ({"": options.prompt} if options.prompt else prompts).items():
        runs = []
        for name, request in requests_of_all(prompt, pair.drafters):
            trace, interrupted = _carry_out(pair, name, request)
            if interrupted:
                return 130
            runs.append(trace)
        middle = middle_runs(runs)
        print(*(said(name, trace) for name, trace in with_one_plain_step(middle).items()), sep="\n", flush=True)
        for name, trace in middle.items():
            if folder is not None:
                cli_io.write_whole(folder / f"drafter-{kind}{'-' if kind else ''}{name}.json", trace.to_json())
    return 0


def _examples() -> list[dict[str, str]]:
    return json.loads(EXAMPLES.read_text(encoding="utf-8"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec experiment", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES, help="a busy server, one prompt with every drafter, the law, number formats")
    parser.add_argument("--prompt", help="for law and drafters (default: that of the page)")
    parser.add_argument("--count", type=int, default=400, help="law: continuations of each kind (default 400)")
    parser.add_argument("--pair", help="a pair of the catalogue (default: the embedded one)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.add_argument("--out", help="a folder for the records, for instance assets/experiments")
    return parser


def requests(options: argparse.Namespace, pair: Any) -> Iterator[tuple[str, RunRequest]]:
    """(name of the record, request) of what the experiment takes; what the pages ask for by themselves."""
    examples = [row["prompt"] for row in _examples()]
    if options.name == "law":
        from specdec.law import Law

        prompt = options.prompt or OPENING
        yield "law", RunRequest(prompt=prompt, experiment=Law(count=options.count, drafter=pair.drafters[0]))
    elif options.name == "precision":
        from specdec.precision import Precision

        yield "precision", RunRequest(prompt=examples[0], experiment=Precision(prompts=tuple(examples), new_tokens=48))
    elif options.name == "busy":
        from specdec.busy import Busy
        from specdec.prompt_sets import shipped

        prompts = tuple(prompt.text for prompt in shipped().choose(per_kind=3).prompts)
        yield "busy", RunRequest(prompt=prompts[0], experiment=Busy(prompts=prompts, drafter=pair.drafters[0]))


def _carry_out(pair: Any, name: str, request: RunRequest) -> tuple[Any, bool]:
    """(what was found, whether Ctrl+C ended it)."""
    total = request.experiment.total if request.experiment is not None else 0
    run, interrupted = start(pair, request, lambda: False), False
    with cli_io.Progress(sys.stderr) as progress:
        try:
            for done, _ in enumerate(run, start=1):
                progress(name, done, total or None)
        except KeyboardInterrupt:
            interrupted = True
    return run.trace(), interrupted


def said(name: str, record: Any) -> str:
    """What was found, in a line or a few."""
    if name == "busy":
        rows = [f"{record.where}; α {record.alpha:.2f} of {record.judged} judged drafts"]
        for at in record.passes:
            length, speed = record.best(at)
            low, high = record.spread(at, length)
            ratios = ", ".join(f"v({n}) {v:.2f}" for n, v in zip(record.draft_lengths, at.ratios, strict=True))
            rows.append(
                f"B = {at.at_once:<3} plain {1000 * at.plain:6.1f} ms, {ratios}, c {at.cost:.3f}: "
                f"{speed:.2f}× ({low:.2f} to {high:.2f}) with γ = {length}"
            )
        return "\n".join(rows)
    if name == "law":
        from specdec.law import compare

        rows = [f"{record.counts[0]} speculative and {record.counts[1]} plain continuations, {record.where}"]
        for place in (*range(record.tokens), None):
            test = compare(record, place, others="others").test
            what = "whole texts" if place is None else f"token {place + 1}"
            p_value = "too few" if test.p_value is None else f"p-value {test.p_value:.3f}"
            rows.append(f"{what}: G = {test.statistic:.2f}, {test.degrees} degrees of freedom, {p_value}")
        return "\n".join(rows)
    if name == "precision":
        rows = []
        for kind in record.formats:
            texts = record.of(kind)
            same = sum(one.passes is None for one in texts)
            rows.append(f"{kind}: {same} of {len(texts)} texts the same by both kinds of passes")
        return "\n".join([*rows, *record.left_out])
    from specdec.metrics import summary

    figures = summary(record)
    speed, alpha = figures.speedup or float("nan"), figures.acceptance_rate or 0.0
    return f"{name}: {speed:.2f}×, α {alpha:.2f}, {figures.target_passes} target passes"
