"""The value pass: what a trained critic says about every frame of a dataset, written as a sidecar."""

from pathlib import Path

import numpy as np
import torch

from recap_steam import devices, rates
from recap_steam.background import ahead
from recap_steam.config import Experiment
from recap_steam.critics.folder import SavedCritic, load_critic
from recap_steam.critics.frames import CriticFrames, model_inputs
from recap_steam.critics.group_pass import BATCH_FRAMES, PREFETCHED_BATCHES, Pass, check_folder, critic_frames, known_cameras
from recap_steam.critics.value_head import describe
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.inputs import critic_digest
from recap_steam.lineage import Lineage, code_digest

COLUMNS = {"value": "value", "value_std": "std", "value_entropy": "entropy"}  # column: attribute of Distribution


def values_stage(
    experiment: Experiment,
    dataset: str,
    tag: str,
    critic_dir: Path | str,
    episodes_path: Path | str,
    frames_path: Path | str,
    state_dir: Path | str,
    output: Path | str,
) -> None:
    """Rule compute_values: write the sidecar ``values_{tag}.parquet`` of one dataset. Runs under torchrun.

    Raises:
        UserError: the critic folder is incomplete or another critic's, its cameras are not the dataset's, the frame cache is of something
            else, or another job is at it.
    """
    with devices.distributed():
        episodes = load_episodes(episodes_path, open_dataset(dataset, experiment.datasets[dataset].path))
        folder = Path(critic_dir)
        inputs = {"critic": critic_digest(folder)}
        check_folder(folder, "train_critic", tag)
        critic = load_critic(folder)
        keys = known_cameras(experiment, dataset, critic.card)
        frames = critic_frames(critic, episodes, frames_path, keys)
        inputs["frames"] = frames.cache.digest
        lineage = Lineage("compute_values", tag, episodes.fingerprint, {"cameras": keys}, inputs, {}, code_digest(__name__))
        values = Pass(
            kind="values",
            summary="value",
            evaluate=lambda rows: evaluate_rows(critic, frames, rows),
            work=lambda: rates.pass_work(rates.trained_model(folder), len(critic.card.cameras)),
        )
        values.run(critic.model, episodes, lineage, state_dir, output)


def evaluate_rows(critic: SavedCritic, frames: CriticFrames, rows: range) -> dict[str, np.ndarray]:
    """The critic's columns for consecutive rows, each (n,) float32."""
    starts = range(rows.start, rows.stop, BATCH_FRAMES)
    batches = (frames.batch(np.arange(start, min(start + BATCH_FRAMES, rows.stop))) for start in starts)
    parts = []
    for batch in ahead(batches, PREFETCHED_BATCHES):
        with torch.no_grad(), devices.autocast():
            parts.append(describe(critic.model(*model_inputs(devices.to_device(batch))), critic.card.architecture.support))
    return {column: torch.cat([getattr(part, name) for part in parts]).cpu().numpy() for column, name in COLUMNS.items()}
