"""The datasets of a critic, concatenated: host batches of images and prompts with their targets, and what is known of held-out frames."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from recap_steam.critics.frames import CriticFrames, collate_images, collate_tokens
from recap_steam.critics.metrics import JudgedFrames
from recap_steam.critics.value_head import Support
from recap_steam.dataset.episodes import Episodes
from recap_steam.training.order import locate


@dataclasses.dataclass(frozen=True)
class LabelledFrames:
    """One dataset: its frames, their episodes and their normalised returns ``targets`` (F,) float64."""

    frames: CriticFrames
    episodes: Episodes
    targets: np.ndarray

    @property
    def frame_index(self) -> np.ndarray:
        """(F,) int64."""
        return self.episodes.frame_keys()[1]

    def judged(self, rows: np.ndarray) -> JudgedFrames:
        """What is true of ``rows`` (n,)."""
        episodes = self.episodes
        episode = np.searchsorted(episodes.offsets, rows, "right") - 1
        time = (rows - episodes.offsets[episode]) / episodes.length[episode]
        tasks = np.array(episodes.tasks, object)[self.frames.prompt_codes[rows]]
        return JudgedFrames(self.targets[rows], episodes.success[episode], tasks, time)


def image_batch(parts: list[CriticFrames], source: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
    """Host batch of the images of frames from several datasets: ``rows`` (n,) of the datasets ``source`` (n,) among ``parts``."""
    camera_mask = np.stack([part.present for part in parts])[source]
    number = np.cumsum(camera_mask).reshape(camera_mask.shape) - 1  # of each image among those that exist
    size = parts[0].cache.image_size
    images = np.empty((camera_mask.sum(), size, size, 3), np.uint8)
    for index in np.unique(source):
        hit, part = np.flatnonzero(source == index), parts[index]
        images[number[hit][:, part.present]] = part.images(rows[hit])
    return collate_images(images, camera_mask)


def token_batch(parts: list[CriticFrames], source: np.ndarray, rows: np.ndarray) -> dict[str, Tensor]:
    """Host batch of the prompts of frames; see ``image_batch``."""
    return collate_tokens([parts[index].tokens(rows[at : at + 1])[0] for at, index in enumerate(source)])


class FrameMixture:
    """Concatenated datasets; a sample is a position in the concatenation."""

    def __init__(self, parts: list[LabelledFrames], support: Support):
        self.parts, self.support = parts, support
        self.lengths = [len(part.targets) for part in parts]
        self.targets = np.concatenate([part.targets for part in parts])

    @property
    def frame_index(self) -> np.ndarray:
        """(F,) int64, of every sample."""
        return np.concatenate([part.frame_index for part in self.parts])

    def batch(self, samples: np.ndarray) -> dict[str, Tensor]:
        """Images and prompts of ``samples`` (n,), see ``critics.frames``, and their targets: ``target`` float32, and two-hot
        ``lower`` int64 and ``weight`` float32."""
        source, rows = locate(self.lengths, samples)
        frames = [part.frames for part in self.parts]
        return image_batch(frames, source, rows) | token_batch(frames, source, rows) | self._labels(samples)

    def judged(self, samples: np.ndarray) -> JudgedFrames:
        """What is true of ``samples`` (n,), in ascending order."""
        source, rows = locate(self.lengths, samples)
        parts = [part.judged(rows[source == index]) for index, part in enumerate(self.parts)]
        names = [field.name for field in dataclasses.fields(JudgedFrames)]
        return JudgedFrames(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def _labels(self, samples: np.ndarray) -> dict[str, Tensor]:
        targets = self.targets[samples]
        lower, weight = self.support.two_hot(targets)
        labels = {"lower": lower, "weight": weight.astype(np.float32), "target": targets.astype(np.float32)}
        return {name: torch.from_numpy(array) for name, array in labels.items()}
