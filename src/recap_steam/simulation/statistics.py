"""Statistics of success rates: intervals, paired tests and throughput. Pure functions of counts and outcomes."""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln
from scipy.stats import binomtest


class Difference(NamedTuple):
    """A difference of two success rates with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of the rate ``successes / n`` (Wilson 1927); stays within [0, 1] and is useful at 0 and n successes."""
    low, high = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return float(low), float(high)


def mcnemar_exact(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided exact McNemar p-value of outcomes (n,) bool of two arms on the same initial states.

    If neither arm is better, which of the two alone solved a state is a fair coin flip; states that both or neither solved say nothing.
    """
    only_first, only_second = int(np.sum(first & ~second)), int(np.sum(~first & second))
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def mcnemar_always_valid(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided p-value of outcomes (n,) bool of two arms on the same initial states, in the order of their episodes, that stays valid
    however often it was looked at before, and whenever one stopped.

    Of d states that one arm alone solved, the second solved k. If neither arm is better these are fair coin flips, so the ratio of their
    likelihood under all coins alike (a uniform prior) to that under a fair one, E = 2^d B(k + 1, d - k + 1), is a martingale that starts
    at 1; it ever reaches 1 / p with probability at most p (Ville's inequality). The p-value is 1 over the greatest E so far. The price
    is power: at a fixed number of episodes the exact test finds smaller differences.

    Source: Robbins 1970, Annals of Mathematical Statistics 41:1397; Ramdas et al. 2023, Statistical Science 38:576.
    """
    wins = np.cumsum((second & ~first)[first != second])
    if not len(wins):
        return 1.0
    flips = np.arange(1, len(wins) + 1)
    log_ratio = flips * np.log(2) + betaln(wins + 1, flips - wins + 1)
    return float(min(1.0, np.exp(-log_ratio.max())))


def paired_difference(first: np.ndarray, second: np.ndarray, confidence: float = 0.95) -> Difference:
    """Success rate of ``second`` minus that of ``first`` (n,) bool on the same initial states, with Newcombe's paired interval.

    Source: Newcombe 1998, Statistics in Medicine 17:2635, method 10: the Wilson intervals of the two rates, combined by their correlation.
    """
    n = len(first)
    p1, p2 = float(np.mean(first)), float(np.mean(second))
    low1, high1 = wilson_interval(int(np.sum(first)), n, confidence)
    low2, high2 = wilson_interval(int(np.sum(second)), n, confidence)
    phi = _phi(first, second)
    below = np.sqrt((p2 - low2) ** 2 - 2 * phi * (p2 - low2) * (high1 - p1) + (high1 - p1) ** 2)
    above = np.sqrt((high2 - p2) ** 2 - 2 * phi * (high2 - p2) * (p1 - low1) + (p1 - low1) ** 2)
    return Difference(p2 - p1, p2 - p1 - float(below), p2 - p1 + float(above))


def successes_per_hour(successes: int, num_frames: int, fps: float) -> float:
    """Throughput: successes per hour of simulated time over ``num_frames`` frames of all episodes; failures cost their whole length."""
    return 3600 * successes * fps / num_frames


def _phi(first: np.ndarray, second: np.ndarray) -> float:
    """Phi correlation of paired outcomes with Newcombe's continuity correction (positive correlations shrink by n/2 in the numerator)."""
    both, neither = np.sum(first & second), np.sum(~first & ~second)
    only_first, only_second = np.sum(first & ~second), np.sum(~first & second)
    margins = np.sum(first) * np.sum(~first) * np.sum(second) * np.sum(~second)
    covariance = float(both * neither - only_first * only_second)
    if covariance > 0:
        covariance = max(covariance - len(first) / 2, 0.0)
    return covariance / float(np.sqrt(margins)) if margins else 0.0
