"""Outputs appear whole or not at all: written to a temporary name in the same folder, then renamed."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from recap_steam.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic_output(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, its content is flushed to disk and renamed to ``path``.

    The temporary file is locked while the block runs, so that a second writer of the same output is refused, and it has a fixed name,
    so that one left behind by a killed process is reused instead of piling up. If the block fails, nothing remains.

    Raises:
        UserError: another process is writing ``path``, or the device is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = _lock(temporary, path)
    try:
        yield temporary
        os.fsync(descriptor)
        os.replace(temporary, path)
        _fsync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise UserError(f"{path}: no space left on the device; free some and run again (nothing was left half-written)") from error
        raise
    finally:
        os.close(descriptor)


def _lock(temporary: Path, path: Path) -> int:
    """Open and lock ``temporary``. Truncation comes after the lock, and only if the name still leads to the locked file."""
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = temporary.exists() and os.path.samestat(os.fstat(descriptor), temporary.stat())
        except BlockingIOError:
            held = False
        except OSError:  # a file system without locks: Snakemake's own lock on the working directory remains
            held = True
        if not held:
            raise UserError(f"{path}: another process is writing this file; wait for it to end and run again")
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
