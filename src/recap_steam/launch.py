"""``python -m recap_steam.launch``: torchrun (same arguments) that leaves the last word to the script's own error line.

torchrun answers a failing process with a traceback of its own, which hides the line that says what to do.
"""

import logging
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run


def main() -> None:
    """Run torchrun; end with the status of the first process that failed, or 128 + the signal that ended us."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run(parse_args(sys.argv[1:]))
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        sys.exit(code if code > 0 else 128 - code)  # a process killed by signal n has exit code -n
    except SignalException as error:
        sys.exit(128 + int(error.sigval))


if __name__ == "__main__":
    main()
