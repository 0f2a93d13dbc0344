"""The critic in two sharded processes is the critic in one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from recap_steam.schema import with_defaults
from recap_steam.training.critic_stage import train_critic_stage
from tests.unit.critics.experiment import make

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/train_critic.py"


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_train_the_critic_that_one_trains(tmp_path):
    files = make(tmp_path).with_two_cameras("rollouts", micro_batch_size=4, eval={"max_samples": 1})  # defect 27: fewer than processes
    one, two = tmp_path / "one", tmp_path / "two"
    arguments = {
        "--config": json.dumps(with_defaults(files.raw)),
        "--execution": "{}",
        "--tag": "value",
        "--episodes-dir": files.episodes,
        "--frames-dir": files.frames,
        "--state-dir": tmp_path / "state2",
        "--output-dir": two,
    }
    launcher = [sys.executable, "-m", "recap_steam.launch", "--standalone", "--nproc-per-node", "2", SCRIPT]
    words = [str(word) for word in (*launcher, *(word for pair in arguments.items() for word in pair))]
    done = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, tmp_path / "state1", one)
    rows = metrics(one), metrics(two)
    for name in ("train/loss", "train/grad_norm", "eval/mae", "eval/loss"):
        values = [[row[name] for row in run if name in row] for run in rows]
        assert len(values[0]) == (2 if name.startswith("eval") else 6)
        np.testing.assert_allclose(values[0], values[1], rtol=1e-3)
    weights = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(tensor, weights[1][name], atol=5e-3, err_msg=name)
