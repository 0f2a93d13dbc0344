import numpy as np
import pytest

from recap_steam.critics.baselines import TimeTable
from recap_steam.critics.value_head import Support

SUPPORT = Support(201, -1.0, 0.0)


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
