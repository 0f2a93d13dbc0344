"""What happens on the cluster in the tests, and what is left to judge of it. All stories can go on at the same time."""

import dataclasses
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.changes import with_changes
from tests.datasets import write_v30
from tests.slurm import cluster, experiment
from tests.slurm.runs import CPU_NODES, Run, Training, ended, environment, go_on, slurm, state, wait_for, was_told_to_end
from tests.workflow.tree import Tree

VALUE, PAIR = (f"results/cluster/critics/{tag}/model.safetensors" for tag in ("value", "pair"))


@dataclasses.dataclass(frozen=True)
class Story:
    """Runs of Snakemake in a clone, by what they met, in order."""

    tree: Tree
    runs: dict[str, Run]
    environments: tuple[dict[str, str], ...] = ()  # of training processes that ran at the same time


def pipeline(tree: Tree) -> Story:
    """The whole experiment; then a label's parameter changes and a dataset comes along that cannot be read."""
    first = Run(tree, *CPU_NODES).finish()
    write_v30(tree.path / "data/broken", [5])  # rollouts that do not say how they ended
    changes = {"advantages.labels.positive_quantile": 0.5, "datasets.broken": {"path": "data/broken", "type": "rollout"}}
    tree.experiment("experiment", with_changes(experiment.RECAP, changes))
    return Story(tree, {"first": first, "changed": Run(tree, *CPU_NODES).fail()})


def on_two_nodes(tree: Tree, *arguments: str) -> Story:
    """The critic trained on two nodes."""
    tree.experiment("experiment", with_changes(experiment.RECAP, {"critics.value.nodes": 2}))
    return Story(tree, {"training": Run(tree, VALUE, *arguments).finish()})


def on_npus(tree: Tree) -> Story:
    """The critic trained on one NPU of each of two nodes, and another on two of one node at the same time."""
    changes = {"critics.value.nodes": 2, "critics.pair": {**experiment.CRITIC, "devices": 2}}
    tree.experiment("experiment", with_changes(experiment.RECAP, changes))
    run = Run(tree, VALUE, PAIR, profile="slurm-ascend")
    with ThreadPoolExecutor() as pool:
        frozen = list(pool.map(lambda tag: Training(tree, tag).freeze(run), ("value", "pair")))
    environments = tuple(environment(process) for process in frozen)
    for process in frozen:
        go_on(process)
    return Story(tree, {"training": run.finish()}, environments)


def disturbed_jobs(tree: Tree) -> Story:
    """A training is cancelled, then killed, then warned that its time is over; each time Snakemake is started again."""
    runs, training = {}, Training(tree)
    runs["cancelled"] = Run(tree, VALUE, *CPU_NODES)
    slurm("scancel", environment(training.freeze(runs["cancelled"]))["SLURM_JOB_ID"])
    runs["cancelled"].fail()
    runs["killed"] = Run(tree, VALUE, *CPU_NODES)
    os.kill(training.freeze(runs["killed"]), signal.SIGKILL)
    runs["killed"].fail()
    runs["warned"] = Run(
        tree, VALUE, *CPU_NODES, "--set-resources", "train_critic:runtime=7"
    )  # minutes; the warning comes 5 to 6 before the end
    process = training.freeze(runs["warned"])
    wait_for(lambda: ended(process) or was_told_to_end(process))  # some versions of Slurm wake it
    go_on(process)
    runs["warned"].fail()
    runs["last"] = Run(tree, VALUE, *CPU_NODES).finish()
    return Story(tree, runs)


def killed_daemons(tree: Tree) -> Story:
    """The daemon of a training's node is killed, then Snakemake itself: both times the training lives on, and is started a second time."""
    runs, training = {}, Training(tree)
    runs["node"] = Run(tree, VALUE, *CPU_NODES, "accelerator_partition=spare")
    process = training.freeze(runs["node"])
    job, node = (environment(process)[name] for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"))
    cluster.kill_node(node)
    wait_for(lambda: state(job) == "PENDING")  # again: its node is lost
    slurm("scontrol", "update", f"JobId={job}", "StartTime=now")  # instead of two minutes later
    runs["node"].fail()
    cluster.start_node(node)
    wait_for(lambda: ended(process))  # it learns that its job runs elsewhere

    runs["driver"] = Run(tree, VALUE, *CPU_NODES)
    process = training.freeze(runs["driver"])
    runs["driver"].kill()
    runs["unlock"] = Run(tree, "--unlock").finish()
    runs["second"] = Run(tree, VALUE, *CPU_NODES).fail()
    go_on(process)
    wait_for(lambda: state(runs["driver"].submitted()[0]) == "COMPLETED")
    runs["last"] = Run(tree, VALUE, *CPU_NODES).finish()
    return Story(tree, runs)
