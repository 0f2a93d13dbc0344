"""Signals to leave, as a user, a time limit and Slurm send them: to the launcher alone, or to all processes at once."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.launching import launcher
from tests.e2e.test_training_resume import TOY, outputs

TORCHRUN_KILLS_AFTER_S = 30  # where it passes a signal on by itself


class Job:
    """The toy in two processes under the launcher."""

    def __init__(self, folder: Path, **toy: object):
        self.folder = folder
        arguments = [
            json.dumps({"dropout": 0.0, **toy}),
            json.dumps({"micro_batch_size": 2, "save_interval": 1000}),
            folder / "state",
            folder / "output",
        ]
        words = [*launcher(2), TOY, *arguments]
        self.launcher = psutil.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, pattern: str) -> None:
        """Until a file exists in the job's folder."""
        self.wait_until(lambda: list(self.folder.glob(pattern)))

    def wait_until(self, happened) -> None:
        deadline = time.monotonic() + 60
        while not happened():
            assert self.launcher.poll() is None and time.monotonic() < deadline, self.end()
            time.sleep(0.02)

    def tell_all(self) -> None:
        """What Slurm does to the processes of a job step."""
        for process in [self.launcher, *self.launcher.children(recursive=True)]:
            process.terminate()

    def end(self) -> tuple[int, list[str]]:
        """Status and lines of stderr."""
        _, errors = self.launcher.communicate(timeout=120)
        return self.launcher.returncode, errors.splitlines()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    job = Job(tmp_path_factory.mktemp("undisturbed"))
    assert job.end() == (0, [])
    return outputs(job.folder)


def test_a_state_is_saved_however_long_that_takes_and_a_second_signal_does_no_harm(tmp_path, undisturbed):
    job = Job(tmp_path, seconds_per_batch=0.1, seconds_per_state=TORCHRUN_KILLS_AFTER_S + 2)
    job.wait_for("state/*/metrics.jsonl")
    job.launcher.terminate()
    told = time.monotonic()
    time.sleep(3)
    job.tell_all()
    status, errors = job.end()
    assert time.monotonic() - told > TORCHRUN_KILLS_AFTER_S
    assert status == 1 and len(errors) == 1 and "stopped by SIGTERM at step" in errors[0], errors
    assert list(tmp_path.glob("state/*/step_*[0-9]/progress.json"))
    assert Job(tmp_path).end() == (0, [])
    assert outputs(tmp_path) == undisturbed


def test_a_lost_terminal_and_an_interrupt_are_signals_to_leave(tmp_path):
    job = Job(tmp_path, seconds_per_batch=0.1)
    job.wait_for("state/*/metrics.jsonl")
    job.launcher.send_signal(signal.SIGHUP)
    job.launcher.send_signal(signal.SIGINT)
    status, errors = job.end()
    assert status == 1 and len(errors) == 1 and "stopped by SIGTERM at step" in errors[0], errors


def test_a_signal_to_all_processes_at_once_is_one_signal(tmp_path):
    job = Job(tmp_path, seconds_per_batch=0.1)
    job.wait_for("state/*/metrics.jsonl")
    job.tell_all()
    status, errors = job.end()
    assert status == 1 and len(errors) == 1 and "stopped by SIGTERM at step" in errors[0], errors
    assert list(tmp_path.glob("state/*/step_*[0-9]/progress.json"))


def test_a_signal_before_training_ends_the_job_at_once(tmp_path):
    job = Job(tmp_path)
    job.wait_until(lambda: len(job.launcher.children()) == 2)  # which import torch now
    job.launcher.terminate()
    told = time.monotonic()
    assert job.end() == (128 + signal.SIGTERM, ["error: a process was killed by signal 15; run again to resume from the last saved state"])
    assert time.monotonic() - told < 10


def test_a_signal_during_the_export_comes_too_late_to_undo_it(tmp_path, undisturbed):
    job = Job(tmp_path, seconds_per_export=2.0)
    job.wait_for("output/.part/started")
    job.tell_all()
    assert job.end() == (0, [])
    assert outputs(tmp_path) == undisturbed


HANGS = """
import datetime, os, time
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
if os.environ["RANK"] == "1":
    time.sleep(600)
dist.barrier()
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script of two processes under the launcher, to its end."""
    script = folder / "script.py"
    script.write_text(code)
    words = [str(word) for word in (*launcher(2), script)]
    return subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=60)


def test_a_process_that_hangs_ends_the_job(tmp_path):
    done = run(HANGS, tmp_path)
    assert done.returncode == 1 and "Timed out waiting" in done.stderr


LEAVES = """
import sys, time
import torch
import torch.distributed as dist
from recap_steam import devices
from recap_steam.errors import run_main

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(2)

def main():
    sys.slow = Slow()  # finalisation lasts, and lets other threads go on
    with devices.distributed():
        sys.kept = dist.group.WORLD
        if not devices.is_main():
            time.sleep(1)
        dist.broadcast(torch.ones(1), src=1, async_op=True)  # process 0's thread lets go of it when it is there
    sys.setswitchinterval(100)  # until finalisation, no other thread has a turn
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass

run_main(main)
"""


def test_a_thread_that_still_waits_at_the_end_aborts_no_job(tmp_path):
    done = run(LEAVES, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
