"""Ours for the reference's tools: its label loader, its returns loader, its relabelling and its visualisers, by what each of them reads."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.labels.mixture import mixture_stage
from tests.unit.labels.test_relabel import NAMES, label

KEYS = {"episode_index": pa.int64(), "frame_index": pa.int64()}
RECAP = KEYS | {
    **dict.fromkeys(("advantage_continuous", "return", "value_current", "value_next", "reward_sum", "reward_sum_raw"), pa.float64()),
    **{"num_valid_rewards": pa.int64(), "dataset_name": pa.string(), "advantage": pa.bool_()},
}
STEAM = KEYS | {
    **{"advantage": pa.bool_(), "advantage_continuous": pa.float64(), "ensemble_signed_score": pa.float64()},
    **dict.fromkeys(("p_progress_mean", "p_progress_min", "p_progress_variance"), pa.float64()),
    **{"member_values": pa.list_(pa.field("element", pa.float64())), "expected_stride_normalized": pa.float64()},
    **dict.fromkeys(("entropy_aggregated", "entropy_member_mean", "entropy_member_variance"), pa.float64()),
}
DRAWN = {  # what its visualisers read: histograms, scatter plots, curves; members and their variance
    "workspace": ("advantage_continuous", "value_current"),
    "scored": ("advantage_continuous", "p_progress_mean", "p_progress_variance", "member_values"),
}


@pytest.fixture(params=DRAWN)
def made(request):
    """Both methods, labelled and published as the reference's tools find it."""
    workspace = request.getfixturevalue(request.param)
    label(workspace)
    for name in NAMES:
        mixture_stage(workspace.experiment, name, [workspace.threshold], workspace.root / f"published/{name}.json")
    return workspace, request.param


def reference_labels(path) -> dict[tuple[int, int], bool]:
    """Its loader: a mapping by (episode, frame), of one column; the type of a dataset is ignored."""
    rows = pq.read_table(path).to_pylist()
    return {(row["episode_index"], row["frame_index"]): bool(row["advantage"]) for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_every_frame_finds_its_label(made, name):
    """One without is a ValueError there; demonstrations need labels, too."""
    workspace, _ = made
    path = workspace.sidecar(name, f"advantages_{workspace.tag}")
    labels = reference_labels(path)
    keys = list(zip(*(key.tolist() for key in workspace.episodes(name).frame_keys()), strict=True))
    assert list(labels) == keys and len(keys) == pq.read_metadata(path).num_rows  # sorted, and none twice
    assert name != "demos" or all(labels.values())


def test_columns_have_its_names_order_and_dtypes(made):
    workspace, method = made
    for name in NAMES:
        schema = pq.read_schema(workspace.sidecar(name, f"advantages_{workspace.tag}"))
        assert dict(zip(schema.names, schema.types, strict=True)) == (RECAP if method == "workspace" else STEAM)
        assert schema.names == list(RECAP if method == "workspace" else STEAM)


def test_its_visualisers_find_numbers_and_threshold(made):
    """The threshold: ``unified_threshold`` (RECAP) or ``positive_threshold`` (STEAM) of the tag; with a missing one they fail, or guess."""
    workspace, method = made
    table = pq.read_table(workspace.sidecar("rollouts", f"advantages_{workspace.tag}"))
    for column in DRAWN[method]:
        numbers = np.array(table[column].to_pylist(), dtype=np.float64)
        assert np.isfinite(numbers).all() and len(numbers) == workspace.episodes("rollouts").num_frames
    config = yaml.safe_load((workspace.root / "rollouts/meta/mixture_config.yaml").read_text())
    tag = config["tags"][workspace.tag]
    threshold = tag["unified_threshold" if method == "workspace" else "positive_threshold"]
    advantage, labels = table["advantage_continuous"].to_numpy(), table["advantage"].to_numpy()
    reached = advantage >= threshold if method == "workspace" else advantage > threshold
    free = ~workspace.episodes("rollouts").interventions()  # which ours labels positive
    np.testing.assert_array_equal(labels[free], reached[free])
    if method == "scored":
        assert tag["ensemble_size"] == len(table["member_values"][0]) and tag["dataset_type"] == "rollout"
        assert (tag["total_samples"], tag["num_positive"]) == (len(labels), labels.sum())


def test_its_relabelling_finds_the_datasets_and_the_recorded_type(made):
    workspace, _ = made
    config = yaml.safe_load((workspace.root / "demos/meta/mixture_config.yaml").read_text())
    assert [entry["name"] for entry in config["datasets"]] == list(NAMES)
    assert all(entry.keys() >= {"name", "weight", "return_min", "return_max"} for entry in config["datasets"])
    assert config.keys() >= {"global_return_min", "global_return_max", "tags"}
    assert config["tags"][workspace.tag]["dataset_type"] == "sft"


def test_its_returns_loader_finds_every_frame_by_its_index(workspace):
    """It takes ``frame_index`` as the position within the rows of an episode, so rows must be sorted."""
    table = pq.read_table(workspace.sidecar("rollouts", "returns_fail9"))
    assert table.column_names == ["episode_index", "frame_index", "return", "reward", "prompt"]
    assert [table.schema.field(name).type for name in ("return", "reward")] == [pa.float32()] * 2
    assert {type(text) for text in table["prompt"].to_pylist()} == {str}
    for episode in np.unique(table["episode_index"]):
        frames = table.filter(pa.compute.field("episode_index") == episode)["frame_index"].to_pylist()
        assert frames == list(range(len(frames)))
