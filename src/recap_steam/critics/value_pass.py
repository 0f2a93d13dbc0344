"""The value pass: what a trained critic says about every frame of a dataset, written as a sidecar.

Episodes are walked in order, in groups of some thousand frames. Processes share the groups, and a finished group is kept in the state
folder, so a job that was killed goes on with the others. A group is always cut into the same batches, so the result does not depend on
the number of processes, to the byte.
"""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import torch

from recap_steam import devices
from recap_steam.background import ahead
from recap_steam.config import Experiment, camera_keys
from recap_steam.critics.folder import CriticCard, SavedCritic, load_critic
from recap_steam.critics.frames import CriticFrames, model_inputs
from recap_steam.critics.value_head import describe
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.frames import FrameCache, progress_bar
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.labels.inputs import critic_digest
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file, digest_json
from recap_steam.sidecar import write_sidecar

GROUP_FRAMES = 2048  # a group ends with the episode that reaches this many frames
BATCH_FRAMES = 64
PREFETCHED_BATCHES = 2
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
        critic, inputs = open_critic(tag, Path(critic_dir))
        keys = known_cameras(experiment, dataset, critic.card)
        frames = critic_frames(critic, episodes, frames_path, keys)
        inputs["frames"] = frames.cache.digest
        lineage = Lineage("compute_values", tag, episodes.fingerprint, {"cameras": keys}, inputs, {}, code_digest(__name__))
        with devices.exclusive(state_dir):
            groups = GroupFolder(Path(state_dir) / digest_json(dataclasses.asdict(lineage))[:16], episodes)
            _compute_missing(critic, frames, groups)
            devices.on_main(lambda: _assemble(groups, episodes, lineage, Path(output)))


def open_critic(tag: str, folder: Path) -> tuple[SavedCritic, dict[str, str]]:
    """Load a critic folder and check that its files belong together. Returns it and its digests for a lineage record."""
    path, remedy = folder / "lineage.json", f"train the critic again (rule train_critic, tag {tag})"
    inputs = {"critic": critic_digest(folder)}
    lineage = Lineage.from_json(path.read_text(), path=path)
    digests = {"model.safetensors": digest_file(folder / "model.safetensors")}
    check_lineage(lineage, path=path, remedy=remedy, stage="train_critic", tag=tag, statistics={"digests": digests})
    return load_critic(folder), inputs


def known_cameras(experiment: Experiment, dataset: str, card: CriticCard) -> dict[str, str | None]:
    """The dataset's key of each of the critic's cameras.

    Raises:
        UserError: a camera is not mapped, or the critic learned this dataset from other keys.
    """
    keys = camera_keys(experiment, dataset, card.cameras)
    learned = card.camera_maps.get(dataset, keys)
    for camera, key in keys.items():
        if learned[camera] != key:
            raise UserError(
                f"config: dataset '{dataset}': camera '{camera}' is {key or 'absent'}, but the critic learned it from "
                f"{learned[camera] or 'no image'}; restore its camera_map or train the critic again"
            )
    return keys


def critic_frames(critic: SavedCritic, episodes: Episodes, frames_path: Path | str, keys: dict[str, str | None]) -> CriticFrames:
    """A dataset as this critic sees it; ``keys`` of ``known_cameras``."""
    card = critic.card
    cache = FrameCache.open(frames_path, episodes, image_size=card.image_size)
    return CriticFrames(cache, list(keys.values()), card.prompts(episodes.tasks, critic.tokenizer), episodes.prompt_codes())


class GroupFolder:
    """Finished groups of one pass, each a file with the pass's columns; a group is a range of rows made of whole episodes."""

    def __init__(self, folder: Path, episodes: Episodes):
        self.folder = folder
        self.rows = episode_groups(episodes.offsets)

    def path(self, group: int) -> Path:
        return self.folder / f"group_{group:06d}.npz"

    def missing(self) -> list[int]:
        return [group for group in range(len(self.rows)) if not self.path(group).is_file()]


def episode_groups(offsets: np.ndarray) -> list[range]:
    """Cut episodes, given by their first rows ``offsets`` (E+1,), into groups of at least GROUP_FRAMES rows (but the last)."""
    groups, start = [], 0
    for stop in offsets[1:].tolist():
        if stop - start >= GROUP_FRAMES or stop == offsets[-1]:
            groups.append(range(start, stop))
            start = stop
    return groups


def _compute_missing(critic: SavedCritic, frames: CriticFrames, groups: GroupFolder) -> None:
    critic.model.to(devices.device())
    missing = devices.broadcast(groups.missing())
    mine = missing[devices.rank() :: devices.world_size()]
    total = sum(len(groups.rows[group]) for group in mine)
    with progress_bar(total, "values", disable=not devices.is_main()) as bar:
        for group in mine:
            columns = evaluate_rows(critic, frames, groups.rows[group])
            with atomic_output(groups.path(group)) as temporary, open(temporary, "wb") as file:
                np.savez(file, **columns)
            bar.update(len(groups.rows[group]))
    devices.gather(None)  # every process is done


def evaluate_rows(critic: SavedCritic, frames: CriticFrames, rows: range) -> dict[str, np.ndarray]:
    """The critic's columns for consecutive rows, each (n,) float32."""
    starts = range(rows.start, rows.stop, BATCH_FRAMES)
    batches = (frames.batch(np.arange(start, min(start + BATCH_FRAMES, rows.stop))) for start in starts)
    parts = []
    for batch in ahead(batches, PREFETCHED_BATCHES):
        batch = {name: tensor.to(devices.device()) for name, tensor in batch.items()}
        with torch.no_grad(), devices.autocast():
            parts.append(describe(critic.model(*model_inputs(batch)), critic.card.architecture.support))
    return {column: torch.cat([getattr(part, name) for part in parts]).cpu().numpy() for column, name in COLUMNS.items()}


def _assemble(groups: GroupFolder, episodes: Episodes, lineage: Lineage, output: Path) -> None:
    parts = [np.load(groups.path(group)) for group in range(len(groups.rows))]
    columns = {column: np.concatenate([part[column] for part in parts]) for column in COLUMNS}
    values = columns["value"].astype(np.float64)
    statistics = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    lineage = dataclasses.replace(lineage, statistics={name: float(number) for name, number in statistics.items()})
    write_sidecar(output, "values", columns, episodes, lineage)
    shutil.rmtree(groups.folder)
