import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.labels.thresholds import ScoredFrames, pool_thresholds, positive_counts, positive_labels, reaches_threshold

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/thresholds.json").read_text())


def scored(advantage, name="rollouts", type="rollout", tasks=("a",), codes=None, success=None, intervention=None):
    advantage = np.asarray(advantage, float)
    zeros = np.zeros(len(advantage), bool)
    codes = zeros.astype(int) if codes is None else np.array(codes)
    success = zeros if success is None else np.array(success, bool)
    intervention = zeros if intervention is None else np.array(intervention, bool)
    return ScoredFrames(name, type, advantage, codes, list(tasks), success, intervention, ~zeros)


def counts_of(frames, thresholds, pool):
    reached, labels = reaches_threshold(frames, thresholds, pool), positive_labels(frames, thresholds, pool, True)
    return positive_counts(frames, reached, labels)


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_thresholds_and_labels(case):
    frames = scored(case["scores"])
    thresholds = pool_thresholds([frames], "all", case["positive_quantile"])
    assert thresholds == {"all": pytest.approx(case["threshold"], abs=1e-12)}
    assert positive_labels(frames, thresholds, "all", True).tolist() == case["positive_ge"]


def test_defect_12_sft_frames_in_the_pool_are_visible_and_avoidable():
    """With sft in the pool the realised share of rollout positives is not positive_quantile: it is recorded, and pool rollout avoids it."""
    sft, rollouts = scored(np.linspace(1, 2, 1000), "demos", "sft", success=np.ones(1000)), scored(np.linspace(0, 1, 1000))
    rate = {}
    for pool in ("all", "rollout"):
        thresholds = pool_thresholds([sft, rollouts], pool, 0.3)
        [row] = counts_of(rollouts, thresholds, pool)
        rate[pool] = row["positive_rate"]
    assert rate == {"all": 0.0, "rollout": 0.3}
    assert positive_labels(sft, thresholds, "rollout", True).all()


def test_pool_rollout_without_rollouts_is_an_error():
    with pytest.raises(UserError, match="pool 'rollout' is empty"):
        pool_thresholds([scored([1, 2], "demos", "sft")], "rollout", 0.3)


def test_per_task_pools_join_datasets_by_task_text():
    one = scored([0, 10, 1, 11], tasks=("a", "b"), codes=[0, 1, 0, 1])
    two = scored([2, 12], "more", tasks=("b", "a"), codes=[1, 0])
    thresholds = pool_thresholds([one, two], "per_task", 0.5)
    assert thresholds == {"a": 1.0, "b": 11.0}
    assert positive_labels(one, thresholds, "per_task", True).tolist() == [False, False, True, True]
    assert positive_labels(two, thresholds, "per_task", True).tolist() == [True, True]


def test_per_dataset_pools_stay_apart():
    one, two = scored([0, 1, 2]), scored([10, 11, 12], "more")
    thresholds = pool_thresholds([one, two], "per_dataset", 0.5)
    assert thresholds == {"rollouts": 1.0, "more": 11.0}
    assert positive_labels(two, thresholds, "per_dataset", True).tolist() == [False, True, True]


def test_corrections_are_positive_only_by_option():
    frames = scored([0, 1, 2], intervention=[True, False, False])
    assert positive_labels(frames, {"all": 2.0}, "all", True).tolist() == [True, False, True]
    assert positive_labels(frames, {"all": 2.0}, "all", False).tolist() == [False, False, True]


def test_counts_by_outcome_tell_forced_labels_from_earned_ones():
    frames = scored([0, 1, 2, 3], success=[False, False, True, True], intervention=[True, False, False, False])
    failure, success = counts_of(frames, {"all": 2.5}, "all")
    assert failure == {
        "dataset": "rollouts", "type": "rollout", "outcome": "failure",
        "num_frames": 2, "num_above_threshold": 0, "num_positive": 1, "positive_rate": 0.5,
    }  # fmt: skip
    assert (success["outcome"], success["num_above_threshold"], success["num_positive"]) == ("success", 1, 1)
