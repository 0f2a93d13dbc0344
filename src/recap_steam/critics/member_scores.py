"""From the members' distributions over stride bins to one conservative score per frame: the worst of N. NumPy and SciPy only.

Names are the reference's. Its ``p_progress_...`` are not probabilities but scores of members, from -1 (back) to 1 (ahead).
"""

import numpy as np
from scipy.special import entr

LISTS = ("member_values", "member_expected_bins")  # columns with one number for each member


def signed_bins(num_bins: int) -> np.ndarray:
    """(num_bins,) float64 from -1 to 1, without 0: a bin's distance from the middle, divided by the furthest."""
    half = num_bins // 2
    bins = np.arange(num_bins)
    return np.where(bins < half, bins - half, bins - half + 1) / half


def bin_centres(k: int, num_bins: int) -> np.ndarray:
    """(num_bins,) float64: the mean stride of each bin, in frames."""
    return np.delete(np.arange(-k, k + 1), k).reshape(num_bins, -1).mean(1)


def ensemble_columns(probabilities: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Columns of the scores sidecar but ``look_ahead``: (n,) float64, those of ``LISTS`` (n, members).

    Args:
        probabilities: (members, n, num_bins) float64.
        k: longest stride, frames.

    Source: section "worst of N" of the reference's STEAM (RLinf); variances are those of the population, entropies in nats.
    """
    num_bins = probabilities.shape[-1]
    members = probabilities @ signed_bins(num_bins)  # (members, n)
    worst = probabilities[members.argmin(0), np.arange(members.shape[1])]  # (n, num_bins)
    entropies = entr(probabilities).sum(-1)
    return {
        "ensemble_signed_score": members.min(0),
        "p_progress_mean": members.mean(0),
        "p_progress_min": members.min(0),
        "p_progress_variance": members.var(0),
        "member_values": members.T,
        "expected_stride_normalized": worst @ bin_centres(k, num_bins) / k,
        "entropy_aggregated": entr(worst).sum(-1),
        "entropy_member_mean": entropies.mean(0),
        "entropy_member_variance": entropies.var(0),
        "member_expected_bins": (probabilities @ np.arange(num_bins)).T,
    }


def certainly_back(members: int, count: int, num_bins: int) -> np.ndarray:
    """Probabilities (members, count, num_bins) all in the lowest bin, which is the score -1: of frames that nothing can be said about."""
    probabilities = np.zeros((members, count, num_bins))
    probabilities[:, :, 0] = 1
    return probabilities
