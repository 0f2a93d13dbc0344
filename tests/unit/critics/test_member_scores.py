"""Worst of N, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from recap_steam.critics.member_scores import bin_centres, certainly_back, ensemble_columns, signed_bins


def test_bins_have_signed_values_without_zero():
    assert signed_bins(2).tolist() == [-1, 1]
    assert signed_bins(4).tolist() == [-1, -0.5, 0.5, 1]
    assert (signed_bins(32) == -signed_bins(32)[::-1]).all() and signed_bins(32)[16] == 1 / 16


def test_bins_stand_for_the_mean_of_their_strides():
    assert bin_centres(32, 2).tolist() == [-16.5, 16.5]
    assert bin_centres(8, 8).tolist() == [-7.5, -5.5, -3.5, -1.5, 1.5, 3.5, 5.5, 7.5]
    assert bin_centres(3, 6).tolist() == [-3, -2, -1, 1, 2, 3]


def test_a_binary_score_is_twice_the_probability_less_one():
    p = np.linspace(0, 1, 11)
    columns = ensemble_columns(np.stack([1 - p, p], 1)[None], 8)
    np.testing.assert_allclose(columns["ensemble_signed_score"], 2 * p - 1)
    np.testing.assert_allclose(columns["member_expected_bins"][:, 0], p)


def test_the_stride_of_the_top_bin_of_two_is_0_5156():
    columns = ensemble_columns(np.array([[[0.0, 1.0]]]), 32)
    assert columns["expected_stride_normalized"].tolist() == [0.515625]


def test_the_worst_member_counts_and_the_others_are_recorded():
    probabilities = np.array([[[0, 0, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]], [[0.5, 0, 0, 0.5], [0, 0, 0, 1]]])
    columns = ensemble_columns(probabilities, 4)
    assert columns["member_values"].tolist() == [[0.75, 0.0], [0.0, 1.0]]  # by frame
    assert columns["ensemble_signed_score"].tolist() == columns["p_progress_min"].tolist() == [0.0, 0.0]
    assert columns["p_progress_mean"].tolist() == [0.375, 0.5]
    assert columns["p_progress_variance"].tolist() == [0.375**2, 0.25]  # of the population
    assert columns["member_expected_bins"].tolist() == [[2.5, 1.5], [1.5, 3.0]]
    assert columns["expected_stride_normalized"].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(columns["entropy_aggregated"], [math.log(2), math.log(4)])  # of the worst
    np.testing.assert_allclose(columns["entropy_member_mean"], [math.log(2), math.log(2)])
    np.testing.assert_allclose(columns["entropy_member_variance"], [0, math.log(2) ** 2], atol=1e-15)


def test_one_member_is_its_own_worst():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(8), (1, 5))
    columns = ensemble_columns(probabilities, 8)
    np.testing.assert_array_equal(columns["ensemble_signed_score"], columns["member_values"][:, 0])
    assert not columns["p_progress_variance"].any() and not columns["entropy_member_variance"].any()


@pytest.mark.parametrize("num_bins", [2, 8])
def test_nothing_known_is_the_lowest_score_without_doubt(num_bins):
    columns = ensemble_columns(certainly_back(3, 2, num_bins), 8)
    assert columns["ensemble_signed_score"].tolist() == [-1, -1] and columns["member_values"].tolist() == [[-1] * 3] * 2
    assert not columns["entropy_aggregated"].any() and not columns["member_expected_bins"].any()
