"""Training in real processes: killed, stopped, doubled, and split over two of them. The trainable is the toy of the unit tests."""

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from recap_steam import devices
from recap_steam.training.loop import train
from tests.unit.training.toy import Toy, ToyConfig, lineage

TOY = Path(__file__).parents[1] / "unit/training/toy.py"
SLOW = {"seconds_per_batch": 0.1}


def command(folder: Path, toy: dict, config: dict, processes: int) -> list[str]:
    launch = ["-m", "recap_steam.launch", "--devices", str(processes), "--threads", str(processes)] if processes > 1 else []
    return [sys.executable, *launch, str(TOY), json.dumps(toy), json.dumps(config), str(folder / "state"), str(folder / "output")]


def start(
    folder: Path, toy: dict | None = None, config: dict | None = None, processes: int = 1, limit: int | None = None
) -> subprocess.Popen:
    """``limit``: largest file in bytes that the process can write; beyond, a write fails as on a full device."""
    return subprocess.Popen(
        command(folder, toy or {}, config or {}, processes),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def wait_for_state(folder: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not list(folder.glob("state/*/step_*[0-9]/progress.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


def outputs(folder: Path) -> dict[str, bytes]:
    files = {name: folder / "output" / name for name in ("model.safetensors", "metrics.jsonl", "evaluation.json", "lineage.json")}
    return {name: path.read_bytes() for name, path in files.items()}


TWO = {"dropout": 0.0}, {"micro_batch_size": 2}, 2  # toy, configuration, processes


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """An uninterrupted run of two processes."""
    folder = tmp_path_factory.mktemp("two")
    code, _, errors = finish(start(folder, *TWO))
    assert code == 0, errors
    return folder


def train_here(folder: Path, toy: dict, config: dict) -> Path:
    """An uninterrupted run of this very process."""
    with devices.distributed():
        train(Toy(**toy), ToyConfig(**config), folder / "state", folder / "output", lineage())
    return folder


def kill_and_resume(folder: Path, toy: dict, config: dict, processes: int) -> None:
    killed = start(folder, {**toy, **SLOW}, config, processes)
    wait_for_state(folder, killed)
    writer = int((folder / "state/lock").read_text().split()[1])
    os.kill(writer, signal.SIGKILL)  # under a launcher this is its process 0, which then ends the other
    code, _, errors = finish(killed)
    assert code != 0
    if processes > 1:
        assert "error: a process was killed by signal 9 (out of memory, or killed by hand); run again" in errors
    assert not (folder / "output/model.safetensors").exists()
    code, output, errors = finish(start(folder, toy, config, processes))
    assert code == 0 and "resumed at step" in output, errors


def test_a_killed_run_ends_with_the_bytes_of_an_uninterrupted_one(tmp_path):
    whole = train_here(tmp_path / "whole", {}, {})
    kill_and_resume(tmp_path / "killed", {}, {}, 1)
    assert outputs(tmp_path / "killed") == outputs(whole)


def test_so_does_a_killed_run_of_two_processes(tmp_path, two_processes):
    kill_and_resume(tmp_path, *TWO)
    assert outputs(tmp_path) == outputs(two_processes)


def test_two_processes_train_as_one_does(tmp_path, two_processes):
    runs = [train_here(tmp_path / str(micro), {"dropout": 0.0}, {"micro_batch_size": micro}) for micro in (8, 2)] + [two_processes]
    rows = [[json.loads(line) for line in (run / "output/metrics.jsonl").read_text().splitlines()] for run in runs]
    for name in ("train/loss", "train/squared_error", "train/grad_norm"):
        values = np.array([[row[name] for row in run] for run in rows])
        np.testing.assert_allclose(values[1:], np.broadcast_to(values[0], values[1:].shape), rtol=2e-4)


def test_a_state_of_two_processes_is_continued_by_one(tmp_path, two_processes):
    shutil.copytree(two_processes / "state", tmp_path / "state")
    train_here(tmp_path, {"dropout": 0.0}, {"micro_batch_size": 2})
    assert outputs(tmp_path) == outputs(two_processes)


def test_defect_32_an_error_of_all_processes_is_told_once_and_ends_a_pipeline(tmp_path):
    """In Snakemake's shell; the reference's scripts gave the status of ``tee``."""
    words = shlex.join(command(tmp_path, {}, {"global_batch_size": 3}, 2))
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {words} 2>&1 | tee {tmp_path}/log"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    problem = "error: config: global_batch_size 3 is not a multiple of micro_batch_size 1 x 2 processes; change one of them\n"
    assert (tmp_path / "log").read_text() == problem


def test_a_second_writer_is_refused_and_sigterm_saves_the_state(tmp_path):
    first = start(tmp_path, SLOW, {"save_interval": 1000, "max_steps": 10000})
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("state/*/metrics.jsonl")):
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    code, _, errors = finish(start(tmp_path))
    assert code == 1
    assert errors.startswith(f"error: {tmp_path}/state: process {first.pid} on ") and len(errors.splitlines()) == 1
    first.terminate()
    code, _, errors = finish(first)
    assert code == 1 and "stopped by SIGTERM at step" in errors and len(errors.splitlines()) == 1
    assert len(list(tmp_path.glob("state/*/step_*[0-9]/progress.json"))) == 1


@pytest.mark.parametrize(("toy", "config"), [({}, {"save_interval": 5}), ({"selection": ["eval/mae", "min"]}, {"eval_interval": 5})])
def test_a_full_device_is_one_line_and_nothing_is_half_written(tmp_path, toy, config):
    code, _, errors = finish(start(tmp_path, toy, config, limit=2500))
    assert code == 1 and len(errors.splitlines()) == 1, errors
    assert errors.startswith(f"error: {tmp_path}/state/")
    assert errors.endswith(": no space left on the device; free some and run again; no state was saved yet\n")
    assert [path.name for path in tmp_path.glob("state/*/*")] == ["metrics.jsonl"] and not list(tmp_path.glob("output/*.safetensors"))
    code, _, errors = finish(start(tmp_path, toy, config))
    assert code == 0, errors
