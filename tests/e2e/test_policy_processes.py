"""The policy's script in real processes: one and two of them train the same policy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from recap_steam.policy.folder import load_policy
from recap_steam.schema import with_defaults
from tests.unit.training.test_policy import LENGTHS, config, files  # noqa: F401  (files is a fixture)

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/train_policy.py"


def train(root: Path, output: Path, processes: int) -> Path:
    slice_ = config()
    slice_["policies"]["wide"]["eval_datasets"] = ["held_out"]
    for name in LENGTHS:
        slice_["datasets"][name]["path"] = str(root / "data" / name)
    arguments = {
        "--config": json.dumps(with_defaults(slice_)),
        "--execution": json.dumps({"policies": {"wide": {"gradient_checkpointing": True}}}),
        "--tag": "wide",
        "--episodes-dir": root / "episodes",
        "--frames-dir": root / "frames",
        "--norm-stats": root / "norm_stats/wide.json",
        "--state-dir": output / "state",
        "--output-dir": output / "policy",
    }
    launch = [sys.executable, "-m", "recap_steam.launch", "--standalone", "--nproc-per-node", str(processes), str(SCRIPT)]
    command = launch + [str(part) for pair in arguments.items() for part in pair]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output / "policy"


def test_one_and_two_processes_train_the_same_policy(files, tmp_path):  # noqa: F811
    """Of robots with one and two cameras, with recomputed activations, measured on held-out frames."""
    one, two = (train(files, tmp_path / str(processes), processes) for processes in (1, 2))
    for a, b in zip(*([json.loads(line) for line in (folder / "metrics.jsonl").open()] for folder in (one, two)), strict=True):
        assert a.keys() == b.keys()
        values = [np.array(list(row.values()), float) for row in (a, b)]  # None, of a branch without samples, becomes NaN
        np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-5)
    weights = [load_policy(folder).policy.state_dict() for folder in (one, two)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-3, rtol=1e-3, msg=name)
