"""The datasets of a progress critic, concatenated: host batches of pairs with their stride bins, and what is known of held-out pairs."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from recap_steam.critics.frames import CriticFrames
from recap_steam.critics.pairs import Pairs, PairSamples
from recap_steam.critics.progress_metrics import JudgedPairs
from recap_steam.dataset.episodes import Episodes
from recap_steam.training.critic_data import image_batch, token_batch
from recap_steam.training.order import locate, spread


@dataclasses.dataclass(frozen=True)
class PairedFrames:
    """One dataset: its frames, its episodes, and the pairs of those that are used. ``counted`` (E,) bool: see ``JudgedPairs``."""

    frames: CriticFrames
    episodes: Episodes
    pairs: PairSamples
    counted: np.ndarray


class PairMixture:
    """Concatenated datasets; a sample is a position in the concatenation of their pairs."""

    def __init__(self, parts: list[PairedFrames]):
        self.parts = parts
        self.frames = [part.frames for part in parts]
        self.lengths = [len(part.pairs) for part in parts]
        self._num_frames = [part.episodes.num_frames for part in parts]
        self._first_frames = np.cumsum(self._num_frames) - self._num_frames

    def spread(self, count: int) -> np.ndarray:
        """About ``count`` samples, ascending: anchors spread evenly over all, each in both directions."""
        anchors = spread([length // 2 for length in self.lengths], max(1, count // 2))
        return np.stack([2 * anchors, 2 * anchors + 1], 1).ravel()

    def batch(self, samples: np.ndarray, rngs: list[np.random.Generator], share_frames: bool) -> dict[str, Tensor]:
        """Images and prompts of the pairs ``samples`` (p,), see ``critics.frames``, and by pair, all (p,) int64: the places of ``first``
        and ``second`` frame among the batch's frames, of the ``prompt`` among its prompts, and the stride's ``bin``.

        ``rngs`` draw the strides. With ``share_frames`` a frame of several pairs is in the batch once; without, the batch holds first all
        first frames, then all second ones.
        """
        source, pairs = self.draw(samples, rngs)
        ids = (self._first_frames[source] + [pairs.first, pairs.second]).ravel()
        ids, places = np.unique(ids, return_inverse=True) if share_frames else (ids, np.arange(len(ids)))
        first, second = np.split(places, 2)
        _, example, prompt = np.unique(self._prompt_keys(source, pairs.anchor), axis=0, return_index=True, return_inverse=True)
        by_pair = {"first": first, "second": second, "prompt": prompt.ravel(), "bin": pairs.bin}
        images = image_batch(self.frames, *locate(self._num_frames, ids))
        tokens = token_batch(self.frames, source[example], pairs.anchor[example])
        return images | tokens | {name: torch.from_numpy(array) for name, array in by_pair.items()}

    def fixed_batch(self, samples: np.ndarray) -> dict[str, Tensor]:
        """Host batch of ``samples`` (p,) whose strides never change."""
        return self.batch(samples, fixed_rngs(samples), share_frames=True)

    def judged(self, samples: np.ndarray) -> JudgedPairs:
        """What is true of the pairs of ``fixed_batch``."""
        source, pairs = self.draw(samples, fixed_rngs(samples))
        success, counted = np.empty((2, len(samples)), bool)
        for index, part in enumerate(self.parts):
            hit = source == index
            episode = np.searchsorted(part.episodes.offsets, pairs.anchor[hit], "right") - 1
            success[hit], counted[hit] = part.episodes.success[episode], part.counted[episode]
        return JudgedPairs(pairs.bin, success, counted)

    def draw(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> tuple[np.ndarray, Pairs]:
        """Dataset of each sample, (p,) int64, and the pairs, whose rows count within their datasets."""
        source, numbers = locate(self.lengths, samples)
        columns = np.empty((len(dataclasses.fields(Pairs)), len(samples)), np.int64)
        for index in np.unique(source):
            hit = np.flatnonzero(source == index)
            found = self.parts[index].pairs.draw(numbers[hit], [rngs[at] for at in hit])
            columns[:, hit] = [getattr(found, field.name) for field in dataclasses.fields(Pairs)]
        return source, Pairs(*columns)

    def _prompt_keys(self, source: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(p, 2) int64: dataset and task code of each frame."""
        codes = [self.frames[index].prompt_codes[row] for index, row in zip(source, rows, strict=True)]
        return np.stack([source, codes], 1)


def fixed_rngs(samples: np.ndarray) -> list[np.random.Generator]:
    return [np.random.default_rng(int(sample)) for sample in samples]
