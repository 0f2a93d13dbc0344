"""The whole workflow on a small simulation: every rule for real, then nothing to do, then a label change and what reads labels.

All of it without network: nothing but packages is ever fetched, and these are there.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.network import cut_off, watched
from tests.workflow.tree import Tree, copy_workflow, demo_with

NETWORK_LOG = "network.log"
POLICIES = ["start", "filtered", "recap", "steam"]  # without the controls, which differ in their labels only
TRAINED = {"model.image_size": 32, "max_steps": 4, "global_batch_size": 8}
SMALL = {
    "experiment": "small",
    "environments.arm.image_size": 32,
    "environments.arm.max_episode_steps": 24,
    "datasets.demonstrations.collect.num_episodes": 2,
    "datasets.rollouts.collect.num_episodes": 4,
    "datasets.rollouts.collect.intervention_probability": 0.5,
    "datasets.rollouts.collect.intervention_after": 4,
    "datasets.heldout.collect.num_episodes": 2,
    **{f"critics.{tag}.{key}": value for tag in ("value", "progress") for key, value in TRAINED.items()},
    **{f"critics.{tag}.eval_interval": 2 for tag in ("value", "progress")},
    "critics.progress.ensemble_size": 2,
    **{f"policies.{tag}.{key}": value for tag in POLICIES for key, value in TRAINED.items()},
    "evaluations.paired.policies": POLICIES,
    "evaluations.paired.num_episodes": 2,
    "diagnostics.num_episodes": 1,
}


def small(changes: dict[str, Any]) -> dict[str, Any]:
    experiment = demo_with(SMALL | changes)
    return experiment | {"policies": {tag: experiment["policies"][tag] for tag in POLICIES}}


def run(tree: Tree, *arguments: str) -> tuple[str, list[str]]:
    """Run Snakemake as a user does. Returns what it printed and the rules of the jobs that it finished, sorted."""
    command = cut_off([sys.executable, "-m", "snakemake", *arguments, "--cores", "2"])
    environment = watched({**os.environ, "OMP_NUM_THREADS": "1", "MUJOCO_GL": "egl"}, tree.path / NETWORK_LOG)
    done = subprocess.run(command, cwd=tree.path, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output, sorted(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", output, re.MULTILINE))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The workflow after one run of the small experiment."""
    tree = copy_workflow(tmp_path_factory.mktemp("workflow"))
    run(tree, "--configfile", tree.experiment("small", small({})))
    return tree


def test_the_whole_workflow_ends_in_a_report(finished: Tree):
    report = finished.path / "results/small/report"
    page = (report / "index.html").read_text()
    assert "recap" in page and "steam" in page
    summary = (report / "summary.txt").read_text()
    assert "of 2 initial states" in summary
    assert "positive, indicator shown" in summary and "on training frames, gap " in summary
    figures = (
        "success",
        "critic_evaluation",
        "predicted_returns",
        "critic_training",
        "values",
        "advantages",
        "positive_rate",
        "policy_training",
    )
    assert all((report / f"{name}.png").stat().st_size > 10_000 for name in figures)
    drawn = re.findall(r'data-edge="(\w+ \w+)"', page)
    assert {"train_critic compute_values", "compute_scores compute_threshold", "train_policy collect_dataset"} <= {*drawn}
    assert re.search(r"train_policy +4 ", tables_of(page))  # jobs, by their run times


def tables_of(page: str) -> str:
    """The cells of a page's tables, a line a row."""
    return re.sub(r"<[^>]*>", " ", page.replace("</tr>", "</tr>\n"))


def test_snakemakes_own_report_shows_figures_with_captions(finished: Tree):
    run(finished, "--report", "snakemake.html", "--configfile", str(finished.path / "small.yaml"))
    text = (finished.path / "snakemake.html").read_text()
    for name in ("calibration and success", "positive over time", "the whole report", "Wilson", "Policies"):
        assert name in text, name


def test_no_stage_asked_the_network(finished: Tree):
    log = finished.path / NETWORK_LOG
    assert not log.exists(), log.read_text()


@pytest.mark.parametrize("tag", ["n10_q20", "steam_q30"])
def test_labels_know_corrections(finished: Tree, tag: str):
    meta = Path(finished.path / "data/demo/rollouts/meta")
    labels = pq.read_table(meta / f"advantages_{tag}.parquet", columns=["episode_index", "frame_index", "advantage"])
    (data,) = (finished.path / "data/demo/rollouts/data").rglob("*.parquet")
    frames = pq.read_table(data, columns=["episode_index", "frame_index", "intervene_flag"])
    assert labels["episode_index"].equals(frames["episode_index"])
    corrected = [flag for (flag,) in zip(frames["intervene_flag"].to_pylist(), strict=True)]
    assert any(corrected)
    assert all(label for label, flag in zip(labels["advantage"].to_pylist(), corrected, strict=True) if flag)


def test_a_second_run_does_nothing(finished: Tree):
    output, jobs = run(finished, "--configfile", str(finished.path / "small.yaml"))
    assert jobs == [] and "Nothing to be done" in output


def test_a_second_experiment_can_be_planned_by_the_rates_of_the_first(finished: Tree):
    changes = {"experiment": "second", "policies.start.max_steps": 7200, "critics.value.optim.lr": 2e-3}
    file = finished.experiment("second", small(changes))
    commands, _ = run(finished, "-n", "-p", "--forceall", "--configfile", file)
    command = [sys.executable, "-m", "recap_steam.costs", "--config", file]
    plan = subprocess.run(command, cwd=finished.path, input=commands, capture_output=True, text=True, check=True).stdout
    assert "not measured" not in plan.lower() and "Sum of what was measured" in plan, plan
    start = next(line.split("|") for line in plan.splitlines() if re.match(r"\| train_policy +\| start ", line))
    rate = json.loads(next((finished.path / "state/rates").glob("train_policy_*.json")).read_text())
    assert start[6].strip() == "57,600 samples" and start[10].strip() == "CPU x 1"
    assert float(start[9]) == pytest.approx(57_600 * rate["device_seconds"] / 3600, abs=0.006)


def test_replicates_share_no_initial_state_and_are_pooled(finished: Tree):
    experiment = small({"experiment": "study", "evaluations.paired.policies": ["start"], "rounds": {}})
    for dataset in experiment["datasets"].values():
        del dataset["path"]
    file = finished.experiment("study", experiment)
    for seed in (0, 1):
        run(finished, "evaluations", "--configfile", file, "--config", f"experiment=study_seed{seed}", f"seed={seed}")
    script = finished.path / "workflow/scripts/summarise_evidence.py"
    command = [sys.executable, script, "--config", file, "--seeds", "0", "1", "--output-dir", "evidence"]
    said = subprocess.run(command, cwd=finished.path, capture_output=True, text=True, check=True).stdout
    assert said == "study, evaluation paired: Nothing is missing.\n"
    states = pq.read_table(finished.path / "evidence/episodes.parquet").to_pydict()
    assert states["initial_state"] == [12000, 12001, 1_012_000, 1_012_001] and states["seed"] == [0, 0, 1, 1]
    folders = [finished.path / f"data/study_seed{seed}/demonstrations" for seed in (0, 1)]
    actions = [pq.read_table(next((folder / "data").rglob("*.parquet")))["action"] for folder in folders]
    assert not actions[0].equals(actions[1])


def rounds(tree: Tree, count: int) -> tuple[str, str]:
    loop = {"rounds": {"recap": {"count": count, "dataset": "rollouts"}}}
    return "--configfile", tree.experiment(f"rounds{count}", small(loop))


def made(tree: Tree) -> dict[str, tuple[int, bytes]]:
    """Time and bytes of every file of data and of results; of the experiment as a whole speak its report, rule graph and catalogue."""
    whole = re.compile(r"results/small/(report/|rule_graph\.dot|catalogue\.duckdb)")
    files = [path for folder in ("data", "results") for path in (tree.path / folder).rglob("*") if path.is_file()]
    names = {str(path.relative_to(tree.path)): path for path in files}
    return {name: (path.stat().st_mtime_ns, path.read_bytes()) for name, path in names.items() if not whole.match(name)}


def test_a_further_round_adds_its_own_files_and_touches_none(finished: Tree):
    first = made(finished)
    _, jobs = run(finished, *rounds(finished, 2))
    once = (
        "collect_dataset",
        "index_dataset",
        "cache_frames",
        "compute_returns",
        "train_critic",
        "compute_threshold",
        "compute_norm_stats",
    )
    once += ("train_policy", "evaluate_policy", "draw_rule_graph", "build_report", "all")
    several = {"compute_values": 4, "compute_advantages": 3, "plot_diagnostics": 3}
    assert {rule: jobs.count(rule) for rule in jobs} == dict.fromkeys(once, 1) | several
    second = made(finished)
    assert {name: second[name] for name in first} == first
    assert {"data/demo/rollouts_recap_r2/meta/info.json", "results/small/policies/recap_r2/model.safetensors"} <= second.keys()


def test_the_ledger_says_what_each_round_had_and_gave(finished: Tree):
    results, data = Path("results/small"), ["demonstrations", "rollouts", "rollouts_recap_r2"]
    question = "SELECT round, policy, collected_by, new_data, episodes, learns_from, critic, labels, positive_rate, evaluated, successes "
    with contextlib.chdir(finished.path), duckdb.connect(str(results / "catalogue.duckdb"), read_only=True) as catalogue:
        found = catalogue.sql(f"{question} FROM ledger ORDER BY round").fetchall()
        arms = [pq.read_table(results / f"evaluations/paired/{arm}.parquet") for arm in ("start_plain", "recap_w2", "recap_r2_w2")]
        summary = (results / "report/summary.txt").read_text()
    assert [row[:8] for row in found] == [
        (0, "start", None, None, None, data[:1], None, None),
        (1, "recap", "start", "rollouts", 4, data[:2], "value", "n10_q20"),
        (2, "recap_r2", "recap", "rollouts_recap_r2", 4, data, "value_recap_r2", "n10_q20_recap_r2"),
    ]
    assert [row[9:] for row in found] == [(2, sum(arm["success"].to_pylist())) for arm in arms]
    assert found[0][8] is None and all(0.2 < row[8] < 1 for row in found[1:])  # a fifth of the frames, and corrections
    assert re.search(r"^2 +recap_r2 +random weights +recap +rollouts_recap_r2 +4 ", summary, re.MULTILINE), summary


def test_a_third_round_would_make_nothing_of_the_others_again(finished: Tree):
    """By Snakemake's own account of what it made: every job but the report is of the third round."""
    assert finished.plan(*rounds(finished, 2)) == {}
    status, output = finished.snakemake(*rounds(finished, 3), "-n")
    jobs = re.findall(r"^Job \d+: (.+)$", output, re.MULTILINE)
    assert status == 0 and len(jobs) == 25, output
    others = ["Ask Snakemake for the graph of its rules", "Build the report", "Everything that the experiment describes"]
    assert sorted(job for job in jobs if "recap_r3" not in job) == others


def test_another_quantile_reruns_labels_and_what_reads_them(finished: Tree):
    changed = small({"advantages.n10_q20.positive_quantile": 0.5, "advantages.steam_q30.rollout_quantile": 0.5})
    _, jobs = run(finished, "--configfile", finished.experiment("changed", changed))
    once = {"compute_threshold": 2, "compute_advantages": 4, "plot_diagnostics": 4, "train_policy": 2, "evaluate_policy": 2}
    assert {rule: jobs.count(rule) for rule in jobs} == once | {"draw_rule_graph": 1, "build_report": 1, "all": 1}


def test_videos_are_of_the_chosen_episodes_and_of_any_other(finished: Tree):
    other = "results/small/videos/n10_q20/rollouts/episode_000003.mp4"
    _, jobs = run(finished, "videos", other, "--configfile", str(finished.path / "changed.yaml"))
    made = {str(path.relative_to(finished.path)) for path in (finished.path / "results/small/videos").rglob("*.mp4")}
    chosen = {f"{tag}/{name}" for tag in ("n10_q20", "steam_q30") for name in ("demonstrations", "rollouts")}
    assert {str(Path(path).parent).removeprefix("results/small/videos/") for path in made} == chosen
    assert jobs.count("choose_episodes") == 2 and jobs.count("render_video") == len(made) == len(chosen) + (len(made) > len(chosen))
    assert other in made and all((finished.path / path).stat().st_size > 1000 for path in made)
    assert all(len(list((finished.path / f"results/small/diagnostics/{folder}/episodes").iterdir())) == 1 for folder in chosen)


def test_publishing_for_the_reference_is_an_explicit_target(finished: Tree):
    meta = finished.path / "data/demo/rollouts/meta"
    assert not (meta / "mixture_config.yaml").exists()
    run(finished, "mixture", "publish_stats", "--configfile", str(finished.path / "changed.yaml"))
    assert "unified_threshold" in (meta / "mixture_config.yaml").read_text()
    assert '"return"' in (meta / "stats.json").read_text()
