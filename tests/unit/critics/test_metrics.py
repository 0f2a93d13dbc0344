import math

import numpy as np
import pytest

from recap_steam.critics.metrics import JudgedFrames, Predictions, calibration, grouped_metrics, spearman, success_auc, value_metrics
from recap_steam.critics.value_head import Support

SUPPORT = Support(201, -1.0, 0.0)


def predictions(value, best_bin=None, loss=None) -> Predictions:
    value = np.asarray(value, float)
    best_bin = np.rint((value + 1) * 200).astype(int) if best_bin is None else np.asarray(best_bin)
    return Predictions(value, best_bin, np.zeros(len(value)) if loss is None else np.asarray(loss))


def test_defect_26_mae_is_of_the_expected_value():
    metrics = value_metrics(np.array([-0.5, -0.2]), predictions([-0.498, -0.3]), SUPPORT)
    assert metrics["mae"] == pytest.approx(0.051)  # the bin distance of the first would be 0


def test_defect_26_constant_predictions_have_no_rank_correlation():
    assert math.isnan(spearman(np.arange(10.0), np.full(10, -0.5)))


def test_defect_26_ties_share_their_rank():
    assert spearman(np.array([1, 2, 3, 4.0]), np.array([1, 1, 2, 2.0])) == pytest.approx(0.894427)
    assert spearman(np.array([4, 3, 2, 1.0]), np.array([1, 1, 2, 2.0])) == pytest.approx(-0.894427)


@pytest.mark.parametrize(
    ("target", "bin_", "best", "neighbor"),
    [
        (-0.5012, 100, 1, 1),
        (-0.5012, 99, 0, 1),
        (-0.5012, 98, 0, 0),
        (-0.5, 100, 1, 1),
        (-0.5, 101, 0, 0),
        (0.0, 200, 1, 1),
        (0.0, 199, 0, 0),
    ],
)
def test_accuracies_follow_the_target_atoms(target, bin_, best, neighbor):
    metrics = value_metrics(np.array([target]), predictions([0.0], [bin_]), SUPPORT)
    assert (metrics["cat_acc_best"], metrics["cat_acc_neighbor"]) == (best, neighbor)


def judged(**columns) -> JudgedFrames:
    """Four frames: a success and a failure, each early and late, of one task."""
    frames = {
        "target": [-0.4, -0.1, -0.9, -0.6],
        "success": [True, True, False, False],
        "task": ["open"] * 4,
        "time": [0.0, 0.95, 0.05, 0.9],
    }
    return JudgedFrames(*(np.array(value) for value in (frames | columns).values()))


def test_metrics_are_split_by_outcome():
    found = grouped_metrics(judged(), predictions([-0.4, -0.3, -0.5, -0.6]), SUPPORT)
    assert found["mae"] == pytest.approx((0.2 + 0.4) / 4)
    assert found["mae/outcome=success"] == pytest.approx(0.1) and found["mae/outcome=failure"] == pytest.approx(0.2)
    assert found["cat_acc_best/outcome=success"] == 0.5
    assert not any("task=" in name for name in found)  # one task is everything


def test_metrics_are_split_by_task_where_there_are_several():
    found = grouped_metrics(judged(task=["open", "close", "close", "open"]), predictions([-0.4, -0.3, -0.5, -0.6]), SUPPORT)
    assert found["mae/task=open"] == pytest.approx(0) and found["mae/task=close"] == pytest.approx(0.3)
    assert {name.split("/")[0] for name in found if "task=" in name} == {"loss", "mae", "cat_acc_best", "cat_acc_neighbor", "spearman"}


def test_an_outcome_that_does_not_occur_is_nan_under_the_same_names():
    found = grouped_metrics(judged(success=[True] * 4), predictions([-0.4, -0.3, -0.5, -0.6]), SUPPORT)
    assert found.keys() == grouped_metrics(judged(), predictions([0.0] * 4), SUPPORT).keys()
    assert math.isnan(found["mae/outcome=failure"]) and math.isnan(found["success_auc"])


def test_success_area_is_by_episode_time():
    found = grouped_metrics(judged(), predictions([-0.4, -0.7, -0.5, -0.6]), SUPPORT)
    assert found["success_auc/time=0"] == 1 and found["success_auc/time=9"] == 0 and found["success_auc"] == 0.5
    assert all(math.isnan(found[f"success_auc/time={k}"]) for k in range(1, 9))


def test_success_area_counts_ties_half():
    success = np.array([True, True, False, False])
    assert success_auc(success, np.array([0.3, 0.2, 0.2, 0.1])) == pytest.approx(3.5 / 4)
    assert success_auc(success, np.full(4, 0.5)) == 0.5
    assert math.isnan(success_auc(np.ones(2, bool), np.zeros(2)))


def test_calibration_compares_tenths_of_the_predictions():
    rng = np.random.default_rng(0)
    values = rng.permutation(np.linspace(-1, 0, 100))
    found = calibration(values**3, values)
    assert found["calibration_value/decile=0"] == pytest.approx(np.linspace(-1, 0, 100)[:10].mean())
    assert found["calibration_return/decile=9"] == pytest.approx((np.linspace(-1, 0, 100)[90:] ** 3).mean())
    assert len(found) == 20 and math.isnan(calibration(np.zeros(3), np.zeros(3))["calibration_value/decile=9"])
