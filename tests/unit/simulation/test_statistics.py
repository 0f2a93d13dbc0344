import numpy as np
import pytest

from recap_steam.simulation.statistics import (
    mcnemar_always_valid,
    mcnemar_exact,
    paired_difference,
    successes_per_hour,
    wilson_interval,
)


def outcomes(both: int, only_first: int, only_second: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    counts = (both, only_first, only_second, neither)
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_of_newcombes_table(successes, n, low, high):
    """Newcombe 1998, Statistics in Medicine 17:857, table I, method 3."""
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_mcnemar_counts_only_discordant_pairs():
    assert mcnemar_exact(*outcomes(1, 1, 7, 12)) == pytest.approx(18 / 256)  # two-sided binomial tail of 1 in 8
    assert mcnemar_exact(*outcomes(100, 1, 7, 0)) == pytest.approx(18 / 256)
    assert mcnemar_exact(*outcomes(9, 0, 0, 4)) == 1.0


@pytest.mark.parametrize(
    ("table", "estimate", "low", "high"),
    [
        ((20, 12, 2, 16), -0.2, -0.3292, -0.0562),  # Newcombe 1998, Statistics in Medicine 17:2635, table III, method 10
        ((1, 1, 7, 12), 0.2857, 0.0256, 0.5069),  # airway hyper-responsiveness, Fagerland et al. 2014
    ],
)
def test_paired_difference_of_published_examples(table, estimate, low, high):
    assert paired_difference(*outcomes(*table)) == pytest.approx((estimate, low, high), abs=1e-4)


def test_paired_difference_of_equal_arms_is_finite():
    first, second = outcomes(10, 0, 0, 0)
    difference = paired_difference(first, second)
    assert difference.estimate == 0 and -0.3 < difference.low < 0 < difference.high < 0.3


def test_throughput_counts_the_time_of_failures():
    assert successes_per_hour(2, num_frames=160, fps=16) == 720  # two successes in ten seconds


def test_always_valid_p_is_one_over_the_greatest_ratio_so_far():
    first, second = np.zeros(5, bool), np.ones(5, bool)
    assert mcnemar_always_valid(first, second) == pytest.approx(6 / 2**5)  # 2^5 B(6, 1), by hand
    assert mcnemar_always_valid(second, first) == pytest.approx(6 / 2**5)
    later = np.array([True, False, True])
    assert mcnemar_always_valid(np.append(first, later), np.append(second, later)) == pytest.approx(6 / 2**5)  # equal outcomes say nothing
    back = np.append(first, np.ones(4, bool)), np.append(second, np.zeros(4, bool))
    assert mcnemar_always_valid(*back) == pytest.approx(6 / 2**5)  # what was told apart once stays so
    assert mcnemar_always_valid(first, first) == 1.0


def test_looking_after_every_episode_makes_the_always_valid_p_no_smaller_than_it_says():
    """And the exact one far too small, which is why arms that may stop are not judged by it."""
    draws = np.random.default_rng(0).random((400, 2, 100)) < 0.5
    assert np.mean([mcnemar_always_valid(*arms) < 0.05 for arms in draws]) <= 0.05
    looked = [min(mcnemar_exact(first[:n], second[:n]) for n in range(10, 101, 10)) < 0.05 for first, second in draws[:200]]
    assert np.mean(looked) > 0.08
