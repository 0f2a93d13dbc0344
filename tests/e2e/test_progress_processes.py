"""The three scripts of an ensemble, as users start them: members in one process and in two, merged, and the scores of a dataset."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from recap_steam.config import whole_experiment
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.inputs import ensemble_digest
from recap_steam.sidecar import read_sidecar
from tests.e2e.launching import ROOT, environment, finish, start
from tests.unit.critics.experiment import Files, make

NAME, STEPS = "rollouts", 6
SCRIPTS = ROOT / "workflow/scripts"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    """Two cameras, of which the rollouts' robot lacks one; strides are drawn, images augmented, and one anchor is judged."""
    files = make(tmp_path_factory.mktemp("experiment")).with_two_cameras(NAME)
    model = {**files.with_progress().raw["critics"]["progress"]["model"], "num_bins": 4, "dropout": 0.0}
    options = {"train_on_rollouts": True, "only_success": False, "cameras": ["front", "wrist"], "eval": {"max_samples": 1}}
    return files.with_progress(**options, datasets=["demonstrations", NAME], model=model, max_steps=STEPS, micro_batch_size=2)


def member(files: Files, folder: Path, number: int, processes: int) -> Path:
    """Train one member, in a folder of its own."""
    options = {
        "--config": json.dumps(whole_experiment(files.raw)),
        "--execution": json.dumps({"critics": {"progress": {}}}),
        "--tag": "progress",
        "--member": number,
        "--episodes-dir": files.episodes,
        "--frames-dir": files.frames,
        "--state-dir": folder / "state",
        "--output-dir": folder / "member",
    }
    finish(start(SCRIPTS / "train_member.py", [word for pair in options.items() for word in pair], processes))
    return folder / "member"


def test_members_are_trained_merged_and_score(files, tmp_path):
    one, two = (member(files, tmp_path / str(processes), 0, processes) for processes in (1, 2))
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").open()] for folder in (one, two)]
    for name in ("train/loss", "train/grad_norm", "eval/loss", "eval/accuracy"):
        values = [[row[name] for row in run if name in row] for run in rows]
        np.testing.assert_allclose(values[1], values[0], rtol=2e-3)
    weights = [load_file(folder / "model.safetensors") for folder in (one, two)]
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, atol=5e-3, err_msg=name)
    other = member(files, tmp_path / "other", 1, 1)
    ensemble = tmp_path / "progress"
    command = [sys.executable, SCRIPTS / "merge_ensemble.py", "--member", one, "--member", f"{other}:0", "--output", ensemble]
    subprocess.run([str(word) for word in command], env=environment(), check=True)
    scores(files, ensemble, tmp_path)


def scores(files: Files, ensemble: Path, folder: Path) -> None:
    index = files.episodes / f"{NAME}.parquet"
    options = {
        "--config": json.dumps(whole_experiment(files.raw)),
        "--dataset": NAME,
        "--tag": "progress",
        "--critic-dir": ensemble,
        "--episodes": index,
        "--frames": files.frame_cache(NAME),
        "--state-dir": folder / "scores",
        "--output": folder / "scores.parquet",
    }
    finish(start(SCRIPTS / "compute_scores.py", [word for pair in options.items() for word in pair], 1))
    episodes = load_episodes(index, open_dataset(NAME, files.experiment.datasets[NAME].path))
    found = read_sidecar(folder / "scores.parquet", "scores", episodes, tag="progress", inputs={"critic": ensemble_digest(ensemble)})
    assert found.columns["member_values"].shape == (31, 2) and (found.columns["p_progress_variance"] > 0).any()
    assert found.lineage.parameters["cameras"]["wrist"] is None
