"""Outputs appear whole or not at all: written to a temporary name in the same folder, then renamed."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from recap_steam.errors import UserError, system_problem


@contextlib.contextmanager
def atomic_output(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, its content is flushed to disk and renamed to ``path``.

    The temporary file is locked while the block runs, so that a second writer of the same output is refused, and it has a fixed name,
    so that one left behind by a killed process is reused instead of piling up. If the block fails, nothing remains.

    Raises:
        UserError: another process is writing ``path``, the device is full, or the folder may not be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(temporary, path) as descriptor:
            yield temporary
            os.fsync(descriptor)
            os.replace(temporary, path)
            _fsync_folder(path.parent)
    except OSError as error:
        problem = system_problem(error)
        if problem is None:
            raise
        place = path if error.filename is None or Path(error.filename) == temporary else error.filename
        raise UserError(f"{place}: {problem}") from error


def publish_folder(part: Path, folder: Path, last: str) -> None:
    """Move all files below ``part`` to the same places below ``folder``, the one named ``last`` at the end, and remove ``part``."""
    files = [path.relative_to(part) for path in part.rglob("*") if path.is_file()]
    for name in sorted(files, key=lambda name: (name.name == last, name)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(part / name, folder / name)
    shutil.rmtree(part)


@contextlib.contextmanager
def _locked(temporary: Path, path: Path) -> Iterator[int]:
    """Create and lock ``temporary``, and remove it if the block fails. It is emptied only once it is known to be ours."""
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not (_lock(descriptor) and _leads_to(temporary, descriptor)):
            raise UserError(f"{path}: another process is writing this file; wait for it to end and run again")
        try:
            os.ftruncate(descriptor, 0)
            yield descriptor
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether no other process holds the lock. True on a file system without locks: Snakemake's own lock on the working folder remains."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _leads_to(temporary: Path, descriptor: int) -> bool:
    """Whether the name still leads to the locked file: a writer that ended meanwhile has renamed it, and it is an output now."""
    try:
        return os.path.samestat(os.fstat(descriptor), temporary.stat())
    except FileNotFoundError:
        return False


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
