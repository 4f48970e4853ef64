"""What the command line reads and writes besides its answer: the prompt, the progress of a long wait, the trace file."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self, TextIO

from specdec.errors import SettingsError

_COUNTED_AS_BYTES = 1_000_000  # progress with a total from here on is told in bytes, below it in items


def prepare_output() -> None:
    """A token that the terminal's encoding does not know is shown escaped instead of ending the run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def read_prompt(argument: str) -> str:
    """The prompt itself, or standard input for "-" (its last line break is not part of the prompt). Raises SettingsError."""
    if argument != "-":
        prompt = argument
    else:
        if sys.stdin.isatty():
            print("Write the prompt and end it with Ctrl+D on a line of its own (Windows: Ctrl+Z, Enter).", file=sys.stderr)
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SettingsError(f"Standard input is no UTF-8 text (byte {error.start} is broken): convert it first.") from None
        prompt = prompt.replace("\r\n", "\n").removesuffix("\n")
    if not prompt:
        raise SettingsError("The prompt is empty: write what is to be answered or continued.")
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise SettingsError("The prompt holds bytes that are no UTF-8 text: check the encoding of the terminal.") from None
    return prompt


def check_place(name: str, *, option: str = "--trace") -> Path:
    """`name` as a path that a file can be written to, as far as that shows before; raises SettingsError."""
    place = Path(name).expanduser()
    if place.is_dir():
        raise SettingsError(f"{option} {name} is a folder: give the name of a file in it.")
    if not place.parent.is_dir():
        raise SettingsError(f"{option} {name}: there is no folder {place.parent}; make it first, or write elsewhere.")
    # An existing file is replaced, which takes a folder that can be written to; a device is written to directly.
    if not os.access(place if _is_special(place) else place.parent, os.W_OK):
        raise SettingsError(f"{option} {name} cannot be written to: change the rights, or write elsewhere.")
    return place


def _is_special(place: Path) -> bool:
    """A device or a pipe, like /dev/stdout."""
    return place.exists() and not stat.S_ISREG(place.stat().st_mode)


def write_whole(place: Path, text: str) -> None:
    """Write a text file in one step: at no moment is there a part of it under its name, and a failure leaves the old one."""
    if _is_special(place):
        place.write_text(text, encoding="utf-8")
        return
    place = Path(os.path.realpath(place))  # a link stays a link
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name[:40]}.", suffix=".partial", dir=place.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask())
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def keep_elsewhere(text: str) -> str | None:
    """Name of a new file among the temporary ones that holds `text`, None if that fails as well."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="specdec-trace-", suffix=".json")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return name
    except OSError:
        return None


class Progress:
    """Tells a person what is going on: `progress(stage, done, total)`, as often as one likes, from any thread.

    On a terminal one line that is drawn over; elsewhere a plain line when a stage takes a while, and then every few seconds.
    keep: leave a line behind for each stage that moved bytes. Use it as a context: leaving it clears the line.
    """

    def __init__(self, out: TextIO, *, keep: bool = False, clock=time.monotonic) -> None:
        self._out, self._keep, self._clock = out, keep, clock
        self._terminal = out.isatty()
        self._lock = threading.Lock()
        self._stage: str | None = None
        self._begun = self._told = 0.0
        self._first = self._done = 0
        self._total: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            self._end_stage(finished=reason[0] is None)

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        with self._lock:
            now = self._clock()
            if stage != self._stage:
                self._end_stage(finished=True)
                self._stage, self._begun, self._first = stage, now, done
                # A plain line waits for a second to pass, as most stages are over by then, unless no more may be heard of it.
                self._told = now - (4.0 if total and not self._terminal else 5.0)
            self._done, self._total = done, total
            if now - self._told >= (0.1 if self._terminal else 5.0):
                self._told = now
                self._write(self._line(now))

    def _end_stage(self, *, finished: bool) -> None:
        if self._stage is None:
            return
        seconds = self._clock() - self._begun
        if self._keep and finished and self._counts_bytes():
            rate = f" ({(self._done - self._first) / seconds / 1e6:.1f} MB/s)" if seconds > 0.05 else ""
            self._write(f"{self._stage}: {_megabytes(self._total or self._done)}{rate}, done", last=True)
        elif self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()
        self._stage = None

    def _counts_bytes(self) -> bool:
        return (self._total or self._done) >= _COUNTED_AS_BYTES

    def _line(self, now: float) -> str:
        if not self._total and not self._counts_bytes():
            return f"{self._stage} …"
        share = f" {100 * self._done / self._total:3.0f} %" if self._total else ""
        if not self._counts_bytes():
            return f"{self._stage}:{share}"
        seconds, moved = now - self._begun, self._done - self._first
        amount = f"{_megabytes(self._done)} of {_megabytes(self._total)}" if self._total else _megabytes(self._done)
        if seconds < 0.5 or moved <= 0:
            return f"{self._stage}:{share}  {amount}"
        rate = moved / seconds
        left = f", {_duration((self._total - self._done) / rate)} left" if self._total else ""
        return f"{self._stage}:{share}  {amount}, {rate / 1e6:.1f} MB/s{left}"

    def _write(self, line: str, *, last: bool = False) -> None:
        if self._terminal:
            self._out.write(f"\r\x1b[K{line}" + "\n" * last)
        else:
            self._out.write(line + "\n")
        self._out.flush()


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 100 else f"{seconds // 60} min" if seconds < 6000 else f"{seconds // 3600} h"
