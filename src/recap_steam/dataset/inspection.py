"""A look at a dataset before anything is computed: what is in it, what deserves a look, and what has to be repaired."""

import dataclasses

import numpy as np

from recap_steam.config import DatasetConfig
from recap_steam.dataset.columns import some
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.indexing import index_dataset
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.dataset.video import require_videos
from recap_steam.errors import UserError


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One dataset. ``dataset`` and ``episodes`` are None where a defect hides them.

    Attributes:
        notes: what is accepted though it deserves a look.
        defects: what a stage will refuse, as it will say it; with the place and the remedy.
        without_video: cameras of which video files are missing.
    """

    name: str
    config: DatasetConfig
    dataset: Dataset | None
    episodes: Episodes | None
    notes: list[str]
    defects: list[str]
    without_video: list[str]


def inspect_dataset(name: str, config: DatasetConfig) -> Inspection:
    """Read all but the images of a dataset; a defect ends only what cannot be known because of it."""
    dataset, episodes, notes, defects, without_video = None, None, [], [], []
    try:
        dataset = open_dataset(name, config.path)
        episodes, notes = index_dataset(dataset, config.type)
    except UserError as error:
        defects.append(str(error))
    if episodes is not None:
        notes = [*notes, *_gaps(episodes)]
        for camera in (camera for camera in dataset.cameras if dataset.camera_dtype(camera) == "video"):
            try:
                require_videos(dataset, episodes, [camera])
            except UserError as error:
                defects.append(str(error))
                without_video.append(camera)
    return Inspection(name, config, dataset, episodes, notes, defects, without_video)


def _gaps(episodes: Episodes) -> list[str]:
    """Indices that are left out between the first and the last episode: allowed, but often a deletion by hand."""
    index = episodes.episode_index
    absent = np.setdiff1d(np.arange(index[0], index[-1] + 1), index)
    if not len(absent):
        return []
    return [f"{len(absent)} episode indices between {index[0]} and {index[-1]} are not used: {some(absent.tolist())}"]
