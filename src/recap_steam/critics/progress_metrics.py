"""How good a progress critic is on pairs whose order and stride are known. NumPy only.

Names: ``loss`` cross-entropy in nats, without smoothing; ``accuracy`` of the most likely bin; ``accuracy_neighbor`` the same up to one bin;
``signed_progress_mean`` and ``signed_progress_std`` of the score (``member_scores.signed_bins``), whose mean is 0 for a critic that treats
both directions alike; ``progress_value_mean`` mean probability of forward. A number that does not exist is NaN.
"""

import dataclasses

import numpy as np

from recap_steam.critics.member_scores import signed_bins


@dataclasses.dataclass(frozen=True)
class JudgedPairs:
    """What is true of n pairs, all (n,).

    Attributes:
        bin: int64, of the stride.
        success: bool, outcome of the pair's episode.
        counted: bool, the episode is of the kind that critics learn from, so that time is progress in it.
    """

    bin: np.ndarray
    success: np.ndarray
    counted: np.ndarray


def grouped_pair_metrics(pairs: JudgedPairs, log_p: np.ndarray) -> dict[str, float]:
    """``pair_metrics`` of the pairs that count, and of all pairs of each outcome (suffix ``/outcome=...``)."""
    metrics = pair_metrics(pairs.bin[pairs.counted], log_p[pairs.counted])
    for suffix, hit in (("outcome=success", pairs.success), ("outcome=failure", ~pairs.success)):
        metrics |= {f"{name}/{suffix}": value for name, value in pair_metrics(pairs.bin[hit], log_p[hit]).items()}
    return metrics


def pair_metrics(bins: np.ndarray, log_p: np.ndarray) -> dict[str, float]:
    """Metrics of log-probabilities ``log_p`` (n, num_bins) against true ``bins`` (n,); all NaN if n is 0."""
    num_bins = log_p.shape[1]
    p, distance = np.exp(log_p), np.abs(log_p.argmax(1) - bins)
    score = p @ signed_bins(num_bins)
    return {
        "loss": _mean(-log_p[np.arange(len(bins)), bins]),
        "accuracy": _mean(distance == 0),
        "accuracy_neighbor": _mean(distance <= 1),
        "signed_progress_mean": _mean(score),
        "signed_progress_std": float(score.std()) if len(bins) else float("nan"),
        "progress_value_mean": _mean(p[:, num_bins // 2 :].sum(1)),
    }


def majority(training_bins: np.ndarray, num_bins: int, count: int) -> np.ndarray:
    """A critic without eyes: log-probabilities (count, num_bins), all those of the bins of training pairs (n,), smoothed by one more."""
    frequency = np.bincount(training_bins, minlength=num_bins) + 1 / num_bins
    return np.tile(np.log(frequency / frequency.sum()), (count, 1))


def _mean(numbers: np.ndarray) -> float:
    return float(np.mean(numbers)) if len(numbers) else float("nan")
