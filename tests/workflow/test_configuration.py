"""An experiment file is complete in itself, and a mistake in it is one clear line."""

import re
from pathlib import Path
from typing import Any

import pytest
from snakemake.common.configfile import load_configfile

from tests.workflow.tree import DEMO, REPOSITORY, Tree, copy_workflow, demo_with

DEMOS = re.compile(r"\b(data|results|logs|state)/demo\b")  # its files; a checkout may well be called after it


@pytest.fixture
def returns_only(tree: Tree, tmp_path: Path) -> dict[str, Any]:
    """A user's experiment: two existing datasets, one of them read-only and with an absolute path, and two returns tags."""
    for root in (tree.path / "mine/first", tmp_path / "second"):
        (root / "meta").mkdir(parents=True, exist_ok=True)
        (root / "meta/info.json").write_text("{}")
    return {
        "experiment": "mine",
        "datasets": {
            "first": {"path": "mine/first/", "type": "rollout"},
            "second": {"path": str(tmp_path / "second"), "type": "sft", "sidecar_root": str(tmp_path / "sidecars")},
        },
        "returns": {"a": {"failure_reward": -1}, "b": {"failure_reward": -2, "gamma": 0.99}},
    }


def test_another_experiment_has_nothing_of_the_demo(tree: Tree, returns_only: dict[str, Any]) -> None:
    file = tree.experiment("mine", returns_only)
    assert tree.plan("returns", "--configfile", file) == {"index_dataset": 2, "compute_returns": 4}
    status, output = tree.snakemake("--configfile", file, "--cores", "4", "returns", "-n")
    assert status == 0
    assert not DEMOS.search(output)


def test_empty_and_absent_sections_are_the_same(tree: Tree, returns_only: dict[str, Any]) -> None:
    with_empty = returns_only | {"critics": None, "policies": {}, "environments": None}
    plans = [tree.plan("--configfile", tree.experiment("mine", experiment)) for experiment in (returns_only, with_empty)]
    assert plans[0] == plans[1] == {"index_dataset": 2, "compute_returns": 4, "draw_rule_graph": 1, "build_report": 1}


def test_sidecars_lie_in_meta_or_below_the_sidecar_root(tree: Tree, returns_only: dict[str, Any], tmp_path: Path) -> None:
    status, output = tree.snakemake("-n", "returns", "--configfile", tree.experiment("mine", returns_only))
    assert status == 0
    assert "mine/first/meta/returns_a.parquet" in output
    assert f"{tmp_path}/sidecars/second/returns_b.parquet" in output
    assert "double '/'" not in output


def test_nested_processes_see_the_same_experiment(tree: Tree, returns_only: dict[str, Any]) -> None:
    """A cluster job is a Snakemake of its own, which gets the experiment file by --configfiles."""
    file = tree.experiment("mine", returns_only)
    job = (
        "--mode",
        "remote",
        "--force",
        "--target-jobs",
        "compute_returns:meta=mine/first/meta,tag=a",
        "--allowed-rules",
        "compute_returns",
    )
    status, output = tree.snakemake("-n", "-p", "--configfiles", file, *job)
    assert status == 0, output
    assert not DEMOS.search(output)
    assert "--dataset first --tag a" in output


def test_a_key_on_the_command_line_changes_the_demo(tree: Tree) -> None:
    status, output = tree.snakemake("-n", "datasets", "--config", "experiment=renamed")
    assert status == 0, output
    assert "results/renamed/episodes/rollouts.parquet" in output


def test_a_key_on_the_command_line_changes_the_given_experiment(tree: Tree, returns_only: dict[str, Any]) -> None:
    file = tree.experiment("mine", returns_only)
    status, output = tree.snakemake("-n", "returns", "--configfile", file, "--config", "experiment=renamed")
    assert status == 0, output
    assert "results/renamed/episodes/first.parquet" in output
    assert not DEMOS.search(output)


RETURNS_TAG = next(iter(DEMO["returns"]))
LABELS_TAG = next(iter(DEMO["advantages"]))
MISTAKES = {
    "unknown key": (
        {"critics.value.max_step": 3},
        "critics.value: Additional properties are not allowed ('max_step' was unexpected)",
    ),
    "wrong type": ({"policies.start.optim.lr": "fast"}, "policies.start.optim.lr: 'fast' is not of type 'number'"),
    "YAML's text for 1e-3": ({"policies.start.optim.lr": "1e-3"}, "YAML reads 1e-3 as text: write 0.001"),
    "out of range": (
        {f"advantages.{LABELS_TAG}.positive_quantile": 1.5},
        f"advantages.{LABELS_TAG}.positive_quantile: 1.5 is greater than",
    ),
    "misspelt name": (
        {"critics.value.returns_tag": f"{RETURNS_TAG}x"},
        f"critics.value.returns_tag: '{RETURNS_TAG}x' is not an entry of returns; did you mean '{RETURNS_TAG}'?",
    ),
    "shared folder": (
        {"datasets.heldout.path": "data/demo/rollouts/"},
        "datasets.heldout.path: data/demo/rollouts/ is also the path of 'rollouts'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(tree: Tree, mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    status, output = tree.snakemake("-n", "--configfile", tree.experiment("mistake", demo_with(changes)))
    assert status == 1
    profile, error = output.splitlines()
    assert profile.startswith("Using workflow specific profile")
    assert error.startswith("error: config: ")
    assert message in error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("critics={value: {max_step: 3}}", "critics.value: Additional properties are not allowed ('max_step' was unexpected)"),
        ("experiment=5", "experiment: 5 is not of type 'string'"),
    ],
)
def test_defect_34_a_mistake_on_the_command_line_is_found_like_one_in_the_file(tree: Tree, given: str, message: str) -> None:
    """There, values given over the configuration are set after it was checked."""
    status, output = tree.snakemake("-n", "--config", given)
    assert status == 1
    assert output.splitlines()[-1].startswith("error: config: ") and message in output.splitlines()[-1]


def test_a_missing_dataset_is_one_line(tree: Tree) -> None:
    experiment = {"experiment": "mine", "datasets": {"robot": {"path": "nowhere", "type": "sft"}}}
    status, output = tree.snakemake("-n", "datasets", "--configfile", tree.experiment("missing", experiment))
    assert status == 1
    assert output.splitlines()[-1].startswith("error: config: datasets.robot.path: no LeRobot dataset in nowhere")
    assert "Traceback" not in output


def test_two_returns_tags_cannot_both_be_published(tree: Tree, returns_only: dict[str, Any]) -> None:
    status, output = tree.snakemake("-n", "publish_stats", "--configfile", tree.experiment("mine", returns_only))
    assert status == 1
    assert output.splitlines()[-1].startswith("error: publish_stats: stats.json has room for one of the returns tags a, b")
    assert "Traceback" not in output


def test_a_key_given_twice_is_one_line(tree: Tree) -> None:
    file = tree.path / "twice.yaml"
    file.write_text("experiment: mine\nexperiment: yours\n")
    status, output = tree.snakemake("-n", "--configfile", str(file))
    assert status == 1
    assert output.splitlines()[1:] == [f"error: {file}: experiment is given twice, again in line 2; keep one of them"]


def test_the_error_of_a_job_is_printed(tree: Tree) -> None:
    """Without any profile on the command line."""
    (tree.path / "empty/meta").mkdir(parents=True)
    (tree.path / "empty/meta/info.json").write_text("{}")
    file = tree.experiment("failing", {"experiment": "failing", "datasets": {"robot": {"path": "empty", "type": "sft"}}})
    status, output = tree.snakemake("--configfile", file, "--cores", "1", "datasets")
    assert status == 1
    assert re.search(r"^error: .*empty/meta/info.json", output, re.MULTILINE), output


@pytest.fixture
def existing(tmp_path: Path) -> tuple[Tree, str, Path]:
    """A tree in which an existing dataset was indexed and has returns."""
    tree = copy_workflow(tmp_path)
    root = tmp_path / "robot"
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta").mkdir()
    for name in ("meta/info.json", "meta/stats.json", "meta/tasks.jsonl", "meta/episodes.jsonl", "data/chunk-000/a.parquet"):
        (root / name).write_text("{}")
    experiment = {"experiment": "mine", "datasets": {"robot": {"path": "robot", "type": "sft"}}, "returns": {"a": {"failure_reward": -1}}}
    file = tree.experiment("mine", experiment)
    tree.finish("returns", "--configfile", file)
    assert tree.plan("returns", "--configfile", file) == {}
    return tree, file, root


@pytest.mark.parametrize("change", ["data/chunk-000/a.parquet", "meta/tasks.jsonl", "meta/episodes.jsonl", "added", "removed"])
def test_a_changed_dataset_is_indexed_again(existing: tuple[Tree, str, Path], change: str) -> None:
    tree, file, root = existing
    data = root / "data/chunk-000/a.parquet"
    if (root / change).is_file():
        (root / change).write_text("{ }")
    elif change == "added":
        (root / "data/chunk-000/b.parquet").write_text("{}")
    else:
        data.unlink()
    assert tree.plan("returns", "--configfile", file) == {"index_dataset": 1, "compute_returns": 1}


def test_foreign_statistics_and_our_sidecars_are_no_change_of_the_dataset(existing: tuple[Tree, str, Path]) -> None:
    tree, file, root = existing
    (root / "meta/stats.json").write_text('{"return": 1}')
    (root / "meta/returns_other.parquet").write_text("")
    assert tree.plan("returns", "--configfile", file) == {}


def test_snakemake_reads_the_demo_as_we_do() -> None:
    """Anchors and merges mean the same to Snakemake's loader and to ours."""
    assert load_configfile(REPOSITORY / "config/config.yaml") == DEMO
