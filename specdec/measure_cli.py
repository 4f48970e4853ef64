"""`python -m specdec measure`: every drafter and draft length on your own tasks, and a report that says whether to adopt it.

The folder that --out names gets runs.jsonl (each run as it ends), report.html, report.csv and report.json. The same command again
goes on where it was stopped. Ctrl+C ends before the next model pass; the report is written of what there is.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from specdec.errors import SettingsError
from specdec.measure import AT_ONCE, Design, Measurement, Progress, carry_out
from specdec.measure_analysis import Analysis, analyse
from specdec.measure_records import AUTO
from specdec.measure_report import show, to_csv, to_html, to_json
from specdec.measure_store import Store
from specdec.measure_tables import loads, records, speed
from specdec.prompt_sets import PromptSet, read, shipped

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; returns the exit code."""
    options = _parser().parse_args(arguments)
    prompts = _prompts(options)
    for problem in prompts.problems:
        print(f"specdec: {problem}", file=sys.stderr)
    settings = {
        "draft_lengths": _numbers(options.draft_lengths.replace("auto", str(AUTO)), "--draft-lengths"),
        "prompts": prompts.prompts,
        "repeats": options.repeats,
        "new_tokens": options.new_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "seed": options.seed,
        "at_once": _numbers(options.at_once, "--at-once") if options.at_once else (),
        "requests": options.requests,
    }
    # What can be refused without a model is refused before one is loaded.
    Design(drafters=tuple(options.drafter or ("any",)), **settings)
    from specdec.measure_device import begin, perform_on
    from specdec.models import load_pair

    pair = load_pair(options.pair, device=options.device, dtype=options.dtype, progress=lambda *_: None)
    for name in options.drafter or ():
        if name not in pair.drafters:
            raise SettingsError(f"This pair has no drafter {name!r}: take {', '.join(pair.drafters)}.")
    design = Design(pair=pair.name, drafters=tuple(options.drafter or pair.drafters), **settings)
    store = Store(Path(options.out) / "runs.jsonl", begin(pair, design))
    if done := len(store.measurement.records):
        print(f"{done} of {design.total} records are there already", file=sys.stderr)
    stopped: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    try:
        carry_out(
            store.measurement,
            perform=perform_on(pair, design, stop=lambda: bool(stopped)),
            keep=store.keep,
            progress=_say,
            stop=lambda: bool(stopped),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    made = store.measurement
    if not made.records:
        print("specdec: stopped before the first run had ended.", file=sys.stderr)
        return INTERRUPTED
    analysis = analyse(made)
    folder = write(made, analysis, Path(options.out), price=options.price)
    print(table(made, analysis, price=options.price))
    print(f"\n{folder / 'report.html'}")
    if stopped:
        print("specdec: stopped; the same command goes on from here.", file=sys.stderr)
    return INTERRUPTED if stopped else 0


def write(measurement: Measurement, analysis: Analysis, folder: Path, *, price: float) -> Path:
    """The three reports, into `folder`."""
    try:
        (folder / "report.html").write_text(to_html(measurement, analysis, price=price), encoding="utf-8")
        (folder / "report.csv").write_text(to_csv(records(measurement)), encoding="utf-8")
        (folder / "report.json").write_text(to_json(measurement, analysis), encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"The report cannot be written to {folder} ({error.strerror}): the runs are kept in runs.jsonl, "
            "so give the same command again."
        ) from None
    return folder


def table(measurement: Measurement, analysis: Analysis, *, price: float) -> str:
    """Verdicts and figures for a terminal."""
    lines = [v.sentence for v in analysis.verdicts]
    lines += ["", *_grid(speed(analysis, ""))]
    if analysis.loads:
        lines += ["", *_grid(loads(analysis, price))]
    if not measurement.complete:
        lines += ["", f"{len(measurement.records)} of {measurement.design.total} records: not complete"]
    return "\n".join(lines)


def _grid(rows: list[dict]) -> list[str]:
    cells = [list(rows[0]), *([show(v) for v in row.values()] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) for row in cells
    ]


def _say(p: Progress) -> None:
    what = f"warming up {p.step.arm.name}" if p.step.warm_up else p.step.arm.name
    if p.step.at_once:
        what += f", {p.step.at_once} at once"
    left = "" if p.seconds_left is None else f", about {p.seconds_left / 60:.1f} min left"
    print(f"{p.done}/{p.total} {what}{left}", file=sys.stderr, flush=True)


def _prompts(options: argparse.Namespace) -> PromptSet:
    found = read(options.prompts) if options.prompts else shipped()
    if options.kind and (unknown := [k for k in options.kind if k not in found.kinds]):
        raise SettingsError(f"There is no kind {unknown[0]!r} among the prompts: take {', '.join(found.kinds)}.")
    return found.choose(options.kind, options.per_kind)


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise SettingsError(f"{name} is {text!r}: give whole numbers with commas between them, like 2,4,6.") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec measure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", required=True, metavar="FOLDER", help="where runs and report go; the same folder goes on with what is in it")
    add("--pair", default=None, metavar="NAME", help="a pair from `models` (default: the embedded one)")
    add("--prompts", type=Path, metavar="FILE", help=".txt (one a line), .jsonl or .csv with prompt and kind (default: our own)")
    add("--kind", action="append", metavar="NAME", help="only prompts of this kind; may be given several times")
    add("--per-kind", type=int, metavar="N", help="at most so many prompts of each kind (default all)")
    add("--drafter", action="append", metavar="NAME", help="only this drafter; may be given several times (default all)")
    add("--draft-lengths", default="2,4,6", metavar="N,N", help="γ, one arm each; auto: chosen each round (default 2,4,6)")
    add("--repeats", type=int, default=1, metavar="N", help="turns on every prompt (default 1)")
    add("--new-tokens", type=int, default=64, metavar="N", help="longest answer (default 64)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default 0)")
    add("--top-k", type=int, default=0, metavar="K", help="keep the K most probable tokens; 0 keeps all (default 0)")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the smallest set with probability P (default 1)")
    add("--seed", type=int, default=0, metavar="N", help="of the first repeat; each further one has the next (default 0)")
    add(
        "--at-once",
        default="",
        metavar="N,N",
        help=f"also decode so many requests together, for instance {','.join(map(str, AT_ONCE))} (default: not)",
    )
    add("--requests", type=int, default=8, metavar="N", help="requests in that part (default 8)")
    add("--price", type=float, default=0.0, metavar="X", help="of one device-hour, for the cost of a million tokens")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    add("--dtype", default="auto", metavar="D", help="auto, float32, bfloat16 or float16 (default auto)")
    return parser
