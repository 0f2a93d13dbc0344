"""Snakemake on a cluster as its users run it, and a training seen from outside."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.workflow.tree import Tree

LIMIT = 600  # s that anything may take
SOON = ("--slurm-init-seconds-before-status-checks", "4", "--latency-wait", "10")  # this machine answers sooner than a cluster
CPU_NODES = ("--config", "accelerator=none", "cpus_per_device=2", "mem_mb_per_device=2000")
ENVIRONMENT = {**os.environ, "RECAP_STEAM_ON_CPU": "1"}  # the devices of this Slurm are none
STEP_FOLDER = "*/step_*[0-9]"


class Run:
    """A running ``snakemake --profile ...`` in a clone of the workflow."""

    def __init__(self, tree: Tree, *arguments: str, profile: str = "slurm"):
        self._log = tree.path / f"snakemake_{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "snakemake", "--profile", profile, "--configfile", "experiment.yaml", *SOON, *arguments]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, env=ENVIRONMENT, cwd=tree.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait(self) -> int:
        """Return the exit status at the end."""
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.output) from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> "Run":
        """Wait for a run that must succeed."""
        assert self.wait() == 0, self.output
        return self

    def fail(self) -> "Run":
        """Wait for a run that must fail."""
        assert self.wait() == 1, self.output
        return self

    def finished(self) -> Counter[str]:
        """Number of jobs by rule that it reported as finished."""
        return Counter(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", self.output, re.MULTILINE))

    def failed(self) -> Counter[str]:
        """Number of jobs by rule that it reported as failed."""
        return Counter(re.findall(r"^Error in rule (\w+):\n +message: SLURM", self.output, re.MULTILINE))

    def submitted(self) -> list[str]:
        """Slurm's numbers of its jobs."""
        return re.findall(r"has been submitted with SLURM jobid (\d+)", self.output)


class Training:
    """The training of a critic in a clone."""

    def __init__(self, tree: Tree, tag: str = "value"):
        self._folder = tree.path / "state/cluster/critics" / tag

    @property
    def saved(self) -> int:
        """Step of the last saved state; 0 if there is none."""
        return max((int(path.name.removeprefix("step_")) for path in self._folder.glob("*/step_*[0-9]")), default=0)

    @property
    def processes(self) -> int:
        """Number of processes that wrote the last saved state."""
        return len(list(self._folder.glob("*/step_*[0-9]/*.distcp")))

    def freeze(self, run: Run) -> int:
        """Stop the training's process 0 between its next state and the one after, and return it: what happens next happens there."""
        before = self.saved
        wait_for(lambda: self.saved > before or run.process.poll() is not None)
        assert run.process.poll() is None, run.output
        process = int((self._folder / "lock").read_text().split()[1])
        os.kill(process, signal.SIGSTOP)
        return process


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def go_on(process: int) -> None:
    """Wake a frozen process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def ended(process: int) -> bool:
    """Whether a process is gone, or has ended and nobody asked how."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def was_told_to_end(process: int) -> bool:
    """Whether SIGTERM waits for a frozen process."""
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\t(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in pending)


def environment(process: int) -> dict[str, str]:
    """What a process was started with."""
    words = Path(f"/proc/{process}/environ").read_text().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def state(job: str) -> str:
    """What Slurm says of a job."""
    return slurm("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def slurm(*words: str) -> str:
    """Run one of Slurm's commands and return what it printed."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
