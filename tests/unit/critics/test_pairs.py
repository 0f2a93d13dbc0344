"""Pairs of frames against the reference's rules."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.critics.pairs import LengthScale, Pairs, PairSamples, eligible_episodes, fit_length_scale, look_ahead, scaled_strides
from recap_steam.dataset.episodes import Episodes
from tests.datasets import index, write_v21

LENGTHS = [5, 1, 9, 4, 12]
SUCCESS = [True, True, False, True, True]
GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/steam_bins.json").read_text())


@pytest.fixture(scope="module")
def episodes(tmp_path_factory) -> Episodes:
    root = write_v21(tmp_path_factory.mktemp("data") / "rollouts", LENGTHS, success=SUCCESS, episode_indices=[0, 3, 4, 7, 8])
    return index(root)[1]


def draw(pairs: PairSamples, samples: np.ndarray, seed: int = 0) -> Pairs:
    return pairs.draw(samples, [np.random.default_rng([seed, sample]) for sample in samples])


def every_pair(episodes: Episodes, **changes) -> Pairs:
    options = {"eligible": np.full(len(LENGTHS), True), "k": 4, "num_bins": 4, "length_scale": None}
    pairs = PairSamples(episodes, **{**options, **changes})
    return draw(pairs, np.arange(len(pairs)))


def test_every_frame_but_the_last_of_an_episode_is_an_anchor_in_both_directions(episodes):
    found = every_pair(episodes)
    rows = [row for start, length in zip(episodes.offsets, LENGTHS, strict=False) for row in range(start, start + length - 1)]
    np.testing.assert_array_equal(found.anchor, np.repeat(rows, 2))
    forward, backward = np.arange(len(rows)) * 2, np.arange(len(rows)) * 2 + 1
    np.testing.assert_array_equal(found.first[forward], rows)
    np.testing.assert_array_equal(found.second[backward], rows)
    assert (found.second > found.first)[forward].all() and (found.second < found.first)[backward].all()


@pytest.mark.parametrize("num_bins", [2, 4, 8])
def test_forward_and_reversed_are_exactly_as_many(episodes, num_bins):
    found = every_pair(episodes, num_bins=num_bins)
    assert (found.bin < num_bins // 2).sum() == (found.bin >= num_bins // 2).sum()
    np.testing.assert_array_equal(found.bin >= num_bins // 2, found.second > found.first)


@pytest.mark.parametrize(("k", "num_bins"), [(3, 2), (4, 4), (50, 2), (50, 50)])
def test_pairs_never_leave_their_episode(episodes, k, num_bins):
    """Also not where an episode's index is not its position (defect 7)."""
    found = every_pair(episodes, k=k, num_bins=num_bins)
    episode = [np.searchsorted(episodes.offsets, rows, "right") for rows in (found.anchor, found.first, found.second)]
    assert (episode[0] == episode[1]).all() and (episode[0] == episode[2]).all()


def test_binary_pairs_have_stride_k_and_end_with_the_episode(episodes):
    found = every_pair(episodes, k=3, num_bins=2)
    forward = slice(0, 8, 2)  # the anchors of the first episode, of 5 frames
    assert found.second[forward].tolist() == [3, 4, 4, 4] and found.bin[forward].tolist() == [1] * 4
    assert found.first[1:8:2].tolist() == [3, 4, 4, 4] and found.bin[1:8:2].tolist() == [0] * 4


def test_strides_are_drawn_evenly_from_those_that_fit(episodes):
    pairs = PairSamples(episodes, np.array([0, 0, 0, 0, 1], bool), 4, 8, None)
    strides = np.array([[abs(found.second - found.first) for found in [draw(pairs, np.arange(22), seed)]] for seed in range(400)])[:, 0]
    for sample in range(22):
        most = min(4, 12 - 1 - sample // 2)
        counts = np.bincount(strides[:, sample], minlength=5)[1:]
        assert counts[most:].sum() == 0
        assert (np.abs(counts[:most] - 400 / most) < 5 * np.sqrt(400 / most)).all()


def test_defect_30_strides_depend_on_the_samples_generator_alone(episodes):
    pairs = PairSamples(episodes, np.full(5, True), 4, 8, None)
    samples = np.array([40, 3, 17])
    together, alone = draw(pairs, samples), draw(pairs, samples[1:2])
    assert together.second[1] == alone.second[0] and together.bin[1] == alone.bin[0]
    assert draw(pairs, np.arange(50)).bin.tolist() != draw(pairs, np.arange(50), seed=1).bin.tolist()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"k{case['k']}-bins{case['num_bins']}")
def test_golden_bins(episodes, case):
    found = every_pair(episodes, k=case["k"], num_bins=case["num_bins"])
    stride = found.second - found.first
    assert found.bin.tolist() == [case["bins"][str(number)] for number in stride]
    assert len(np.unique(stride)) > 3


def test_defect_19_of_rollouts_only_successes_are_used(episodes):
    assert eligible_episodes(episodes, 2, only_success=True).tolist() == [True, False, False, True, True]
    assert eligible_episodes(episodes, 2, only_success=False).tolist() == [True, False, True, True, True]
    assert eligible_episodes(episodes, 5, only_success=True).tolist() == [True, False, False, False, True]
    found = every_pair(episodes, eligible=eligible_episodes(episodes, 2, only_success=True))
    assert len(found.anchor) == 2 * (4 + 3 + 11) and not np.isin(found.anchor, np.arange(6, 15)).any()


def test_defect_17_short_episodes_make_longer_strides():
    strides, factors = np.array([1, -1, 3, 5, -5, 3, 1]), np.array([2.5, 2.5, 1.5, 0.5, 1.5, 4.0, 0.3])
    assert scaled_strides(strides, factors, 8).tolist() == [2, -2, 4, 2, -8, 8, 1]  # half to even, within k, never 0
    scale = LengthScale(90.0, 10.0)
    assert scale.factors(np.array([4, 10, 20])).tolist() == [2.5, 1.0, 1.0]  # longer episodes do not progress slower


def test_defect_17_the_scale_is_of_all_training_episodes_together():
    pooled = fit_length_scale([np.array([10, 20]), np.array([100])], 90)
    assert pooled.max_length == np.percentile([10, 20, 100], 90)
    assert fit_length_scale([np.array([1])], 0.5).max_length == 1.0


def test_defect_17_bins_of_scaled_strides(episodes):
    """Of an episode of 5 frames with the scale 12 / 5: stride 1 counts as 2, stride 2 as 5, which is more than k = 4."""
    pairs = PairSamples(episodes, np.array([1, 0, 0, 0, 0], bool), 4, 8, LengthScale(100.0, 12.0))
    seen = {}
    for seed in range(20):
        found = draw(pairs, np.arange(8), seed)
        seen |= dict(zip((found.second - found.first).tolist(), found.bin.tolist(), strict=True))
    assert seen == {1: 5, 2: 7, 3: 7, 4: 7, -1: 2, -2: 0, -3: 0, -4: 0}


def test_the_look_ahead_of_scores():
    lengths = np.array([3, 8, 9, 40])
    assert look_ahead(lengths, 8, None).tolist() == [0, 0, 8, 8]
    assert look_ahead(lengths, 8, LengthScale(90.0, 40.0)).tolist() == [1, 2, 2, 8]  # 8 / (40 / 9) = 1.8
    assert look_ahead(np.array([1, 2]), 3, LengthScale(90.0, 1.0)).tolist() == [0, 0]


def test_defect_17_the_look_ahead_counts_as_k_in_training():
    """Up to the rounding to whole frames, however long the episode."""
    for k, length in itertools.product((4, 8, 32), (30, 50, 100)):
        scale = LengthScale(90.0, 100.0)
        reach = look_ahead(np.array([length]), k, scale)
        assert abs(scaled_strides(reach, scale.factors(np.array([length])), k)[0] - k) <= scale.factors(length) / 2
