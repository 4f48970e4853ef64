"""The command line: `python -m specdec run | plain | race | models | fetch | serve | …`.

What a person asked for goes to standard output, progress and complaints to standard error. Exit codes: 0 all went well; 1 the
run is made and its trace could not be written where it should; 2 something in the request cannot be used (one line says what);
130 Ctrl+C, which ends a run before its next model pass and prints what was made; 141 the reader of a pipe went away.

Nothing here imports torch before a model is really needed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specdec import cli_io, cli_print, cli_remote
from specdec.errors import ModelError, SettingsError, SpecdecError
from specdec.trace import Settings

if TYPE_CHECKING:
    from specdec.catalogue import PairSpec

# Commands whose own module reads what follows them.
FORWARDED = {
    "train": ("specdec.train", "train a drafter for the embedded target"),
    "measure": ("specdec.measure_cli", "measure drafters and draft lengths on your own tasks; a report says whether to adopt them"),
    "selfcheck": ("specdec.selfcheck_cli", "does it work on this machine? exactness, statistics, speed; run it first on a GPU"),
    "serve": ("specdec.serve_cli", "decode for apps on other computers, with as many engines as there are GPUs (Ray Serve)"),
    "experiment": ("specdec.experiment_cli", "the measurements of the teaching pages, made again"),
    "bench": ("specdec.bench_cli", "measure plain and speculative decoding, and transformers' own, in turns"),
}
DRAFTERS = ("draft", "head", "head-lookup", "lookup", "early-exit")
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the number of SIGINT and of SIGPIPE, as shells report them


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code. arguments: those of the process unless given."""
    cli_io.prepare_output()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments and arguments[0] in FORWARDED:
            return importlib.import_module(FORWARDED[arguments[0]][0]).main(arguments[1:])
        chosen = _parser().parse_args(arguments)
        code = chosen.command(chosen)
        sys.stdout.flush()
        return code
    except SpecdecError as error:
        print(f"specdec: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("specdec: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What is left in the buffer has no reader either; without this the interpreter would complain on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and leaves the usage to --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"specdec: {' '.join(message.split())} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    from specdec import __version__

    parser = _Parser(
        prog="python -m specdec",
        description="Speculative decoding that can be watched, checked and measured.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"specdec {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="decode a prompt speculatively and show every round", allow_abbrev=False)
    _add_run_options(run)
    _add_draft_options(run)
    run.set_defaults(command=_decode, method="speculative")

    plain = commands.add_parser("plain", help="decode a prompt with the target alone, the baseline", allow_abbrev=False)
    _add_run_options(plain)
    plain.set_defaults(command=_decode, method="plain", drafter="", draft_length=0, exit_layers=0, ngram=3)

    race = commands.add_parser("race", help="decode a prompt without and with the drafter, and compare", allow_abbrev=False)
    _add_run_options(race, keep="--out")
    _add_draft_options(race)
    race.add_argument("--title", default="", help="a name for the race, kept in the file")
    race.set_defaults(command=_race)

    models = commands.add_parser("models", help="list the pairs that are known by name", allow_abbrev=False)
    models.set_defaults(command=_models)

    fetch = commands.add_parser("fetch", help="fetch the models of a pair, to need no network later", allow_abbrev=False)
    fetch.add_argument("pair", nargs="?", metavar="PAIR", help="a name from `models`, or a hub id; the default pair if left out")
    fetch.set_defaults(command=_fetch)
    for name, (_, help_) in FORWARDED.items():
        commands.add_parser(name, help=help_)
    return parser


def _length(value: str) -> int | str:
    return value if value == "auto" else int(value)


_length.__name__ = "int"  # what argparse calls it when it is none


def _add_draft_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--drafter", choices=DRAFTERS, default="", help="who proposes tokens; the pair's own default if left out")
    help_ = "γ, tokens proposed in a round, or auto: chosen anew each round (default 4)"
    add("--draft-length", type=_length, default=4, metavar="N", help=help_)
    add("--exit-layers", type=int, default=0, metavar="N", help="layers that early-exit runs (default: its choice)")
    add("--ngram", type=int, default=3, metavar="N", help="longest run of tokens that look-up searches (default 3)")


def _add_run_options(parser: argparse.ArgumentParser, *, keep: str = "--trace") -> None:
    """keep: the option that names the file to write."""
    add = parser.add_argument
    add("prompt", metavar="PROMPT", help='the text to answer or continue; "-" reads it from standard input')
    add("--pair", metavar="NAME", help="a pair from `models` (default: the embedded one)")
    add("--target", metavar="ID", help="target model: hub id or folder")
    add("--draft", metavar="ID", help="draft model for --target: hub id or folder")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default 0)")
    add("--top-k", type=int, default=0, metavar="K", help="keep the K most probable tokens; 0 keeps all (default 0)")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the smallest set with probability P; 1 keeps all (default 1)")
    add("--max-new-tokens", type=int, default=64, metavar="N", help="longest output (default 64)")
    add("--seed", type=int, default=0, metavar="N", help="of every random draw of the run (default 0)")
    add("--engine", metavar="URL", help="decode on the machines at this address, see `serve` (default: SPECDEC_ENGINE, else here)")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    add("--dtype", default="auto", metavar="D", help="auto, float32, bfloat16 or float16 (default auto)")
    split = "a target larger than one GPU: its layers on several (layers) or, started by torchrun, its matrices (tensors)"
    add("--split", choices=("layers", "tensors"), default="", help=split)
    add("--raw", action="store_true", help="continue the text as it stands, without the chat template")
    add(keep, dest="trace", metavar="FILE", help="write everything that was made to FILE as JSON")
    add("--json", action="store_true", help="print one JSON object with text and figures, and nothing else")


def _decode(chosen: argparse.Namespace) -> int:
    """`run` and `plain`. Everything that can be refused without a model is refused before one is loaded."""
    settings = _settings(chosen)
    trace_file = cli_io.check_place(chosen.trace) if chosen.trace else None
    address = cli_remote.wanted(chosen)
    prompt = cli_io.read_prompt(chosen.prompt)
    if address:
        start = functools.partial(cli_remote.start, method=chosen.method, name=chosen.pair)
        return _show_run(address, prompt, settings, start, chosen.json, trace_file)
    pair = _load(chosen)
    from specdec.decoding import stream, stream_plain

    start = functools.partial(stream, time_plain=True) if chosen.method == "speculative" else stream_plain
    return _show_run(pair, prompt, settings, start, chosen.json, trace_file)


def _settings(chosen: argparse.Namespace) -> Settings:
    """Raises SettingsError, also for models that do not go together."""
    settings = Settings(
        drafter=chosen.drafter,
        draft_length=chosen.draft_length,
        temperature=chosen.temperature,
        top_k=chosen.top_k,
        top_p=chosen.top_p,
        max_new_tokens=chosen.max_new_tokens,
        seed=chosen.seed,
        raw=chosen.raw,
        exit_layers=chosen.exit_layers,
        ngram=chosen.ngram,
    )
    if chosen.pair and (chosen.target or chosen.draft):
        raise SettingsError("--pair names both models, so --target and --draft do not go with it: give the one or the others.")
    if chosen.split == "tensors":
        _together(chosen, settings)
    if chosen.draft and not chosen.target:
        raise SettingsError(f"--draft {chosen.draft} has no --target to work for: give --target, too, or a --pair.")
    return settings


def _together(chosen: argparse.Namespace, settings: Settings) -> None:
    """One of several processes that decode the same: all must decide alike, and one of them speaks. Raises SettingsError."""
    if settings.adaptive:
        raise SettingsError(
            "--draft-length auto goes by measured times, which differ between the processes of --split tensors: give a number."
        )
    if os.environ.get("RANK", "0") != "0":
        chosen.trace = None
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends


def _load(chosen: argparse.Namespace) -> Any:
    with cli_io.Progress(sys.stderr) as progress, contextlib.redirect_stdout(sys.stderr):
        # Importing takes seconds, and what libraries have to say while they load is no part of the answer.
        progress("loading libraries", 0, None)
        from specdec.models import load_pair

        return load_pair(
            chosen.pair,
            target=chosen.target,
            draft=chosen.draft,
            device=chosen.device,
            dtype=chosen.dtype,
            **({"split": chosen.split} if chosen.split else {}),
            progress=progress,
        )


def _race(chosen: argparse.Namespace) -> int:
    """Both methods after each other; the comparison on standard output, the race in a file if one was named."""
    settings = _settings(chosen)
    place = cli_io.check_place(chosen.trace, option="--out") if chosen.trace else None
    address = cli_remote.wanted(chosen)
    prompt = cli_io.read_prompt(chosen.prompt)
    pair = None if address else _load(chosen)
    from specdec import cli_race

    with _stop_on_interrupt() as interrupted:
        if address:
            race = cli_remote.race(
                address, prompt, settings, pair=chosen.pair, title=chosen.title, stop=lambda: bool(interrupted)
            )
        else:
            race = _race_here(pair, prompt, settings, title=chosen.title, stop=lambda: bool(interrupted))
    code = 0 if place is None else _write(race.to_json(), place, what="race")
    (cli_race.print_json if chosen.json else cli_race.print_race)(race, sys.stdout)
    if interrupted:
        print("specdec: interrupted; this is what was made.", file=sys.stderr)
        return INTERRUPTED
    return code


def _race_here(pair: Any, prompt: str, settings: Settings, *, title: str, stop: Callable[[], bool]) -> Any:
    from specdec import race_run

    with cli_io.Progress(sys.stderr) as progress:
        return race_run.run(
            pair,
            prompt,
            settings,
            title=title,
            stop=stop,
            progress=lambda method, tokens: progress(f"{method} decoding", tokens, settings.max_new_tokens),
        )


def _show_run(pair: Any, prompt: str, settings: Settings, start: Callable, as_json: bool, trace_file: Path | None) -> int:
    """Decode and print. Whatever ends it early, what was made is printed and written."""
    with _stop_on_interrupt() as interrupted:
        run = start(pair, prompt, settings, stop=lambda: bool(interrupted))
        view = cli_print.Silent() if as_json else cli_print.Live(run, sys.stdout)
        gone = False
        try:
            for round_ in run:
                view.round(round_)
        except KeyboardInterrupt:
            interrupted.append(True)
        except BrokenPipeError:
            gone = True
        trace = run.trace()
    # The trace first: nobody may be reading what is printed, but the file was asked for.
    code = 0 if trace_file is None else _write(trace.to_json(), trace_file, what="trace")
    if gone:
        raise BrokenPipeError
    view.end(trace)
    if as_json:
        cli_print.print_json(trace, sys.stdout)
    if interrupted:
        print("specdec: interrupted; this is what was made.", file=sys.stderr)
        return INTERRUPTED
    if message := getattr(run, "message", ""):  # of a run on another machine that failed on its way
        raise ModelError(message)
    return code


@contextlib.contextmanager
def _stop_on_interrupt() -> Iterator[list[bool]]:
    """Within, the first Ctrl+C makes the list non-empty, for the run to end in order; a second one raises KeyboardInterrupt."""
    interrupted: list[bool] = []

    def note(number: int, frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(True)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread: signals go elsewhere
        yield interrupted
        return
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _write(made: str, place: Path, *, what: str) -> int:
    """Write what was made; if that fails, keep it somewhere else and say where. what: its name for people."""
    try:
        cli_io.write_whole(place, made)
        return 0
    except OSError as error:
        elsewhere = cli_io.keep_elsewhere(made)
        kept = f"it is kept in {elsewhere}" if elsewhere else "and there is no other place to keep it"
        print(f"specdec: the {what} cannot be written to {place} ({error.strerror or error}); {kept}.", file=sys.stderr)
        return 1


def _models(chosen: argparse.Namespace) -> int:
    from specdec.catalogue import CATALOGUE, DEFAULT_PAIR

    cli_print.print_models(list(CATALOGUE.values()), default=DEFAULT_PAIR, is_here=_is_here, out=sys.stdout)
    return 0


def _is_here(spec: PairSpec) -> bool:
    """Whether all models of a pair are on this computer already."""
    from specdec.fetch import converted_folder

    if spec.embedded:
        return converted_folder() is not None
    from specdec.hub import _cached

    return all(_cached(model) is not None for model in (spec.target, spec.draft) if model)


def _fetch(chosen: argparse.Namespace) -> int:
    from specdec.catalogue import CATALOGUE, DEFAULT_PAIR

    name = chosen.pair or DEFAULT_PAIR
    spec = CATALOGUE.get(name)
    if spec is None and "/" not in name:
        raise ModelError(f"There is no pair called {name!r}: take {', '.join(CATALOGUE)}, or a hub id like Qwen/Qwen3-0.6B.")
    with cli_io.Progress(sys.stderr, keep=True) as progress:
        if spec is not None and spec.embedded:
            from specdec.fetch import fetch_embedded

            folders = [fetch_embedded(progress=progress)]
        else:
            from specdec.hub import find_model

            names = [name] if spec is None else [model for model in (spec.target, spec.draft) if model]
            folders = [find_model(model, progress=progress) for model in names]
    for folder in folders:
        print(folder)
    return 0
