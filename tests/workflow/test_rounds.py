"""Further rounds are one graph with the first, and never run it again."""

from pathlib import Path
from typing import Any

from tests.workflow.tree import Tree, copy_workflow, demo_with

REPORT = {"draw_rule_graph": 1, "build_report": 1}
COLLECTED = {"collect_dataset": 1, "index_dataset": 1, "cache_frames": 1, "compute_returns": 1}
LABELLED = {"compute_threshold": 1, "compute_advantages": 3, "plot_diagnostics": 3}  # demonstrations, and rollouts of two rounds
TRAINED = {"compute_norm_stats": 1, "train_policy": 1, "evaluate_policy": 1}


ON_DEMONSTRATIONS = {"critics.progress.datasets": ["demonstrations"], "critics.progress.train_on_rollouts": False}


def rounds(tree: Tree, changes: dict[str, Any] | None = None, **counts: int) -> tuple[str, str]:
    """Arguments that run the demo, changed, with so many rounds of each policy."""
    loops = {loop: {"count": count, "dataset": "rollouts"} for loop, count in counts.items()}
    name = "_".join(f"{loop}{count}" for loop, count in counts.items())
    return "--configfile", tree.experiment(name, demo_with((changes or {}) | {"rounds": loops}))


def test_a_further_round_runs_its_own_jobs_only(tmp_path: Path) -> None:
    tree = copy_workflow(tmp_path)
    tree.finish(*rounds(tree, recap=1))
    second = COLLECTED | LABELLED | TRAINED | REPORT | {"train_critic": 1, "compute_values": 4}
    assert tree.plan(*rounds(tree, recap=2)) == second
    tree.finish(*rounds(tree, recap=2))
    assert tree.plan(*rounds(tree, recap=2)) == {}
    assert tree.plan(*rounds(tree, recap=3)) == second | {"compute_values": 5, "compute_advantages": 4, "plot_diagnostics": 4}


def test_rounds_of_progress_critics_train_their_members_anew_unless_they_learn_from_demonstrations_only(tmp_path: Path) -> None:
    tree = copy_workflow(tmp_path)
    anew = {"train_member": 3, "merge_ensemble": 1, "compute_scores": 4}
    for changes, critic in (({}, anew), (ON_DEMONSTRATIONS, {"compute_scores": 1})):
        tree.finish(*rounds(tree, changes, steam=1))
        assert tree.plan(*rounds(tree, changes, steam=2)) == COLLECTED | LABELLED | TRAINED | REPORT | critic


def test_a_replicate_shares_nothing_with_the_experiment(tree: Tree, finished: Tree) -> None:
    demo = demo_with({})
    for dataset in demo["datasets"].values():
        del dataset["path"]
    file = finished.experiment("without_folders", demo)
    assert finished.plan("--configfile", file) == {}  # data/demo/… is where they were
    replicate = finished.plan("--configfile", file, "--config", "experiment=demo_seed1", "seed=1")
    assert replicate == tree.plan() and replicate["collect_dataset"] == 3
