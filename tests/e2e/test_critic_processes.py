"""The critic's script in real processes: two and four of them train the critic of one, and a killed run ends as an undisturbed one."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from recap_steam.config import whole_experiment
from recap_steam.training.critic_stage import train_critic_stage
from tests.e2e.launching import ROOT, finish, start
from tests.unit.critics.experiment import Files, make

STEPS, SAVED = 12, 4  # steps of a run; steps between its states
RECOMPUTED = {"gradient_checkpointing": True, "micro_batch_size": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    """Two cameras, of which the rollouts' robot lacks one, and fewer held-out frames than processes (defect 27)."""
    changes = {"max_steps": STEPS, "eval_interval": SAVED, "save_interval": SAVED, "micro_batch_size": 2, "eval": {"max_samples": 1}}
    return make(tmp_path_factory.mktemp("experiment")).with_two_cameras("rollouts", **changes)


def launch(files: Files, folder: Path, processes: int, **execution) -> subprocess.Popen:
    options = {
        "--config": json.dumps(whole_experiment(files.raw)),
        "--execution": json.dumps({"critics": {"value": execution}}),
        "--tag": "value",
        "--episodes-dir": files.episodes,
        "--frames-dir": files.frames,
        "--state-dir": folder / "state",
        "--output-dir": folder / "critic",
    }
    return start(ROOT / "workflow/scripts/train_critic.py", [word for pair in options.items() for word in pair], processes)


def train_here(files: Files, folder: Path) -> Path:
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, folder / "state", folder / "critic")
    return folder


@pytest.fixture(scope="module")
def two(files, tmp_path_factory) -> Path:
    """An undisturbed run of two processes."""
    folder = tmp_path_factory.mktemp("two")
    finish(launch(files, folder, 2))
    return folder


@pytest.fixture(scope="module")
def killed(files, tmp_path_factory) -> Path:
    """What a run of two processes leaves behind that is killed between two of its states."""
    folder = tmp_path_factory.mktemp("killed")
    run = launch(files, folder, 2)
    while not list(folder.glob(f"state/*/step_{SAVED:09}/progress.json")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.005)
    os.kill(int((folder / "state/lock").read_text().split()[1]), signal.SIGKILL)
    run.communicate(timeout=120)
    assert run.returncode != 0 and not (folder / "critic/model.safetensors").exists()
    return folder


def resumed(killed: Path, folder: Path) -> Path:
    shutil.copytree(killed / "state", folder / "state")
    return folder


def assert_same(one: Path, other: Path) -> None:
    rows = [[json.loads(line) for line in (folder / "critic/metrics.jsonl").open()] for folder in (one, other)]
    for name, count in {"train/loss": STEPS, "train/grad_norm": STEPS, "eval/mae": STEPS // SAVED, "eval/loss": STEPS // SAVED}.items():
        values = [[row[name] for row in run if name in row] for run in rows]
        assert len(values[0]) == count
        np.testing.assert_allclose(values[1], values[0], rtol=2e-3)
    weights = [load_file(folder / "critic/model.safetensors") for folder in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, atol=5e-3, err_msg=name)


def test_two_processes_train_the_critic_of_one(files, two, tmp_path):
    assert_same(train_here(files, tmp_path), two)


def test_a_killed_run_goes_on_to_the_bytes_of_an_undisturbed_one(files, two, killed, tmp_path):
    output = finish(launch(files, resumed(killed, tmp_path), 2))
    assert "train_critic value: resumed at step" in output
    for name in ("model.safetensors", "metrics.jsonl", "lineage.json"):
        assert (tmp_path / "critic" / name).read_bytes() == (two / "critic" / name).read_bytes(), name


def test_its_state_goes_on_in_one_process(files, two, killed, tmp_path, capfd):
    train_here(files, resumed(killed, tmp_path))
    assert "resumed at step" in capfd.readouterr().out
    assert_same(two, tmp_path)


def test_and_in_four_that_recompute_activations(files, two, killed, tmp_path):
    output = finish(launch(files, resumed(killed, tmp_path), 4, **RECOMPUTED))
    assert "train_critic value: resumed at step" in output
    assert_same(two, tmp_path)
