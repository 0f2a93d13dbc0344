"""What a fresh clone plans, and that every target and every job is what it says."""

import ast
import json
import re
import shlex

import pytest

from recap_steam.config import ENSEMBLE_KEYS, EXECUTION_KEYS, load_experiment, load_slice
from tests.workflow.tree import DEMO, REPOSITORY, Tree, demo_with

COLLECTED = {"collect_dataset": 3, "index_dataset": 3, "cache_frames": 1, "compute_norm_stats": 1, "train_policy": 1}
RETURNS = COLLECTED | {"compute_returns": 3}
VALUES = RETURNS | {"cache_frames": 3, "train_critic": 1, "compute_values": 3}
SCORES = COLLECTED | {"cache_frames": 3, "train_member": 3, "merge_ensemble": 1, "compute_scores": 3}
THRESHOLDS = VALUES | SCORES | {"compute_values": 2, "compute_scores": 2, "compute_threshold": 2}  # none of the held-out dataset
ADVANTAGES = THRESHOLDS | {"compute_advantages": 4}
POLICIES = ADVANTAGES | {"compute_norm_stats": 7, "train_policy": 7}
EVALUATIONS = POLICIES | {"evaluate_policy": 7}
ALL_JOBS = EVALUATIONS | {"compute_values": 3, "compute_scores": 3, "plot_diagnostics": 4, "draw_rule_graph": 1, "build_report": 1}
PLANS = {
    "all": ALL_JOBS,
    "datasets": COLLECTED | {"report_datasets": 1},
    "returns": RETURNS,
    "critics": RETURNS | {"cache_frames": 3, "train_critic": 1, "train_member": 3, "merge_ensemble": 1},
    "values": VALUES,
    "scores": SCORES,
    "advantages": ADVANTAGES,
    "policies": POLICIES,
    "evaluations": EVALUATIONS,
    "report": ALL_JOBS,
    "videos": ADVANTAGES | {"choose_episodes": 2},  # and the videos, once outcomes are known
    "mixture": THRESHOLDS | {"merge_mixture": 2},
    "publish_stats": RETURNS | {"merge_stats": 3},
}
VIDEO = "results/demo/videos/steam_q30/rollouts/episode_000007.mp4"

FOR_USERS = {"relabel_advantages.py", "summarise_evidence.py"}  # scripts that no rule runs
NOT_IN_THE_DEMO = {"import_sidecar.py", "download_dataset.py"}  # see test_imports.py, test_full_size.py


@pytest.mark.parametrize("target", PLANS)
def test_a_fresh_clone_plans_exactly_what_a_target_needs(tree: Tree, target: str) -> None:
    assert tree.plan(target) == PLANS[target]


def test_the_default_target_is_everything(tree: Tree) -> None:
    assert tree.plan() == ALL_JOBS


def test_a_dry_run_says_in_words_what_each_job_is_for(tree: Tree) -> None:
    status, output = tree.snakemake("-n", "datasets", "mixture", "publish_stats", "all")
    assert status == 0, output
    assert "Job 0: " in output
    assert "Decode the frames of rollouts at 64 pixels" in output
    assert "Label" in output or "label its frames" in output
    assert not re.search(r"^(local)?rule \w+:", output, re.MULTILINE), "a rule without message"


def test_a_finished_demo_has_nothing_to_do(finished: Tree) -> None:
    status, output = finished.snakemake("-n")
    assert status == 0
    assert "Nothing to be done" in output
    assert "missing provenance" not in output


def test_every_command_fits_its_script(tree: Tree) -> None:
    """Every option that a rule passes exists in its script, every required one is passed, and slices are parts of experiments."""
    file = tree.experiment("everything", demo_with({"evaluations.paired.video_critic": "value", "evaluations.paired.stop_below": 0.005}))
    status, output = tree.snakemake("-n", "-p", "datasets", "mixture", "publish_stats", "videos", VIDEO, "all", "--configfile", file)
    assert status == 0, output
    commands = [shlex.split(line) for line in output.splitlines() if "workflow/scripts/" in line and "python " in line]
    scripts = {path.name for path in (REPOSITORY / "workflow/scripts").glob("*.py")} - FOR_USERS - NOT_IN_THE_DEMO
    assert {script_of(command) for command in commands} == scripts
    for command in commands:
        start = command.index(f"workflow/scripts/{script_of(command)}")
        passed = {word for word in command[start:] if word.startswith("--")}
        required, optional = options(script_of(command))
        assert required <= passed <= required | optional, command
        if "--config" in passed:  # all but merge_ensemble.py, which users call as well
            load_slice(json.loads(command[command.index("--config") + 1]))


@pytest.mark.parametrize(
    ("section", "rule", "jobs"), [("critics", "train_critic", 1), ("critics", "train_member", 3), ("policies", "train_policy", 7)]
)
def test_training_gets_every_key_of_its_entry(tree: Tree, section: str, rule: str, jobs: int) -> None:
    """Those that change the result as parameters, those that do not as a resource, which reruns nothing; a member knows of no others."""
    commands = commands_of(tree, rule)
    assert len(commands) == jobs
    for command in commands:
        slices, execution, tag = (command[command.index(option) + 1] for option in ("--config", "--execution", "--tag"))
        entry = dict(vars(getattr(load_experiment(DEMO), section)[tag]))
        members = {key: entry.pop(key, None) for key in ENSEMBLE_KEYS}
        assert any(members.values()) == (rule == "train_member")
        assert vars(getattr(load_slice(json.loads(slices), json.loads(execution)), section)[tag]) == entry
        assert not set(EXECUTION_KEYS) & set(json.loads(slices)[section][tag])


def commands_of(tree: Tree, rule: str) -> list[list[str]]:
    """The commands of a rule's jobs in a fresh clone, as words."""
    status, output = tree.snakemake("-n", "-p")
    assert status == 0, output
    return [shlex.split(line) for line in output.splitlines() if f"workflow/scripts/{rule}.py " in line and "python " in line]


def test_an_ensemble_is_merged_from_its_members_in_order(tree: Tree) -> None:
    folder = "results/demo/critics/progress"
    (merge,) = commands_of(tree, "merge_ensemble")
    assert [merge[number + 1] for number, word in enumerate(merge) if word == "--member"] == [f"{folder}/members/{m}" for m in range(3)]
    assert merge[merge.index("--output") + 1] == folder
    trained = {
        tuple(command[command.index(option) + 1] for option in ("--member", "--output-dir"))
        for command in commands_of(tree, "train_member")
    }
    assert trained == {(str(member), f"{folder}/members/{member}") for member in range(3)}


def test_scores_and_labels_get_only_what_scores_mean(tree: Tree) -> None:
    critic = {"method": "steam", "k": 10, "cameras": ["observation.images.corner2"], "model": {"num_bins": 10}}
    scored = [json.loads(command[command.index("--config") + 1]) for command in commands_of(tree, "compute_scores")]
    labelled = [json.loads(command[command.index("--config") + 1]) for command in commands_of(tree, "compute_threshold")]
    labelled = [config for config in labelled if "progress" in config["critics"]]
    assert [config["critics"] for config in [*scored, *labelled]] == [{"progress": critic}] * 4
    assert all("returns" not in config for config in [*scored, *labelled])


MEMBERS = ["elsewhere/member", "elsewhere/ensemble:2"]


def test_members_that_are_there_are_merged_and_none_is_trained(tree: Tree) -> None:
    for folder in ("member", "ensemble"):
        (tree.path / "elsewhere" / folder).mkdir(parents=True, exist_ok=True)
        (tree.path / "elsewhere" / folder / "config.json").write_text("{}")
    changes = {"critics.progress.members": MEMBERS, "critics.progress.ensemble_size": 2}
    file = tree.experiment("merged", demo_with(changes))
    assert tree.plan("critics", "--configfile", file) == {job: count for job, count in PLANS["critics"].items() if job != "train_member"}
    _, output = tree.snakemake("-n", "-p", "critics", "--configfile", file)
    assert f"--member {MEMBERS[0]} --member {MEMBERS[1]} --output results/demo/critics/progress" in output, output


@pytest.mark.parametrize(("method", "critic"), [("recap", "value"), ("steam", "progress")])
def test_one_method_alone_plans_nothing_of_the_other(tree: Tree, method: str, critic: str) -> None:
    tags = {tag: entry for tag, entry in DEMO["advantages"].items() if entry["critic"] == critic}
    policies = {tag: DEMO["policies"][tag] for tag in ("start", "filtered", method)}
    experiment = DEMO | {"critics": {critic: DEMO["critics"][critic]}, "advantages": tags, "policies": policies}
    experiment |= {"evaluations": {"paired": DEMO["evaluations"]["paired"] | {"policies": list(policies)}}}
    if method == "steam":
        experiment["returns"] = {}
    each = {
        "compute_threshold": 1,
        "compute_advantages": 2,
        "compute_norm_stats": 3,
        "train_policy": 3,
        "evaluate_policy": 3,
        "plot_diagnostics": 2,
        "draw_rule_graph": 1,
        "build_report": 1,
    }
    jobs = VALUES if method == "recap" else SCORES
    assert tree.plan("--configfile", tree.experiment(f"only_{method}", experiment)) == jobs | each


def script_of(command: list[str]) -> str:
    return next(word for word in command if word.startswith("workflow/scripts/")).removeprefix("workflow/scripts/")


def options(script: str) -> tuple[set[str], set[str]]:
    """Return the required and the optional options of a script's parser, without importing what it imports."""
    required, optional = set(), set()
    for node in ast.walk(ast.parse((REPOSITORY / "workflow/scripts" / script).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            needed = any(keyword.arg == "required" and keyword.value.value for keyword in node.keywords)
            (required if needed else optional).add(node.args[0].value)
    return required, optional


def test_videos_of_arms_are_made_where_an_evaluation_names_a_critic(tree: Tree) -> None:
    folder = "results/demo/evaluation_videos/paired"
    file = tree.experiment("with_videos", demo_with({"evaluations.paired.video_critic": "value", "evaluations.paired.devices": 2}))
    status, output = tree.snakemake("-n", "-p", f"{folder}/start_plain", f"{folder}/recap_w2", "--configfile", file)
    assert status == 0, output
    lines = [shlex.split(line) for line in output.splitlines() if "scripts/render_arm.py " in line and "python " in line]
    given = {command[command.index("--output-dir") + 1]: command for command in lines}
    assert set(given) == {f"{folder}/start_plain", f"{folder}/recap_w2"}
    for folder, command in given.items():
        assert command[command.index("--critic-dir") + 1] == "results/demo/critics/value"
        assert ("--guidance-scale" in command) == folder.endswith("w2")
    evaluated = [shlex.split(line) for line in output.splitlines() if "scripts/evaluate_policy.py " in line and "python " in line]
    assert {command[command.index("--devices") + 1] for command in evaluated} == {"2"}
