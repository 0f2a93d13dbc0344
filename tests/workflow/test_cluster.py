"""What the profiles ask of Slurm for jobs that run on devices, and what one machine makes of the same experiment.

The shipped profiles and the real executor submit to an ``sbatch`` that writes down its arguments and refuses the job; tests/slurm has a
real Slurm do the work.
"""

import re
import shlex

import pytest
from snakemake.cli import parse_args

from tests.workflow.tree import Tree, copy_workflow, demo_with

pytest.importorskip("snakemake_executor_plugin_slurm")

PROFILES = ("slurm", "slurm-ascend")
MANY = {"critics.value.devices": 8, "critics.value.nodes": 2, "critics.progress.devices": 4, "policies.recap.devices": 2}
TRAIN_CRITIC = ("--forcerun", "train_critic", "--until", "train_critic")
EVALUATE_POLICY = ("--forcerun", "evaluate_policy", "--", "results/demo/evaluations/paired/start_plain.parquet")
EIGHT_ON_TWO_NODES = {"--cpus-per-task": "64", "--mem": "400000", "--nodes": "2", "--ntasks": "2"}


@pytest.fixture(scope="module")
def submitting(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A finished tree from which jobs are submitted, and refused."""
    tree = copy_workflow(tmp_path_factory.mktemp("submitting"))
    tree.finish()
    commands = tree.path / "bin"
    commands.mkdir()
    for name in ("sbatch", "squeue", "sacct", "sacctmgr", "sshare", "sinfo", "scontrol"):
        script = 'printf "%s\\n" "$*" >> asked; exit 1' if name == "sbatch" else "exit 0"
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    return tree


def asked(tree: Tree, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[dict[str, str], str]:
    """Return the options of the first submission and all that Snakemake printed."""
    monkeypatch.setenv("PATH", str(tree.path / "bin"), prepend=":")
    (tree.path / "asked").unlink(missing_ok=True)
    quick = ("--slurm-init-seconds-before-status-checks", "1")
    status, output = tree.snakemake(*quick, *arguments)
    assert status == 1, output
    words = shlex.split((tree.path / "asked").read_text().splitlines()[0].split(" --wrap=")[0])
    options = [(word, following) for word, following in zip(words, [*words[1:], ""], strict=True) if word.startswith("-")]
    return dict(option.split("=", 1) if "=" in option else (option, value) for option, value in options), output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--profile", "slurm"), EIGHT_ON_TWO_NODES | {"-p": "gpu", "--gres": "gpu:8"}),
        (("--profile", "slurm-ascend"), EIGHT_ON_TWO_NODES | {"-p": "npu", "--gres": "npu:8"}),
        (
            ("--profile", "slurm", "--config", "accelerator=none", "cpus_per_device=8"),
            EIGHT_ON_TWO_NODES | {"-p": "cpu", "--gres": None},
        ),
        (
            ("--profile", "slurm", "--config", "accelerator=cuda", "accelerator_model=h200", "mem_mb_per_device=1000"),
            {"-p": "cpu", "--gres": "gpu:h200:8", "--cpus-per-task": "8", "--mem": "8000", "--nodes": "2", "--ntasks": "2"},
        ),
    ],
    ids=["cuda", "ascend", "none", "a model"],
)
def test_a_job_asks_for_what_its_entry_says(
    submitting: Tree, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: dict[str, str | None]
) -> None:
    file = submitting.experiment("many", demo_with(MANY))
    options, output = asked(submitting, monkeypatch, "--configfile", file, *TRAIN_CRITIC, *arguments)
    assert {option: options.get(option) for option in expected} == expected
    assert "--ntasks-per-gpu" not in options
    threads = expected["--cpus-per-task"]
    assert f"exec python -m recap_steam.launch --nodes 2 --devices 8 --threads {threads} workflow/scripts/train_critic.py " in output


@pytest.mark.parametrize("profile", PROFILES)
def test_a_simulation_asks_for_one_device(submitting: Tree, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    options, _ = asked(submitting, monkeypatch, "--profile", profile, *EVALUATE_POLICY)
    assert options["--gres"] in ("gpu:1", "npu:1")
    assert (options["--nodes"], options["--cpus-per-task"], options["--mem"]) == ("1", "8", "50000")
    assert (options["--signal"], "--requeue" in options) == ("TERM@300", True)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_profile_sets_is_lost_by_config_on_the_command_line_and_missed(submitting: Tree, profile: str) -> None:
    status, output = submitting.snakemake("--profile", profile, *TRAIN_CRITIC, "--config", "experiment=demo")
    assert status == 1
    assert output.splitlines()[-1].startswith("error: config: accelerator: ")
    assert "Traceback" not in output


def test_only_profiles_retry(tree: Tree) -> None:
    """A retrying rule is tried again by each of the three Snakemakes of a cluster's job, inside one that failed already."""
    assert [path.name for path in (tree.path / "workflow/rules").glob("*.smk") if re.search(r"\bretries\b", path.read_text())] == []


def test_an_accelerator_without_an_entry_is_refused_by_name(tree: Tree) -> None:
    status, output = tree.snakemake("-n", "--config", "accelerator=tpu")
    assert status == 1
    assert output.splitlines()[-1].startswith("error: config: accelerator: 'tpu' is not one of none, cuda, ascend; ")


@pytest.mark.parametrize("profile", PROFILES)
def test_cluster_profiles_are_found_from_a_clone(tree: Tree, profile: str) -> None:
    status, output = tree.snakemake("-n", "--profile", profile, "datasets")
    assert status == 0, output


@pytest.mark.parametrize("profile", PROFILES)
def test_the_default_profile_takes_nothing_from_a_cluster_profile(tree: Tree, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake lays profiles/default over every other profile, whole keys at a time."""
    monkeypatch.chdir(tree.path)
    both, alone = (vars(parse_args(["--profile", profile, *more])[1]) for more in ([], ["--workflow-profile", "none"]))
    assert both["set_resources"] and both["show_failed_logs"]
    both["workflow_profile"] = alone["workflow_profile"]
    assert re.sub(" at 0x[0-9a-f]+", "", repr(both)) == re.sub(" at 0x[0-9a-f]+", "", repr(alone))  # resources have no equality


LAUNCHED = re.compile(r"exec python -m recap_steam\.launch --nodes (\d+) --devices (\d+) --threads (\d+) workflow/scripts/(\w+)\.py")


def launched(tree: Tree, *arguments: str) -> dict[str, set[tuple[int, int, int]]]:
    """Return (nodes, devices, threads) of the jobs of each script that a run on one machine would start."""
    status, output = tree.snakemake("-n", "-p", "--configfile", tree.experiment("many", demo_with(MANY)), *arguments)
    assert status == 0, output
    found: dict[str, set[tuple[int, int, int]]] = {}
    for *numbers, script in LAUNCHED.findall(output):
        found.setdefault(script, set()).add(tuple(map(int, numbers)))
    return found


def test_on_one_machine_a_job_has_the_devices_of_its_entry(tree: Tree) -> None:
    assert launched(tree, "--cores", "64", "--config", "cpus_per_device=4") == {
        "train_critic": {(2, 8, 32)},
        "compute_values": {(2, 8, 32)},
        "train_member": {(1, 4, 16)},
        "compute_scores": {(1, 4, 16)},
        "train_policy": {(1, 1, 4), (1, 2, 8)},
        "collect_dataset": {(1, 1, 4)},
        "evaluate_policy": {(1, 1, 4)},
    }


def test_a_machine_with_fewer_devices_and_cores_gives_what_it_has(tree: Tree) -> None:
    found = launched(tree, "--cores", "2", "--resources", "devices=3")
    assert found["train_critic"] == {(2, 3, 2)}
    assert found["train_policy"] == {(1, 1, 1), (1, 2, 2)}
