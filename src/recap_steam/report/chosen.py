"""Which episodes of a dataset are shown frame by frame: a pure function of their outcomes, so that figures and videos show the same."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.label_config import DiagnosticsConfig


def choose_stage(experiment: Experiment, index: Path | str, output: Path | str) -> None:
    """Rule choose_episodes: write the indices, ascending, of the chosen episodes of the dataset with the episode index in ``index``."""
    table = pq.read_table(index, columns=["episode_index", "success"])
    chosen = table["episode_index"].to_numpy()[choose(table["success"].to_numpy(), experiment.diagnostics)]
    with atomic_output(output) as path:
        path.write_text(json.dumps(chosen.tolist()) + "\n")


def choose(success: np.ndarray, config: DiagnosticsConfig) -> np.ndarray:
    """Positions (n,), ascending, of the episodes with outcome ``success`` (E,) bool that are shown: as many successes as failures where
    there are enough, of each outcome one by chance from every of equally long stretches of the dataset."""
    rng, wanted = np.random.default_rng(config.seed), min(config.num_episodes, len(success))
    num_failures = min(int((~success).sum()), max(wanted // 2, wanted - int(success.sum())))
    counts = {True: wanted - num_failures, False: num_failures}
    stretches = [part for outcome, count in counts.items() if count for part in np.array_split(np.flatnonzero(success == outcome), count)]
    return np.sort(np.array([rng.choice(part) for part in stretches], dtype=np.int64))
