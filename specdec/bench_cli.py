"""`python -m specdec bench`: the benchmark of `specdec.bench` on the command line, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from specdec.bench import Report, Spread, measure, our_arms, report
from specdec.catalogue import EMBEDDED
from specdec.errors import SettingsError

PROMPTS = Path(__file__).resolve().parents[1] / "assets" / "prompts.jsonl"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; returns the exit code. Ctrl+C ends it early and reports what there is."""
    options = _parser().parse_args(arguments)
    prompts = read_prompts(options.prompts_file, options.prompts)
    pair = _load(options)
    size = {"new_tokens": options.new_tokens, "draft_length": options.draft_length}
    arms = our_arms(pair, **size, drafters=options.drafter or None)
    if not options.no_hf:
        arms += _hf(pair, **size, ballast=options.ballast)
    begun = time.monotonic()

    def progress(stage: str, done: int, total: int) -> None:
        left = (time.monotonic() - begun) / done * (total - done) if done else None
        print(f"{done}/{total} {stage}" + (f", about {left / 60:.1f} min left" if left else ""), file=sys.stderr, flush=True)

    samples: list = []
    try:
        measure(arms, prompts, repeats=options.repeats, progress=progress, into=samples)
    except KeyboardInterrupt:
        print("stopped: what follows is what was measured until then", file=sys.stderr)
    if not samples:
        return 130
    result = report(pair, samples, prompts, **size)
    print(table(result))
    if options.json:
        Path(options.json).write_text(json.dumps(result.to_dict(), ensure_ascii=False, indent=1), encoding="utf-8")
    return 0


def _load(options: argparse.Namespace) -> Any:
    where = {"device": options.device, "dtype": options.dtype}
    if options.ballast is None:
        from specdec.models import load_pair

        return load_pair(options.pair, **where)
    if options.pair not in (None, EMBEDDED):
        raise SettingsError(f"--ballast is for the embedded pair, not for {options.pair!r}: leave out one of the two.")
    from specdec import ballast

    return ballast.load_ballast_pair(options.ballast, **where)


def _hf(pair: Any, *, new_tokens: int, draft_length: int, ballast: float | None = None) -> list:
    """The arms of transformers, on the same weights."""
    from specdec.bench_hf import as_assistant, hf_arms
    from specdec.fetch import fetch_embedded
    from specdec.loading import load_model

    if pair.name != EMBEDDED and ballast is None:
        raise SettingsError(f"the arms of transformers are only there for the embedded pair, not for {pair.name!r}: add --no-hf.")
    model = load_model(fetch_embedded(), device=pair.device, dtype=pair.dtype, name=pair.title)
    if ballast is not None:
        from specdec.ballast import add_ballast

        add_ballast(model, round(ballast * 1e9))
    assistant = as_assistant(pair.draft) if pair.draft is not None else None
    return hf_arms(
        model,
        lambda prompt: pair.encode(prompt, raw=False),
        new_tokens=new_tokens,
        draft_length=draft_length,
        assistant=assistant,
    )


def read_prompts(path: Path, count: int) -> list[str]:
    """The first `count` prompts of a .jsonl file ({"kind", "prompt"} a line), taking the kinds in turns."""
    try:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
        by_kind: dict[str, list[str]] = {}
        for row in rows:
            by_kind.setdefault(row.get("kind", ""), []).append(row["prompt"])
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise SettingsError(f"the prompts in {path} cannot be read ({error}): give one JSON object on each line.") from None
    turns = max(map(len, by_kind.values()), default=0)
    prompts = [kind[turn] for turn in range(turns) for kind in by_kind.values() if turn < len(kind)]
    return prompts[:count]


def table(result: Report) -> str:
    """The report for a terminal."""
    lines = [
        f"{result.pair} on {result.device}, {result.threads} threads, {result.created}",
        f"greedy, {result.new_tokens} new tokens, draft length {result.draft_length}, {len(result.prompts)} prompts",
        "",
        f"{'arm':<24}{'tokens/s':>24}{'first token, s':>26}",
    ]
    for name, spread in result.tokens_per_second.items():
        text = result.differing.get(name)
        note = f"   text differs on {text}" if text else ""
        lines.append(f"{name:<24}{_show(spread):>24}{_show(result.first_token[name]):>26}{note}")
    lines += ["", f"{'ratio within a prompt and turn':<48}{'median (quartiles)':>24}"]
    lines += [f"{name:<48}{_show(spread):>24}" for name, spread in result.ratios.items()]
    plain = result.passes.get("1")
    if plain:
        lines += ["", "passes of the target behind 64 tokens: " + ", ".join(
            f"{n} tokens {seconds * 1e3:.1f} ms ({seconds / plain:.2f})" for n, seconds in result.passes.items()
        )]
    return "\n".join(lines)


def _show(spread: Spread) -> str:
    return f"{spread.median:.3g} ({spread.low:.3g}–{spread.high:.3g})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec bench", description=__doc__)
    add = parser.add_argument
    add("--pair", default=None, metavar="NAME", help="a pair from `models` (default: the embedded one)")
    add("--prompts", type=int, default=8, metavar="N", help="how many prompts (default 8)")
    add("--prompts-file", type=Path, default=PROMPTS, metavar="FILE", help=".jsonl with a prompt on each line")
    add("--new-tokens", type=int, default=128, metavar="N", help="of every answer (default 128)")
    add("--repeats", type=int, default=3, metavar="N", help="turns on every prompt (default 3)")
    add("--draft-length", type=int, default=4, metavar="N", help="γ (default 4)")
    add("--drafter", action="append", metavar="NAME", help="only this drafter; may be given several times")
    add("--ballast", type=float, metavar="B", help="B billion weights more in the embedded target, which cost and change nothing")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    add("--dtype", default="auto", metavar="D", help="auto, float32, bfloat16 or float16 (default auto)")
    add("--no-hf", action="store_true", help="leave out the arms of transformers")
    add("--json", metavar="FILE", help="write everything that was measured to FILE")
    return parser
