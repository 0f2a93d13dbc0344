"""Returns and labels of other tools as inputs of the workflow: what runs, and what a change makes stale."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.changes import with_changes
from tests.datasets import write_v21, write_v30
from tests.workflow.tree import DEMO, Tree, copy_workflow, make_weights

LENGTHS = {"one": [3, 4], "two": [2, 5]}
CAMERA = "observation.images.front"
CRITIC = {key: value for key, value in DEMO["critics"]["value"].items() if key != "eval_datasets"}
POLICY = {key: value for key, value in DEMO["policies"]["recap"].items() if key not in ("eval_datasets", "init_from")}
USED = {"datasets": ["one", "two"], "cameras": [CAMERA]}
EXPERIMENT: dict[str, Any] = {
    "experiment": "bridges",
    "datasets": {name: {"path": f"data/{name}", "type": "rollout"} for name in LENGTHS},
    "returns": {
        "ours": {"failure_reward": -5},
        "theirs": {"imported": {"sidecar": "fail5"}, "datasets": ["one", "two"]},
        "discounted": {"imported": {"column": "mc_return"}, "datasets": ["two"], "gamma": 0.9},
    },
    "critics": {"value": CRITIC | USED | {"returns_tag": "theirs"}},
    "advantages": {
        "best": {"imported": {"sidecar": "N10_q30"}, "datasets": ["one"]},
        "good": {"imported": {"column": "is_good"}, "datasets": ["two", "one"]},
    },
    "policies": {"policy": POLICY | USED | {"advantage_tag": "good"}},
}
IMPORTS = {"index_dataset": 2, "import_returns": 3, "compute_returns": 2, "import_advantages": 3}
TARGETS = ("returns", "advantages")
LEARN = {"train_policy": 1, "build_report": 1}


def with_columns(table: pa.Table, position: int) -> pa.Table:
    """What lerobot users keep beside actions: a return and a label of every frame."""
    left = np.arange(len(table))[::-1]
    returns = -(1 - 0.9**left) / (1 - 0.9)
    return table.append_column("mc_return", pa.array(returns)).append_column("is_good", pa.array(left < 2))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Two datasets and what other tools wrote beside and into them."""
    tree = copy_workflow(tmp_path_factory.mktemp("bridges"))
    make_weights(tree.path / "another")
    for writer, (name, lengths) in zip((write_v21, write_v30), LENGTHS.items(), strict=True):
        root = writer(tree.path / "data" / name, lengths, success=[True, True], cameras=[CAMERA], columns=with_columns)
        left = np.concatenate([np.arange(length)[::-1] for length in lengths])
        keys = {"episode_index": np.repeat(range(len(lengths)), lengths), "frame_index": np.concatenate([range(n) for n in lengths])}
        returns = {"return": -left.astype(np.float32), "reward": -(left > 0).astype(np.float32), "prompt": ["open"] * len(left)}
        pq.write_table(pa.table(keys | returns), root / "meta/returns_fail5.parquet")
        pq.write_table(pa.table(keys | {"advantage": left > 1}), root / "meta/advantages_N10_q30.parquet")
    return tree


@pytest.fixture(scope="module")
def imported(tree: Tree) -> Tree:
    """After a real run of a job of each kind; the others look as if they had run."""
    file = tree.experiment("bridges", EXPERIMENT)
    assert tree.plan(*TARGETS, "--configfile", file) == IMPORTS
    files = ["one/meta/returns_ours", "one/meta/returns_theirs", "one/meta/advantages_best", "two/meta/advantages_good"]
    status, output = tree.snakemake(*(f"data/{name}.parquet" for name in files), "--configfile", file, "--cores", "2")
    assert status == 0, output
    assert "Import the labels good of two, which carry no lineage" in output
    tree.finish(*TARGETS, "--configfile", file)
    return tree


def test_what_other_tools_made_is_imported(imported: Tree) -> None:
    tree = imported
    labels = pq.read_table(tree.path / "data/two/meta/advantages_good.parquet")["advantage"].to_pylist()
    assert labels == [True, True, False, False, False, True, True]
    ours, theirs = (pq.read_table(tree.path / f"data/one/meta/returns_{tag}.parquet") for tag in ("ours", "theirs"))
    assert ours.select(["return", "reward"]).equals(theirs.select(["return", "reward"]))
    log = (tree.path / "logs/bridges/import_advantages/best@data/one/meta.log").read_text()
    assert log.startswith("note: data/one/meta/advantages_N10_q30.parquet: imported as it is, without lineage") and log.count("\n") == 1
    assert tree.plan(*TARGETS, "--configfile", str(tree.path / "bridges.yaml")) == {}


def test_later_stages_read_them_like_any_other(tree: Tree) -> None:
    """No critic is trained for imported labels, and no threshold found; nothing is to be drawn of them but what they are."""
    file = tree.experiment("bridges", EXPERIMENT)
    report = {"cache_frames": 2, "train_critic": 1, "compute_values": 2, "compute_norm_stats": 1, "draw_rule_graph": 1} | LEARN
    assert tree.plan("report", "--forceall", "--configfile", file) == IMPORTS | report
    policies = {"cache_frames": 2, "index_dataset": 2, "import_advantages": 2, "compute_norm_stats": 1, "train_policy": 1}
    assert tree.plan("policies", "--forceall", "--configfile", file) == policies
    assert tree.plan("mixture", "--configfile", file) == {}
    receipts = "results/bridges/published/two/returns_discounted.json"
    assert tree.plan(receipts, "--forceall", "--configfile", file) == {"index_dataset": 1, "import_returns": 1, "merge_stats": 1}


CHANGES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "another sidecar": ({"returns.theirs.imported.sidecar": "other"}, {"import_returns": 2}),
    "a column instead": ({"returns.theirs.imported": {"column": "mc_return"}}, {"import_returns": 2}),
    "another gamma": ({"returns.discounted.gamma": 0.8}, {"import_returns": 1}),
    "one dataset more": ({"returns.discounted.datasets": ["two", "one"]}, {"import_returns": 1}),
    "other labels": ({"advantages.best.imported": {"column": "is_good"}}, {"import_advantages": 1}),
    "labels of one dataset more": ({"advantages.best.datasets": ["two", "one"]}, {"import_advantages": 1}),
    "computed instead": ({"returns.theirs": {"failure_reward": -5}}, {"compute_returns": 2}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_imports_exactly_what_it_concerns(imported: Tree, change: str) -> None:
    changes, stale = CHANGES[change]
    for name in LENGTHS:
        (imported.path / f"data/{name}/meta/returns_other.parquet").touch()
    file = imported.experiment("changed", with_changes(EXPERIMENT, changes))
    assert imported.plan(*TARGETS, "--configfile", file) == stale


def test_a_source_that_changes_is_imported_again(imported: Tree) -> None:
    tree = imported
    file = tree.experiment("bridges", EXPERIMENT)
    touch(tree.path / "data/two/meta/returns_fail5.parquet")
    assert tree.plan(*TARGETS, "--configfile", file) == {"import_returns": 1}
    touch(*(tree.path / "data/one/data").rglob("*.parquet"))
    stale = {"index_dataset": 1, "compute_returns": 1, "import_returns": 2, "import_advantages": 2}
    assert tree.plan(*TARGETS, "--configfile", file) == stale


def touch(*paths: Path) -> None:
    """As if written anew; a changed content, for those of which Snakemake keeps digests."""
    for path in paths:
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata({"written": str(time.time())}), path)
        os.utime(path, (time.time() + 5,) * 2)
