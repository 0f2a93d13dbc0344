"""From a trained ensemble to labels: what the score pass writes is what the label stages need."""

import dataclasses

import numpy as np
import pytest

from recap_steam.critics.score_pass import scores_stage
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.sidecar import read_sidecar

NAME = "rollouts"  # of 12, 7 and 12 frames


def test_scores_of_an_ensemble_become_labels(files, ensemble_dir, tmp_path):
    labels = {"critic": "progress", "datasets": [NAME], "label_mode": "quantile", "rollout_quantile": 0.25}
    run = files.with_progress()
    datasets = {**run.raw["datasets"], NAME: {**run.raw["datasets"][NAME], "sidecar_root": str(tmp_path)}}
    run = dataclasses.replace(run, raw={**run.raw, "datasets": datasets, "advantages": {"best25": labels}})
    experiment, index = run.experiment, run.episodes / f"{NAME}.parquet"
    scores, output, threshold = run.sidecar(NAME, "scores_progress"), run.sidecar(NAME, "advantages_best25"), tmp_path / "best25.yaml"
    scores_stage(experiment, NAME, "progress", ensemble_dir, index, run.frame_cache(NAME), tmp_path / "state", scores)
    threshold_stage(experiment, "best25", ensemble_dir, run.episodes, threshold)
    advantages_stage(experiment, NAME, "best25", ensemble_dir, index, threshold, output)
    episodes = load_episodes(index, open_dataset(NAME, experiment.datasets[NAME].path))
    columns, fragment = read_sidecar(output, "advantages", episodes, tag="best25").columns, read_fragment(threshold)
    assert (fragment["k"], fragment["num_bins"], fragment["ensemble_size"], fragment["length_scale"]) == (2, 2, 2, None)
    np.testing.assert_array_equal(columns["advantage_continuous"], columns["member_values"].min(1))
    assert 0 < columns["advantage"].sum() <= 8  # a quarter of 31 frames, less the ties at the ends of episodes
    run = run.with_progress(k=3)
    with pytest.raises(UserError, match=r"scores_progress\.parquet: parameters\.k is 2, needed is 3"):
        threshold_stage(run.experiment, "best25", ensemble_dir, run.episodes, threshold)
