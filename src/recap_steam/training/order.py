"""Samples of several datasets: their ids, their shares, and the order in which training sees them.

The order is a pure function of (seed, step), so that a resumed run neither repeats nor skips a sample. Datasets are interleaved by their
shares in a fixed pattern; within a dataset every sample is seen once before any is seen again.
"""

import numpy as np

from recap_steam.config import Experiment, TrainingConfig
from recap_steam.errors import UserError

PERIOD = 1 << 16  # positions of the interleaving pattern; shares are exact to one part in this


class DataOrder:
    """The endless sequence of samples of a mixture.

    Args:
        lengths: samples per dataset. A sample's global id counts through the concatenated datasets.
        weights: mixture share per dataset, in any scale.
        seed: of the permutations.

    Raises:
        UserError: a dataset has no samples, or a weight is not a positive number.
    """

    def __init__(self, lengths: list[int], weights: list[float], seed: int):
        if not lengths or min(lengths) < 1:
            raise UserError(f"training data: a dataset has no samples (samples per dataset: {lengths}); remove it from the list")
        if not all(np.isfinite(weights)) or min(weights) <= 0:
            raise UserError(f"training data: every dataset weight must be a positive number, not {weights}; remove datasets of weight 0")
        self.lengths = np.asarray(lengths, np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self.seed = seed
        self.quotas = _quotas(np.asarray(weights, np.float64))
        self.pattern, self.ranks = _interleave(self.quotas)
        self._permutations: dict[tuple[int, int], np.ndarray] = {}

    def batch(self, step: int, size: int) -> np.ndarray:
        """Return the global sample ids, (size,) int64, of optimiser step ``step``."""
        cycle, place = np.divmod(np.arange(step * size, (step + 1) * size), PERIOD)
        dataset = self.pattern[place]
        draw = cycle * self.quotas[dataset] + self.ranks[place]  # how often this dataset was drawn before
        epoch, index = np.divmod(draw, self.lengths[dataset])
        samples = np.empty(size, np.int64)
        for key in sorted({(int(d), int(e)) for d, e in zip(dataset, epoch, strict=True)}):  # in order, so that old permutations go
            chosen = (dataset == key[0]) & (epoch == key[1])
            samples[chosen] = self.starts[key[0]] + self._permutation(*key)[index[chosen]]
        return samples

    def _permutation(self, dataset: int, epoch: int) -> np.ndarray:
        key = (dataset, epoch)
        if key not in self._permutations:
            self._permutations.pop((dataset, epoch - 2), None)
            self._permutations[key] = np.random.default_rng([self.seed, *key]).permutation(self.lengths[dataset])
        return self._permutations[key]


def _quotas(weights: np.ndarray) -> np.ndarray:
    """Positions per dataset within one period, (D,) int64: the shares by largest remainder, at least one each."""
    exact = weights / weights.sum() * PERIOD
    quotas = np.maximum(1, np.floor(exact)).astype(np.int64)
    order = np.argsort(quotas - exact, kind="stable")
    missing = PERIOD - quotas.sum()
    if missing > 0:
        quotas[order[:missing]] += 1
    else:
        quotas[np.argmax(quotas)] += missing  # tiny shares were rounded up to one position
    return quotas


def _interleave(quotas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spread each dataset evenly over the period.

    Returns the dataset of each position and how often it occurred before within the period, both (PERIOD,) int64.
    """
    dataset = np.repeat(np.arange(len(quotas)), quotas)
    occurrence = np.arange(PERIOD) - np.repeat(np.cumsum(quotas) - quotas, quotas)
    order = np.argsort((occurrence + 0.5) / quotas[dataset], kind="stable")
    return dataset[order], occurrence[order]


def locate(lengths: list[int], samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dataset, and position within it, of global sample ids ``samples`` (n,); both (n,) int64."""
    starts = np.cumsum(lengths) - lengths
    dataset = np.searchsorted(starts, samples, side="right") - 1
    return dataset, samples - starts[dataset]


def spread(lengths: list[int], count: int) -> np.ndarray:
    """At most ``count`` samples, ascending, evenly over all: never a prefix, which would be a few episodes."""
    total = sum(lengths)
    return np.linspace(0, total - 1, min(count, total)).round().astype(np.int64)


def mixture_weights(experiment: Experiment, config: TrainingConfig, lengths: list[int]) -> list[float]:
    """Share of each training dataset, in any scale: its weight, times its samples ``lengths`` when balanced."""
    weights = [experiment.datasets[name].weight for name in config.datasets]
    return [weight * length for weight, length in zip(weights, lengths, strict=True)] if config.balance_dataset_weights else weights


def sample_rngs(seed: int, step: int, positions: range) -> list[np.random.Generator]:
    """One generator per position of the global batch: draws depend neither on the number of processes nor on the micro batch size."""
    return [np.random.default_rng([seed, step, position]) for position in positions]
