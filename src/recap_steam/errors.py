"""A user's mistake is one line that names the place, what is wrong and the remedy; only our own mistakes are tracebacks."""

import errno
import sys
from collections.abc import Callable


class UserError(Exception):
    """What a user can repair. The message is one line: place (file, episode or key), what is wrong, what to do."""


def run_main(main: Callable[[], None]) -> None:
    """Run a script's main function; end with status 1 and one line on stderr on a user error or a full disk."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or "output"
        sys.exit(f"error: {place}: no space left on the device; free some and run again (nothing was left half-written)")
