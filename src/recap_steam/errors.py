"""A user's mistake is one line that names the place, what is wrong and the remedy; only our own mistakes are tracebacks."""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

FIRST_WORD_S = 5.0  # for which other processes of a job wait before they report an error

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


class UserError(Exception):
    """What a user can repair. The message is one line: place (file, episode or key), what is wrong, what to do."""


def config_error(key: str, message: str) -> UserError:
    """A mistake in the experiment file, at a dotted key."""
    return UserError(f"config: {key}: {message}")


def rerun(rule: str) -> str:
    """The remedy for an output that ``rule`` has to make again. No command to type: the user's own names a configuration, and more."""
    return f"run Snakemake again with `--forcerun {rule}`"


def run_target(target: str) -> str:
    """The remedy for outputs that were not made yet."""
    return f"run Snakemake again with the target `{target}`"


def system_problem(error: OSError) -> str | None:
    """What a user can do about a full or closed device; None for any other error of the system."""
    if error.errno in _FULL:
        return "no space left on the device; free some and run again (nothing was left half-written)"
    if error.errno in _DENIED:
        return "permission denied; give yourself access to it (sidecars of a read-only dataset go to its sidecar_root)"
    return None


def run_main(main: Callable[[], None]) -> None:
    """Run a script's main function; end with status 1 and one line on stderr on a user error, a full device or a closed folder, and without
    a word on Ctrl-C.

    An error that all processes of a job meet is told once: process 0 has the first word, and torchrun ends the others with it. A process of
    a job leaves without Python's finalisation, as multiprocessing's do: where a thread of gloo still waits for the interpreter to let go of
    a tensor, finalisation aborts the process, and the job fails with all its work done (pytorch pull request 179291).
    """
    if "RANK" not in os.environ:
        _run(main)
        return
    status = 0
    try:
        _run(main)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(main: Callable[[], None]) -> None:
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except UserError as error:
        _end(str(error))
    except OSError as error:
        problem = system_problem(error)
        if problem is None:
            raise
        _end(f"{error.filename or 'output'}: {problem}")


def _end(message: str) -> NoReturn:
    if os.environ.get("RANK", "0") != "0":
        time.sleep(FIRST_WORD_S)
    sys.exit(f"error: {message}")
