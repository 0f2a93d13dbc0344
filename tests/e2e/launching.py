"""Starts scripts as the rules do: under the launcher, with one thread per process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(script: Path, arguments: list, processes: int) -> subprocess.Popen:
    """Run ``script`` in ``processes`` processes; its output is piped."""
    words = [*launcher(processes), script, *arguments]
    return subprocess.Popen([str(word) for word in words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def launcher(processes: int) -> list:
    """The command that starts a script, which follows, in ``processes`` processes of one thread."""
    return [sys.executable, "-m", "recap_steam.launch", "--devices", processes, "--threads", processes]


def environment() -> dict[str, str]:
    """Of a script of this checkout."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def finish(process: subprocess.Popen) -> str:
    """Wait for a process that must succeed and return what it printed."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output
