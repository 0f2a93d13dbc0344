"""The rule from scores to labels, against the reference's oracles and against itself written slowly."""

import itertools

import numpy as np
import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.labels.scores import baseline_bin, exceeds_threshold, score_labels, score_thresholds, scores_above
from recap_steam.labels.thresholds import ScoredFrames


def config(**labels):
    raw = {"experiment": "small", "advantages": {"tag": {"critic": "order", "datasets": [], **labels}}}
    raw["advantages"]["tag"]["datasets"] = ["any"]
    return load_experiment(raw).advantages["tag"]


def scored(score, kind="rollout", intervention=(), unjudged=()):
    marks = np.zeros((2, len(score)), bool)
    marks[0, list(intervention)], marks[1, list(unjudged)] = True, True
    codes = np.zeros(len(score), int)
    return ScoredFrames(kind, kind, np.asarray(score, float), codes, ["a"], codes == 1, marks[0], ~marks[1])


def label(datasets, labels):
    thresholds = score_thresholds(datasets, labels)
    return [score_labels(frames, thresholds, labels.intervention_positive).tolist() for frames in datasets]


def test_ties_stay_out_so_fewer_than_asked_are_positive():
    """The reference's own example: 30 % of eight zeros, a one and a two are two frames."""
    [labels] = label([scored([0] * 8 + [1, 2])], config(label_mode="quantile", rollout_quantile=0.3))
    assert labels == [False] * 8 + [True, True]


def test_a_threshold_must_be_exceeded():
    [labels] = label([scored([-0.5, 0.25, 0.26, 1])], config(label_mode="threshold", positive_threshold=0.25))
    assert labels == [False, False, True, True]


MODES = {"threshold": {"positive_threshold": 1.0}, "quantile": {"rollout_quantile": 0.5}}


@pytest.mark.parametrize("mode", MODES)
def test_demonstrations_without_a_share_are_positive_whatever_their_score(mode):
    demonstrations = scored([-1, 0, -1], "sft", unjudged=[0])
    assert label([demonstrations, scored([0, 1])], config(label_mode=mode, **MODES[mode]))[0] == [True] * 3


def test_the_pools_of_rollouts_and_of_demonstrations_are_apart():
    rollouts, more, demonstrations = scored([0, 1, 2, 3]), scored([4, 5, 6, 7]), scored([10, 11, 12, 13], "sft")
    labels = config(label_mode="quantile", rollout_quantile=0.25, expert_quantile=0.5)
    assert score_thresholds([rollouts, demonstrations, more], labels) == {"rollout": 5.25, "expert": 11.5}
    assert label([rollouts, demonstrations, more], labels) == [[False] * 4, [False, False, True, True], [False, False, True, True]]


def test_demonstrations_alone_can_be_ranked():
    assert label([scored([3, 1, 2], "sft")], config(label_mode="quantile", expert_quantile=0.4)) == [[True, False, False]]


@pytest.mark.parametrize("datasets", [[scored([0, 1], unjudged=[0, 1])], [scored([0, 1], "sft")], [scored([])]])
def test_a_pool_without_a_judged_frame_is_an_error(datasets):
    with pytest.raises(UserError, match=r"pool 'rollout' is empty: .*add one, or use a smaller k") as error:
        score_thresholds(datasets, config(label_mode="quantile", rollout_quantile=0.3))
    assert "\n" not in str(error.value)


def test_a_frame_that_cannot_be_judged_is_positive_only_as_a_correction_and_shifts_no_threshold():
    labels = config(label_mode="quantile", rollout_quantile=0.5)
    judged, with_others = scored([1, 2, 3, 4]), scored([9, 1, 9, 2, 3, 4], intervention=[2, 3], unjudged=[0, 2])
    assert score_thresholds([with_others], labels) == score_thresholds([judged], labels)
    assert label([with_others], labels) == [[False, False, True, True, True, True]]
    assert not exceeds_threshold(with_others, {"rollout": -2.0})[[0, 2]].any()


def test_a_threshold_for_rollouts_that_nothing_judges_is_an_error():
    with pytest.raises(UserError, match="pool 'rollout' is empty"):
        score_thresholds([scored([0, 1], unjudged=[0, 1])], config(label_mode="threshold", positive_threshold=0.0))


def test_corrections_are_positive_only_by_option():
    frames = scored([0, 1, 2], intervention=[0])
    assert label([frames], config(label_mode="threshold", positive_threshold=1.5)) == [[True, False, True]]
    assert label([frames], config(label_mode="threshold", positive_threshold=1.5, intervention_positive=False)) == [[False, False, True]]


BASELINES = [(8, 8, None, 7), (8, 8, 1, 4), (8, 8, 3, 5), (32, 2, None, 1), (4, 2, 1, 1)]


@pytest.mark.parametrize(("k", "num_bins", "lookahead", "expected"), BASELINES)
def test_baseline_is_the_bin_of_its_look_ahead(k, num_bins, lookahead, expected):
    assert baseline_bin(k, num_bins, lookahead) == expected


@pytest.mark.parametrize("num_bins", [2, 8, 32])
def test_progress_as_fast_as_the_baseline_is_no_advantage(num_bins):
    expected_bins = np.array([[num_bins - 1, num_bins - 1], [num_bins - 1, 0], [0, 0]], float)
    worst = -2 * (num_bins - 1) / num_bins
    np.testing.assert_allclose(scores_above(num_bins - 1, expected_bins, num_bins), [0, worst, worst])
    np.testing.assert_allclose(scores_above(num_bins // 2, expected_bins, num_bins)[0], 2 / num_bins * (num_bins // 2 - 1))


def quantile_slowly(scores, share):
    """Linear interpolation between the two neighbours of the wanted rank."""
    scores = sorted(scores)
    place = (1 - share) * (len(scores) - 1)
    below = min(int(place), len(scores) - 1)
    above = min(below + 1, len(scores) - 1)
    return scores[below] + (place - below) * (scores[above] - scores[below])


def label_slowly(datasets, labels):
    """Frame by frame, as the rule is told."""
    thresholds = {"rollout": labels.positive_threshold}
    if labels.label_mode == "quantile":
        shares = {"rollout": labels.rollout_quantile, "sft": labels.expert_quantile}
        pools = {"rollout": [], "sft": []}
        for frames in datasets:
            pools[frames.type] += [score for score, judged in zip(frames.advantage, frames.judged, strict=True) if judged]
        thresholds = {kind: quantile_slowly(pools[kind], share) for kind, share in shares.items() if share is not None}
    found = []
    for frames in datasets:
        rows = []
        for score, judged, corrected in zip(frames.advantage, frames.judged, frames.intervention, strict=True):
            if frames.type == "sft" and "sft" not in thresholds:
                rows.append(True)
            else:
                rows.append(bool((judged and score > thresholds[frames.type]) or (corrected and labels.intervention_positive)))
        found.append(rows)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_labels_equal_the_rule_written_slowly(seed):
    """Scores are multiples of 1/8, so that ties are common and the interpolation of both is exact enough to compare strictly."""
    rng = np.random.default_rng(seed)
    datasets = []
    for kind in ("rollout", "sft", "rollout"):
        size = int(rng.integers(3, 40))
        marks = [np.flatnonzero(rng.random(size) < share) for share in (0.2, 0.3)]
        datasets.append(scored(rng.integers(-8, 9, size) / 8, kind, marks[0], marks[1][1:]))
    share = {"rollout_quantile": 1 / rng.integers(2, 9), "expert_quantile": rng.choice([None, 0.5])}
    modes = {"quantile": share, "threshold": {"positive_threshold": rng.integers(-8, 9) / 8}}
    for mode, corrections in itertools.product(modes, (True, False)):
        labels = config(label_mode=mode, intervention_positive=corrections, **modes[mode])
        assert label(datasets, labels) == label_slowly(datasets, labels)
