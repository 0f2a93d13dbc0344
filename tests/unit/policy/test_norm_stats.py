import json
import subprocess
import sys

import numpy as np
import pytest

from recap_steam.config import load_slice
from recap_steam.dataset.episodes import index_stage
from recap_steam.dataset.vectors import read_rows, read_vectors
from recap_steam.errors import UserError
from recap_steam.policy import norm_stats
from recap_steam.policy.norm_stats import compute_statistics, load_statistics, norm_stats_stage, quantile_range
from recap_steam.policy.samples import select_rows
from tests.datasets import index, write_v21, write_v30


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


def experiment(root, names, frame_filter="all"):
    datasets = {name: {"path": str(root / name), "type": "rollout"} for name in names}
    policy = {"datasets": names, "frame_filter": frame_filter}
    return load_slice({"datasets": datasets, "policies": {"policy": policy}})


def write_index(root, names):
    for name in names:
        index_stage(experiment(root, names), name, root / f"episodes/{name}.parquet")


@pytest.mark.parametrize("frame_filter", ["all", "successes_and_interventions"])
def test_stage_reads_the_selected_rows_of_both_layouts_in_batches(tmp_path, monkeypatch, frame_filter):
    """One value per row of all tables, however the files are cut."""
    outcome = {"success": [True, False, False], "interventions": [(1, 2, 4)]}
    write_v21(tmp_path / "old", [5, 4, 7], **outcome)
    write_v30(tmp_path / "new", [6, 4, 3], seed=1, **outcome)
    names, expected = ["old", "new"], {"observation.state": [], "action": []}
    write_index(tmp_path, names)
    for name in names:
        dataset, episodes = index(tmp_path / name)
        rows = select_rows(frame_filter, episodes)
        for column in expected:
            expected[column].append(read_vectors(dataset, episodes, column)[rows])
    largest = []
    monkeypatch.setattr(norm_stats, "read_rows", lambda *args: spied(largest, *args))
    norm_stats_stage(experiment(tmp_path, names, frame_filter), "policy", tmp_path / "episodes", tmp_path / "stats.json")
    assert max(largest) == 2  # never a whole table
    for column, statistics in load_statistics(tmp_path / "stats.json", tag="policy").items():
        rows = np.concatenate(expected[column]).astype(np.float64)
        assert statistics["count"] == [len(rows)] == ([29] if frame_filter == "all" else [15])
        for name, truth in (("mean", rows.mean(0)), ("std", rows.std(0)), ("min", rows.min(0)), ("max", rows.max(0))):
            np.testing.assert_allclose(statistics[name], truth, rtol=1e-6, atol=1e-12)
        for name, fraction in norm_stats.QUANTILES.items():
            np.testing.assert_array_equal(statistics[name], np.quantile(rows, fraction, axis=0))


def spied(sizes, *args):
    for path, table, rows in read_rows(*args, batch_rows=2):
        sizes.append(len(table))
        yield path, table, rows


def test_datasets_of_two_robots_are_one_line(tmp_path):
    write_v21(tmp_path / "old", [5], success=[True])
    write_v30(tmp_path / "new", [6], success=[True], state_dim=4)
    write_index(tmp_path, ["old", "new"])
    with pytest.raises(UserError, match=r"policies.policy.datasets: states differ in dimensions .*a policy needs datasets of one robot"):
        norm_stats_stage(experiment(tmp_path, ["old", "new"]), "policy", tmp_path / "episodes", tmp_path / "stats.json")


def test_unreadable_file_is_one_line(tmp_path):
    for content in ("", "{}", json.dumps({"statistics": {"action": {}}})):
        (tmp_path / "stats.json").write_text(content)
        with pytest.raises(UserError, match="--forcerun compute_norm_stats"):
            load_statistics(tmp_path / "stats.json")


def test_needs_no_torch():
    code = "import sys, recap_steam.policy.norm_stats; sys.exit('torch' in sys.modules or 'lerobot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
