"""``python -m recap_steam.launch``: torchrun (same arguments) that leaves the last word to the script's own error line.

torchrun answers a failing process with a traceback of its own, which hides the line that says what to do.
"""

import logging
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run


def main() -> None:
    """Run torchrun; end with the status of the first process that failed, or 128 + the signal that ended us."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run(parse_args(sys.argv[1:]))
    except ChildFailedError as error:
        code = min(error.failures.values(), key=_order).exitcode
        if code > 0:
            sys.exit(code)
        print(_killed(-code), file=sys.stderr)  # it could not speak for itself
        sys.exit(128 - code)
    except SignalException as error:
        sys.exit(128 + int(error.sigval))


def _order(failure: ProcessFailure) -> tuple[int, bool, bool]:
    """Time of the end in s; in the same second, torchrun's own SIGTERM to the others comes last, and their lost connection after a kill."""
    return failure.timestamp, failure.exitcode == -signal.SIGTERM, failure.exitcode > 0


def _killed(number: int) -> str:
    """The last word for a process that a signal ended; its exit code is minus the signal's number."""
    cause = " (out of memory, or killed by hand)" if number == signal.SIGKILL else ""
    return f"error: a process was killed by signal {number}{cause}; run again to resume from the last saved state"


if __name__ == "__main__":
    main()
