"""Pairs of frames of one episode, the samples of a progress critic: which there are, how far apart they lie, and what that counts as.

Anchors are all frames of an eligible episode but its last. Sample 2j is anchor j with a later frame (forward), sample 2j + 1 the same
anchor with a later frame put first (reversed), so that both directions are equally frequent. NumPy only.
"""

import dataclasses

import numpy as np

from recap_steam.dataset.episodes import Episodes
from recap_steam.labels.stride_bins import stride_bins

BINARY = 2  # bins: forward or reversed, at one fixed stride


@dataclasses.dataclass(frozen=True)
class LengthScale:
    """Stretches the strides of episodes shorter than ``max_length`` frames, the ``percentile`` of training lengths: a stride counts by
    the share of its episode that it covers, so a quick episode progresses faster."""

    percentile: float
    max_length: float

    def factors(self, lengths: np.ndarray) -> np.ndarray:
        """(n,) float64, at least 1, of episodes of ``lengths`` (n,) frames."""
        return np.maximum(1.0, self.max_length / lengths)


def fit_length_scale(lengths: list[np.ndarray], percentile: float) -> LengthScale:
    """The scale of training datasets, given the lengths of the eligible episodes of each; the percentile is of all together."""
    return LengthScale(percentile, max(1.0, float(np.percentile(np.concatenate(lengths), percentile))))


def eligible_episodes(episodes: Episodes, min_episode_length: int, only_success: bool) -> np.ndarray:
    """(E,) bool: episodes that are long enough and, with ``only_success``, successes. The outcome is the index's, read strictly."""
    return (episodes.length >= min_episode_length) & (episodes.success | (not only_success))


@dataclasses.dataclass(frozen=True)
class Pairs:
    """n pairs, all (n,) int64: ``anchor`` row, which says the prompt; rows of the ``first`` and ``second`` image; ``bin`` of the stride."""

    anchor: np.ndarray
    first: np.ndarray
    second: np.ndarray
    bin: np.ndarray


class PairSamples:
    """The pairs of one dataset by sample number.

    Args:
        episodes: of the dataset.
        eligible: (E,) bool, see ``eligible_episodes``.
        k: longest stride, in frames.
        num_bins: of strides; 2 pairs every anchor with the frame ``k`` later (or the episode's last), more draw the stride.
        length_scale: None counts frames.
    """

    def __init__(self, episodes: Episodes, eligible: np.ndarray, k: int, num_bins: int, length_scale: LengthScale | None):
        self.k, self.num_bins, self.length_scale = k, num_bins, length_scale
        self._length, self._start = episodes.length[eligible], episodes.offsets[:-1][eligible]
        self._anchors = np.concatenate([[0], np.cumsum(self._length - 1)])  # before each episode

    def __len__(self) -> int:
        return 2 * int(self._anchors[-1])

    def draw(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> Pairs:
        """The pairs of ``samples`` (n,); with more than two bins, ``rngs[i]`` draws the stride of sample i evenly from those that stay
        within k frames and within the episode."""
        anchor, is_reversed = np.divmod(samples, 2)
        episode = np.searchsorted(self._anchors, anchor, "right") - 1
        frame, length = anchor - self._anchors[episode], self._length[episode]
        stride = np.minimum(self.k, length - 1 - frame)
        if self.num_bins > BINARY:
            stride = np.array([rng.integers(1, most, endpoint=True) for rng, most in zip(rngs, stride, strict=True)], np.int64)
        near = self._start[episode] + frame
        first, second = np.where(is_reversed, [near + stride, near], [near, near + stride])
        signed = np.where(is_reversed, -stride, stride)
        if self.length_scale is not None:
            signed = scaled_strides(signed, self.length_scale.factors(length), self.k)
        return Pairs(near, first, second, stride_bins(signed, self.k, self.num_bins))


def scaled_strides(strides: np.ndarray, factors: np.ndarray, k: int) -> np.ndarray:
    """Strides (n,) times ``factors`` (n,), rounded half to even, never 0, within k; (n,) int64.

    Source: the reference's STEAM pair dataset (RLinf).
    """
    scaled = np.rint(strides * factors).astype(np.int64)
    return np.clip(np.where(scaled == 0, np.sign(strides), scaled), -k, k)


def look_ahead(lengths: np.ndarray, k: int, length_scale: LengthScale | None) -> np.ndarray:
    """Frames that scores look ahead in episodes of ``lengths`` (n,): k, or what counts as k; 0 where none can look so far."""
    reach = np.full(len(lengths), k)
    if length_scale is not None:
        reach = np.clip(np.rint(k / length_scale.factors(lengths)), 1, k).astype(np.int64)
    return np.where(reach < lengths, reach, 0)
