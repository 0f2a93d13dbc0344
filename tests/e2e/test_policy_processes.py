"""The policy's script in real processes: two and four of them train the policy of one.

The robots have one and two cameras, activations are recomputed, and the policy is measured on held-out frames.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from recap_steam.config import load_experiment, whole_experiment
from recap_steam.policy.folder import load_policy
from tests.e2e.launching import ROOT, finish, start
from tests.unit.training.test_policy import LENGTHS, config, files, run  # noqa: F401  (files is a fixture)


def experiment(root: Path) -> dict:
    slice_ = config()
    slice_["policies"]["wide"]["eval_datasets"] = ["held_out"]
    for name in LENGTHS:
        slice_["datasets"][name]["path"] = str(root / "data" / name)
    return slice_


def launch(root: Path, output: Path, processes: int) -> Path:
    options = {
        "--config": json.dumps(whole_experiment(experiment(root))),
        "--execution": json.dumps({"policies": {"wide": {"gradient_checkpointing": True}}}),
        "--tag": "wide",
        "--episodes-dir": root / "episodes",
        "--frames-dir": root / "frames",
        "--norm-stats": root / "norm_stats/wide.json",
        "--state-dir": output / "state",
        "--output-dir": output / "wide",
    }
    finish(start(ROOT / "workflow/scripts/train_policy.py", [word for pair in options.items() for word in pair], processes))
    return output / "wide"


@pytest.fixture(scope="module")
def one(files, tmp_path_factory) -> Path:  # noqa: F811
    return run(files, tmp_path_factory.mktemp("one"), "wide", experiment=load_experiment(experiment(files)))


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_train_the_policy_of_one(files, one, tmp_path, processes):  # noqa: F811
    several = launch(files, tmp_path, processes)
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").open()] for folder in (one, several)]
    for a, b in zip(*rows, strict=True):
        assert a.keys() == b.keys()
        values = [np.array(list(row.values()), float) for row in (a, b)]  # None, of a branch without samples, becomes NaN
        np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-5)
    weights = [load_policy(folder).policy.state_dict() for folder in (one, several)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-3, rtol=1e-3, msg=name)
