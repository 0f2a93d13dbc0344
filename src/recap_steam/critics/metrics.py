"""How good a value critic is on held-out frames, beside what a table without eyes reaches. NumPy and SciPy only.

Names: ``loss`` cross-entropy in nats; ``mae`` of the expected value, on the critic's scale; ``cat_acc_best`` and ``cat_acc_neighbor``
as RLinf's: the most likely atom is the heavier one, or any, of the target's two-hot atoms; ``spearman`` rank correlation with ties
averaged, over all frames at once (NaN where either side is constant).
"""

import dataclasses

import numpy as np
from scipy.stats import spearmanr

from recap_steam.critics.value_head import Support

TIME_BINS = 50


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a critic says about n frames, all (n,): expected value, most likely atom, cross-entropy of the frame's target."""

    value: np.ndarray
    best_bin: np.ndarray
    loss: np.ndarray


def value_metrics(targets: np.ndarray, predictions: Predictions, support: Support) -> dict[str, float]:
    """Metrics of ``predictions`` against normalised returns ``targets`` (n,)."""
    lower, weight = support.two_hot(targets)
    heavier = lower + (weight > 0.5)
    near = ((predictions.best_bin == lower) & (weight < 1)) | ((predictions.best_bin == lower + 1) & (weight > 0))
    return {
        "loss": float(predictions.loss.mean()),
        "mae": float(np.abs(predictions.value - targets).mean()),
        "cat_acc_best": float((predictions.best_bin == heavier).mean()),
        "cat_acc_neighbor": float(near.mean()),
        "spearman": spearman(targets, predictions.value),
    }


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation with ties averaged; NaN where one side is constant or there are fewer than two frames."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


class TimeTable:
    """A critic without eyes: the distribution of training targets in each bin of ``frame_index``. One bin: the constant baseline.

    Args:
        targets: (n,) normalised returns of the training frames.
        frame_index: (n,) of the same frames.
        num_bins: equal bins of time up to the longest training episode; later frames count to the last bin.
        support: of the critic that it is compared with.
    """

    def __init__(self, targets: np.ndarray, frame_index: np.ndarray, num_bins: int, support: Support):
        self._longest, self._num_bins = int(frame_index.max()) + 1, num_bins
        time = self._bin(frame_index)
        lower, weight = support.two_hot(targets)
        cells = time * support.num_bins + lower
        size = num_bins * support.num_bins
        mass = np.bincount(cells, 1 - weight, size) + np.bincount(cells + 1, weight, size + 1)[:size]
        mass = mass.reshape(num_bins, support.num_bins)
        mass[mass.sum(1) == 0] = mass.sum(0)  # no training frame at that time: the overall distribution
        self._support = support
        self._value = mass @ support.atoms() / mass.sum(1)
        self._best_bin = mass.argmax(1)
        smooth = mass + 1 / support.num_bins  # one more frame, spread evenly, so that no target is impossible
        self._log_p = np.log(smooth / smooth.sum(1, keepdims=True))

    def predict(self, targets: np.ndarray, frame_index: np.ndarray) -> Predictions:
        """Predict the frames at ``frame_index`` (n,); ``targets`` (n,) are read for the loss only."""
        time = self._bin(frame_index)
        lower, weight = self._support.two_hot(targets)
        loss = -((1 - weight) * self._log_p[time, lower] + weight * self._log_p[time, lower + 1])
        return Predictions(self._value[time], self._best_bin[time], loss)

    def _bin(self, frame_index: np.ndarray) -> np.ndarray:
        return np.minimum(frame_index * self._num_bins // self._longest, self._num_bins - 1)
