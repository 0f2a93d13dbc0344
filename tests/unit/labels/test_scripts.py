"""The rules' commands as Snakemake starts them: real processes, status and message."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recap_steam.config import whole_experiment

SCRIPTS = Path(__file__).parents[3] / "workflow/scripts"


def run(script, workspace, *arguments, config: dict | None = None) -> subprocess.CompletedProcess:
    """Run a script on the whole experiment, or on a slice ``config``."""
    config = config or whole_experiment(workspace.config)
    command = [sys.executable, SCRIPTS / f"{script}.py", "--config", json.dumps(config), *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def test_from_returns_to_labels_and_files_for_the_reference(workspace):
    rollouts = ("--dataset", "rollouts")
    episodes = ("--episodes", workspace.episodes_path("rollouts"))
    labels = ("--tag", "n2", "--critic-dir", workspace.critic)
    made = {
        "compute_returns": workspace.sidecar("rollouts", "returns_fail20"),
        "compute_threshold": workspace.threshold,
        "compute_advantages": workspace.sidecar("rollouts", "advantages_n2"),
        "merge_mixture": workspace.root / "published/rollouts/mixture.json",
        "publish_stats": workspace.root / "published/rollouts/returns_fail9.json",
    }
    arguments = {
        "compute_returns": (*rollouts, "--tag", "fail20", *episodes),
        "compute_threshold": (*labels, "--episodes-dir", workspace.root / "episodes"),
        "compute_advantages": (*rollouts, *labels, *episodes, "--threshold", workspace.threshold),
        "merge_mixture": (*rollouts, "--thresholds", workspace.threshold),
        "publish_stats": (*rollouts, "--tag", "fail9", *episodes),
    }
    for script, output in made.items():
        finished = run(script, workspace, *arguments[script], "--output", output)
        assert finished.returncode == 0, finished.stderr
        assert output.exists()
    assert not workspace.leftovers()


@pytest.mark.parametrize("broken", ["empty", "half", "no episodes"])
def test_a_broken_sidecar_ends_in_one_line_and_no_output(workspace, broken):
    path = workspace.sidecar("rollouts", "values_value")
    content = path.read_bytes()
    if broken == "no episodes":
        path = workspace.episodes_path("rollouts")
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if broken == "half" else b"")
    episodes_dir, output = workspace.root / "episodes", workspace.threshold
    arguments = ("--tag", "n2", "--critic-dir", workspace.critic, "--episodes-dir", episodes_dir, "--output", output)
    finished = run("compute_threshold", workspace, *arguments)
    assert finished.returncode == 1
    [line] = finished.stderr.splitlines()
    assert line.startswith(f"error: {path}: ") and "; run Snakemake again with " in line
    assert not output.exists() and not workspace.leftovers()


def steam_slice(scored) -> dict:
    """What the workflow passes to the two rules for a STEAM tag."""
    raw = whole_experiment(scored.config)
    keys = ("path", "type", "sidecar_root", "camera_map")
    datasets = {name: {key: entry[key] for key in keys} for name, entry in raw["datasets"].items()}
    critic = raw["critics"]["order"]
    critic = {key: critic[key] for key in ("method", "k", "cameras")} | {"model": {"num_bins": critic["model"]["num_bins"]}}
    labels = {scored.tag: raw["advantages"][scored.tag]}
    return {"datasets": datasets, "camera_maps": {}, "critics": {"order": critic}, "advantages": labels}


def test_labels_from_scores_by_the_same_two_scripts(scored):
    labels, part = ("--tag", scored.tag, "--critic-dir", scored.critic), steam_slice(scored)
    output = scored.sidecar("rollouts", f"advantages_{scored.tag}")
    arguments = {
        "compute_threshold": (*labels, "--episodes-dir", scored.root / "episodes", "--output", scored.threshold),
        "compute_advantages": (
            *("--dataset", "rollouts", *labels, "--episodes", scored.episodes_path("rollouts")),
            *("--threshold", scored.threshold, "--output", output),
        ),
    }
    for script, options in arguments.items():
        finished = run(script, scored, *options, config=part)
        assert finished.returncode == 0, finished.stderr
    assert output.exists() and not scored.leftovers()
    scored.scores("rollouts", k=4)
    finished = run("compute_advantages", scored, *arguments["compute_advantages"], config=part)
    assert finished.returncode == 1
    [line] = finished.stderr.splitlines()
    assert line.startswith("error: ") and "parameters.k is 4, needed is 3" in line
