import math

import numpy as np
import pytest

from recap_steam.critics.metrics import Predictions, TimeTable, spearman, value_metrics
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


def test_one_bin_is_the_constant_baseline_of_the_mean():
    train = np.array([-0.9, -0.1, -0.2])
    table = TimeTable(train, np.array([0, 1, 2]), 1, SUPPORT)
    found = table.predict(np.array([-0.5, -0.4]), np.array([0, 9]))
    assert found.value == pytest.approx(train.mean())
    assert np.isfinite(found.loss).all()


def test_time_bins_hold_the_mean_of_their_training_frames():
    frame_index = np.array([0, 1, 2, 3, 0, 1])
    train = np.array([-1.0, -0.75, -0.5, -0.25, -0.5, -0.25])
    table = TimeTable(train, frame_index, 4, SUPPORT)
    found = table.predict(train, np.array([0, 1, 2, 3, 50, 0]))
    assert found.value == pytest.approx([-0.75, -0.5, -0.5, -0.25, -0.25, -0.75])
    assert found.loss[3] < found.loss[0]  # a certain bin costs less than an even one


def test_a_time_without_training_frames_takes_the_overall_distribution():
    table = TimeTable(np.array([-1.0, -0.5]), np.array([0, 9]), 10, SUPPORT)
    assert table.predict(np.array([-0.5]), np.array([5])).value == pytest.approx(-0.75)
