"""A pass of a critic over every frame of a dataset, written as a sidecar.

Episodes are walked in order, in groups of some thousand frames. Processes share the groups, and a finished group is kept in the state
folder, so a job that was killed goes on with the others. A group is always cut into the same batches, so the result does not depend on
the number of processes, to the byte.
"""

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recap_steam import devices, rates
from recap_steam.config import Experiment, camera_keys
from recap_steam.critics.folder import Card, SavedCritic
from recap_steam.critics.frames import CriticFrames
from recap_steam.dataset.episodes import Episodes
from recap_steam.dataset.frames import FrameCache, progress_bar
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.lineage import Lineage, check_lineage, digest_file, digest_json
from recap_steam.sidecar import write_sidecar

GROUP_FRAMES = 2048  # a group ends with the episode that reaches this many frames
BATCH_FRAMES = 64
PREFETCHED_BATCHES = 2


@dataclasses.dataclass(frozen=True)
class Pass:
    """One kind of pass: of sidecar ``kind``, with the column ``summary`` described in its lineage.

    ``evaluate`` returns the columns of consecutive rows that are whole episodes, each (n,) or (n, width); it is called with the model on
    the device. ``work`` is what determines the time of a frame (``rates.pass_work``).
    """

    kind: str
    summary: str
    evaluate: Callable[[range], dict[str, np.ndarray]]
    work: Callable[[], dict[str, Any]]

    def run(self, model: nn.Module, episodes: Episodes, lineage: Lineage, state_dir: Path | str, output: Path | str) -> None:
        """Write the sidecar, going on from ``state_dir``. Called in every process.

        Raises:
            UserError: another job is at it.
        """
        with devices.exclusive(state_dir):
            groups = GroupFolder(Path(state_dir) / digest_json(dataclasses.asdict(lineage))[:16], episodes)
            model.to(devices.device())
            self._compute_missing(groups, lineage.stage)
            devices.on_main(lambda: self._assemble(groups, episodes, lineage, Path(output)))

    def _compute_missing(self, groups: "GroupFolder", stage: str) -> None:
        began = time.monotonic()
        missing = devices.broadcast(groups.missing())
        mine = missing[devices.rank() :: devices.world_size()]
        total = sum(len(groups.rows[group]) for group in mine)
        with progress_bar(total, self.kind, disable=not devices.is_main()) as bar:
            for group in mine:
                columns = self.evaluate(groups.rows[group])
                with atomic_output(groups.path(group)) as temporary, open(temporary, "wb") as file:
                    np.savez(file, **columns)
                bar.update(len(groups.rows[group]))
        devices.gather(None)  # every process is done
        if devices.is_main():
            frames, seconds = sum(len(groups.rows[group]) for group in missing), time.monotonic() - began
            rates.leave(stage, self.work, "frame", frames, seconds, devices.name(), devices.world_size())

    def _assemble(self, groups: "GroupFolder", episodes: Episodes, lineage: Lineage, output: Path) -> None:
        parts = [np.load(groups.path(group)) for group in range(len(groups.rows))]
        columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0].files}
        numbers = columns[self.summary].astype(np.float64)
        statistics = {"mean": numbers.mean(), "std": numbers.std(), "min": numbers.min(), "max": numbers.max()}
        lineage = dataclasses.replace(lineage, statistics={name: float(number) for name, number in statistics.items()})
        write_sidecar(output, self.kind, columns, episodes, lineage)
        shutil.rmtree(groups.folder)


def check_folder(folder: Path, stage: str, tag: str) -> None:
    """Raise UserError unless a critic folder was made by ``stage`` under ``tag`` and its files belong together."""
    path, remedy = folder / "lineage.json", f"make the critic again (rule {stage}, tag {tag})"
    lineage = Lineage.from_json(path.read_text(), path=path)
    check_lineage(lineage, path=path, remedy=remedy, stage=stage, tag=tag, statistics={"digests": weight_digests(folder)})


def weight_digests(folder: Path) -> dict[str, str]:
    """Digests of the files whose digests a critic's lineage record has to hold."""
    return {"model.safetensors": digest_file(folder / "model.safetensors")}


def known_cameras(experiment: Experiment, dataset: str, card: Card) -> dict[str, str | None]:
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
