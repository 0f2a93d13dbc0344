"""Metrics of pairs, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from recap_steam.critics.progress_metrics import JudgedPairs, grouped_pair_metrics, majority, pair_metrics

P = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.1, 0.4], [0.1, 0.1, 0.1, 0.7]])
BINS = np.array([0, 2, 1, 3])


def test_each_metric():
    found = pair_metrics(BINS, np.log(P))
    assert found["loss"] == pytest.approx(-np.mean(np.log([0.7, 0.2, 0.25, 0.7])))  # without smoothing
    assert found["accuracy"] == 0.5 and found["accuracy_neighbor"] == 0.75
    scores = P @ [-1, -0.5, 0.5, 1]
    assert found["signed_progress_mean"] == pytest.approx(scores.mean()) and found["signed_progress_std"] == pytest.approx(scores.std())
    assert found["progress_value_mean"] == pytest.approx(np.mean([0.2, 0.3, 0.5, 0.8]))


def test_the_headline_is_of_pairs_that_count_and_outcomes_are_of_all():
    pairs = JudgedPairs(BINS, np.array([True, True, False, False]), np.array([True, False, False, True]))
    found = grouped_pair_metrics(pairs, np.log(P))
    assert found["accuracy"] == 1.0 and found["accuracy/outcome=success"] == 0.5 and found["accuracy/outcome=failure"] == 0.5
    none = grouped_pair_metrics(JudgedPairs(BINS, np.full(4, True), np.full(4, False)), np.log(P))
    assert all(math.isnan(none[name]) for name in ("loss", "accuracy", "signed_progress_std", "loss/outcome=failure"))


def test_the_majority_knows_how_frequent_bins_are():
    log_p = majority(np.array([0, 0, 0, 1, 3]), 4, 2)
    np.testing.assert_allclose(np.exp(log_p), np.tile(np.array([3.25, 1.25, 0.25, 1.25]) / 6, (2, 1)))  # a bin never seen stays possible
    assert pair_metrics(np.array([0, 2]), log_p)["accuracy"] == 0.5
