"""The workflow on a real Slurm of two nodes, through the profiles as they are shipped. Skipped, with the reason, where none can be started.

Command lines change only what is this machine's: how soon it answers, and what its CPU nodes have.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.slurm import cluster, experiment, stories
from tests.slurm.runs import Run, Training, slurm
from tests.slurm.stories import Story
from tests.workflow.tree import Tree

Ends = dict[str, Future[Story]]


@contextlib.contextmanager
def slurm_or_skip(**options: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(cluster.running(**options))
        except cluster.Unavailable as problem:
            pytest.skip(f"no Slurm: {problem}")
        yield


def test_with_accounting_the_profile_needs_no_status_command(tmp_path: Path):
    """Before all others: this Slurm and theirs are not up at the same time."""
    tree = experiment.make(tmp_path)
    profile = tree.path / "profiles/slurm/config.v9+.yaml"
    lines = profile.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("slurm-status-command:")]
    assert len(kept) == len(lines) - 1
    profile.write_text("".join(kept))
    with slurm_or_skip(accounting=True):
        run = Run(tree, "results/cluster/episodes/rollouts.parquet", "--config", "accelerator=none").finish()
        assert run.finished()["index_dataset"] == 1
        assert slurm("sacct", "--noheader", "--allocations", "--format=Account,State").split() == ["default", "COMPLETED"]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """Every story's end. They mostly wait, so three of them go on at the same time."""
    with slurm_or_skip(), ThreadPoolExecutor(3) as pool:
        fresh = pool.submit(stories.pipeline, experiment.make(tmp_path_factory.mktemp("fresh")))
        prepared = prepare(experiment.make(tmp_path_factory.mktemp("prepared")))

        def start(story, *arguments: str) -> Future[Story]:
            path = tmp_path_factory.mktemp("clone", numbered=True) / "clone"
            return pool.submit(story, Tree(Path(shutil.copytree(prepared.path, path, symlinks=True))), *arguments)

        yield {
            "pipeline": fresh,
            "daemons": start(stories.killed_daemons),
            "jobs": start(stories.disturbed_jobs),
            "cpu": start(stories.on_two_nodes, *stories.CPU_NODES),
            "gpu": start(stories.on_two_nodes),
            "npu": start(stories.on_npus),
        }


def prepare(tree: Tree) -> Tree:
    """Compute on this machine, without Slurm, what critics are trained on."""
    frames = [f"results/cluster/frames/{name}_16px.arrow" for name in experiment.RECAP["datasets"]]
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "experiment.yaml", "--", "returns", *frames]
    done = subprocess.run(command, cwd=tree.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree


def test_cpu_nodes_compute_recap_to_its_report(ends: Ends):
    story = ends["pipeline"].result()
    each = ("index_dataset", "cache_frames", "compute_returns", "compute_values", "compute_advantages", "plot_diagnostics")
    once = ("train_critic", "compute_threshold", "compute_norm_stats", "train_policy", "draw_rule_graph", "build_report", "all")
    assert story.runs["first"].finished() == dict.fromkeys(each, len(experiment.RECAP["datasets"])) | dict.fromkeys(once, 1)
    assert (story.tree.path / "results/cluster/report/index.html").exists()


def test_another_quantile_reruns_labels_and_what_reads_them(ends: Ends):
    changed = ends["pipeline"].result().runs["changed"]
    judged = {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2, "train_policy": 1}
    assert changed.finished() == judged | {"draw_rule_graph": 1}


def test_a_failing_job_fails_at_once_says_why_and_takes_nothing_along(ends: Ends):
    story = ends["pipeline"].result()
    output = story.runs["changed"].output
    assert story.runs["changed"].failed() == {"index_dataset": 1}
    here = story.runs["changed"].finished()["draw_rule_graph"]
    assert len(story.runs["changed"].submitted()) == 1 + story.runs["changed"].finished().total() - here  # it was tried once
    assert output.index("Error in rule index_dataset") < output.index("(Rule: train_policy)")  # others went on
    assert "error: " in output and "is_success" in output
    files = set(re.findall(r"\b(?:results|data)/[\w/.@-]*\w", story.runs["first"].output))
    assert len(files) > 30 and all((story.tree.path / name).exists() for name in files)


@pytest.mark.parametrize("nodes", ["cpu", "gpu", "npu"])
def test_two_nodes_train_the_critic_of_one(ends: Ends, nodes: str):
    story, alone = ends[nodes].result(), ends["pipeline"].result()
    job = story.runs["training"].submitted()
    assert "n0 n1" in {" ".join(slurm("scontrol", "show", "hostnames", hosts).split()) for hosts in hosts_of(job)}
    assert Training(story.tree).processes == 2 and Training(alone.tree).processes == 1
    assert_close(story.tree, alone.tree)


def hosts_of(jobs: list[str]) -> list[str]:
    return slurm("squeue", "--noheader", "--states=all", f"--jobs={','.join(jobs)}", "--format=%N").split()


def assert_close(one: Tree, other: Tree) -> None:
    rows = [[json.loads(line) for line in metrics(tree).open()] for tree in (one, other)]
    losses = [[row["train/loss"] for row in run] for run in rows]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)
    weights = [load_file(tree.path / stories.VALUE) for tree in (one, other)]
    for name, tensor in weights[1].items():
        np.testing.assert_allclose(weights[0][name], tensor, atol=5e-3, err_msg=name)


def metrics(tree: Tree) -> Path:
    return (tree.path / stories.VALUE).with_name("metrics.jsonl")


def test_jobs_on_one_node_see_npus_of_their_own(ends: Ends):
    environments = ends["npu"].result().environments
    assert len({environment["SLURMD_NODENAME"] for environment in environments}) == 1
    one, two = (set(environment["ASCEND_RT_VISIBLE_DEVICES"].split(",")) for environment in environments)
    assert (len(one), len(two)) == (1, 2) and not one & two


def test_a_cancelled_killed_and_warned_training_ends_as_an_undisturbed_one(ends: Ends):
    story = ends["jobs"].result()
    for met in ("cancelled", "warned"):
        assert "stopped by SIGTERM at step" in story.runs[met].output
    assert "error: a process was killed by signal 9" in story.runs["killed"].output
    assert_same(story.tree, ends["pipeline"].result().tree)


def test_so_does_one_whose_node_daemon_and_snakemake_were_killed(ends: Ends):
    story = ends["daemons"].result()
    for met in ("node", "second"):
        assert "is writing into this state folder; wait for it or end it" in story.runs[met].output
    assert_same(story.tree, ends["pipeline"].result().tree)


def assert_same(one: Tree, other: Tree) -> None:
    for name in ("model.safetensors", "metrics.jsonl", "lineage.json"):
        paths = [(tree.path / stories.VALUE).with_name(name) for tree in (one, other)]
        assert paths[0].read_bytes() == paths[1].read_bytes(), name
