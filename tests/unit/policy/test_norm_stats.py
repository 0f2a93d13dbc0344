import json
import subprocess
import sys

import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.policy.norm_stats import compute_statistics, load_statistics, quantile_range


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return np.stack([rng.normal(1000, 0.1, 5000), rng.exponential(2, 5000), np.full(5000, 3.0)], axis=1).astype(np.float32)


def chunked(rows, size):
    return lambda: (rows[start : start + size] for start in range(0, len(rows), size))


@pytest.mark.parametrize("size", [1, 37, 5000])
def test_exact_however_the_rows_are_chunked(rows, size):
    """float64 throughout: a mean of 1000 with a deviation of 0.1 loses nothing."""
    result = compute_statistics(chunked(rows, size))
    truth = rows.astype(np.float64)
    np.testing.assert_allclose(result["mean"], truth.mean(0), rtol=1e-12)
    np.testing.assert_allclose(result["std"], truth.std(0), rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(result["min"], truth.min(0))
    np.testing.assert_array_equal(result["max"], truth.max(0))
    for name, fraction in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)):
        np.testing.assert_array_equal(result[name], np.quantile(truth, fraction, axis=0))
    assert result["count"] == [5000]


def test_large_tables_take_quantiles_from_a_histogram_within_its_resolution(rows):
    exact, histogram = compute_statistics(chunked(rows, 500)), compute_statistics(chunked(rows, 500), exact_rows=1000)
    for name, fraction in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)):
        below = (rows[:, :2] <= np.array(histogram[name])[:2]).mean(0)
        np.testing.assert_allclose(below, fraction, atol=3 / len(rows))
    assert histogram["mean"] == exact["mean"] and histogram["q50"][2] == 3.0


def test_empty_selection_is_an_error():
    with pytest.raises(UserError, match="no frame"):
        compute_statistics(lambda: [np.empty((0, 2), np.float32)])


def test_almost_constant_dimension_is_scaled_by_its_range():
    gripper = np.zeros((1000, 1), np.float32)
    gripper[:5] = 1.0
    statistics = compute_statistics(lambda: [gripper])
    assert statistics["q01"] == statistics["q99"] == [0.0]  # lerobot would divide by 1e-8
    assert (quantile_range(statistics)["q01"], quantile_range(statistics)["q99"]) == ([0.0], [1.0])
    other = compute_statistics(lambda: [np.arange(1000, dtype=np.float32)[:, None]])
    assert quantile_range(other) == other


def test_unreadable_file_is_one_line(tmp_path):
    for content in ("", "{}", json.dumps({"statistics": {"action": {}}})):
        (tmp_path / "stats.json").write_text(content)
        with pytest.raises(UserError, match="--forcerun compute_norm_stats"):
            load_statistics(tmp_path / "stats.json")


def test_needs_no_torch():
    code = "import sys, recap_steam.policy.norm_stats; sys.exit('torch' in sys.modules or 'lerobot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
