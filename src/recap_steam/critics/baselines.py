"""Critics without eyes, for comparison: the distribution of training returns, over all frames or by time. NumPy only."""

import numpy as np

from recap_steam.critics.metrics import Predictions
from recap_steam.critics.value_head import Support

BASELINES = {"baseline_constant": 1, "baseline_time": 50}  # bins of time


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
