"""Where models are kept on this machine, and how two processes share that folder without treading on each other.

Everything lies in one folder: `SPECDEC_HOME` if it is set, else what the platform sets aside for caches. A finished thing
appears under its name in one step (`os.replace`); whatever is unfinished has "partial" in its name and is swept away by the
next holder of the lock. The lock is one of the operating system's (it ends with its process, so a killed one blocks nobody).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from specdec.errors import ModelError

Progress = Callable[[str, int, "int | None"], None]

PARTIAL = "partial"
_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_ELSEWHERE = "set SPECDEC_HOME to a folder"


def silent(stage: str, done: int, total: int | None) -> None:
    """The progress callback of somebody who does not want to know."""


def home() -> Path:
    """The folder of everything that is fetched or converted (not created here)."""
    chosen = os.environ.get("SPECDEC_HOME", "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "specdec" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "specdec"
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (
        Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    ) / "specdec"  # a relative one is to be ignored, says XDG


def downloads() -> Path:
    """Where a wheel can also be put by hand."""
    return home() / "downloads"


def models() -> Path:
    return home() / "models"


def gigabytes(count: float) -> str:
    """Bytes as people read them: "538 MB", "1.4 GB"."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def require_space(folder: Path, needed: int, *, purpose: str) -> None:
    """Raise ModelError when the disk under `folder` has fewer than `needed` bytes free."""
    place = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise ModelError(
            f"{purpose} needs {gigabytes(needed)} of disk and {folder} has {gigabytes(free)} free: make room there, or "
            f"{_ELSEWHERE} on a larger disk."
        )


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what a full or closed disk makes of any writing library into one sentence about `folder`."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # safetensors and others have error types of their own and carry the reason only as text
        code, text = getattr(error, "errno", None), str(error)
        if code in _FULL or "No space left" in text or "os error 28" in text or "os error 112" in text:
            raise ModelError(f"The disk under {folder} is full: make room there, or {_ELSEWHERE} on a larger disk.") from error
        if code in _CLOSED or (code is None and "Permission denied" in text):
            raise ModelError(
                f"{folder} cannot be written to ({text}): change its rights, or {_ELSEWHERE} that you own."
            ) from error
        if code in (errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP):
            raise ModelError(f"{folder} cannot be used as a folder ({text}): {_ELSEWHERE} that you own.") from error
        raise


def sha256(path: Path, *, progress: Progress = silent, stage: str = "checking") -> str:
    """Hexadecimal SHA-256 of a file."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
            done += len(block)
            progress(stage, done, total)
    return digest.hexdigest()


@contextlib.contextmanager
def fresh_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new empty "partial" folder in `parent`, gone afterwards unless it was moved away. Old ones of that name are swept first.

    Only for the holder of the lock: anybody else's partial folder of that name would be swept while in use.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{name}.{PARTIAL}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{name}.{PARTIAL}-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def lock(name: str, *, progress: Progress = silent, poll: float = 0.2) -> Iterator[None]:
    """Hold the lock `name` of the model folder; waits, and says so through `progress`, while another process or thread has it."""
    folder = home() / "locks"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{name}.lock").open("a+b")
    with file:
        started = time.monotonic()
        while not _try_lock(file.fileno()):
            progress("waiting for another process that fetches the same model", int(time.monotonic() - started), None)
            time.sleep(poll)
        try:
            yield
        finally:
            _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            # Some network file systems know no locks. Moving finished things into place in one step still holds there.
            return error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
        return True

    def _unlock(descriptor: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
