"""The plan of costs: from the commands of a dry run and measured rates to hours."""

import dataclasses
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from recap_steam import rates
from recap_steam.config import load_experiment
from recap_steam.costs import __main__ as costs
from recap_steam.costs.jobs import Job, read_jobs
from recap_steam.costs.known import KnownRates, read_rates, same_speed
from recap_steam.costs.table import NOTHING
from recap_steam.costs.work import Frames, Workload
from recap_steam.dataset.episodes import index_stage
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.lineage import digest_json
from tests.changes import with_changes
from tests.datasets import write_v30

DEMO_FILE = Path(__file__).parents[3] / "config/config.yaml"
DEMO = json.loads(json.dumps(yaml.safe_load(DEMO_FILE.read_text())))  # no shared anchors
LAUNCH = "Shell command: exec python -m recap_steam.launch"
VALUES = f"{LAUNCH} --nodes 1 --devices 4 --threads 4 workflow/scripts/compute_values.py --dataset rollouts --tag value > log 2>&1"
COLLECT = [
    f"{LAUNCH} --nodes 1 --devices 1 --threads 1 workflow/scripts/collect_dataset.py --dataset {name} --output x > log 2>&1"
    for name in ("demonstrations", "rollouts", "heldout")
]


def train(tag: str) -> str:
    """A command as a dry run prints it."""
    return f"{LAUNCH} --nodes 2 --devices 8 --threads 64 workflow/scripts/train_policy.py --config '{{\"a\": 1}}' --tag {tag} > log 2>&1"


def rate(stage: str, work: dict, device: str = "NVIDIA H200", seconds: float = 0.5) -> rates.Rate:
    return rates.Rate(stage, work, "sample", device, 8, seconds)


@pytest.fixture
def plan(monkeypatch, capsys, tmp_path):
    """``make plan`` on the demo with these commands; returns what it prints."""

    def planned(*commands: str, arguments: tuple[str, ...] = ()) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(commands)))
        folders = ["--rates", str(tmp_path / "own"), str(tmp_path / "committed"), "--results", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", ["costs", "--config", str(DEMO_FILE), *folders, *arguments])
        costs.main()
        return capsys.readouterr().out

    return planned


def test_commands_are_jobs_and_other_lines_are_not():
    lines = ["Job 6: Train", "Reason: Updated input files: workflow/scripts/train_policy.py", train("start"), VALUES]
    lines.append("python workflow/scripts/cache_frames.py --dataset a --cameras one two --image-size 64 --output x > log 2>&1")
    policy, values, frames = read_jobs(lines)
    assert policy == Job("train_policy", {"config": ['{"a": 1}'], "tag": ["start"]}, devices=8, nodes=2)
    assert (values.devices, values.nodes, values.option("dataset")) == (4, 1, "rollouts")
    assert (frames.devices, frames.options["cameras"]) == (0, ["one", "two"])
    assert "log" not in str([policy, values, frames])


def test_nothing_to_run_costs_nothing(plan):
    assert plan("Nothing to be done (all requested files are present and up to date).") == f"{NOTHING}\n"


def test_hours_are_units_by_rate_and_devices(plan, tmp_path):
    work = rates.training_work(load_experiment(DEMO).policies["filtered"])
    rate("train_policy", work, seconds=0.9).save(tmp_path / "own")
    output = plan(*COLLECT, train("start"), train("filtered"), VALUES)
    row = next(line for line in output.splitlines() if "filtered" in line)
    assert [cell.strip() for cell in row.split("|")[6:11]] == ["80,000 samples", "2 x 8", "20.00", "1.25", "NVIDIA H200 x 8"]
    assert "Sum of what was measured: 26.40 NVIDIA H200 hours; 1.65 hours, one job after the other." in output
    assert "Not measured on NVIDIA H200: collect_dataset (demonstrations, rollouts, heldout); compute_values (value)." in output


def test_a_device_can_be_asked_for_and_own_rates_come_first(plan, tmp_path):
    work = rates.training_work(load_experiment(DEMO).policies["start"])
    rate("train_policy", work, "NVIDIA H200", 0.9).save(tmp_path / "committed")
    rate("train_policy", work, "CPU", 1.8).save(tmp_path / "own")
    for arguments, hours in (((), "12.80"), (("--device", "NVIDIA H200"), "6.40")):
        assert re.search(rf"train_policy +\| start .* {hours} ", plan(*COLLECT, train("start"), arguments=arguments))
    assert "; train_policy (start)." in plan(*COLLECT, train("start"), arguments=("--device", "another"))


def test_what_has_no_model_takes_as_long_with_any_device(plan, tmp_path):
    experiment = load_experiment(DEMO)
    (environment,) = experiment.environments.values()
    rate("train_policy", rates.training_work(experiment.policies["start"]), "NVIDIA H200", 0.9).save(tmp_path / "own")
    rate("evaluate_policy", rates.rollout_work(environment, None, None), "CPU", 0.36).save(tmp_path / "own")
    script = "workflow/scripts/evaluate_policy.py --evaluation paired --policy expert"
    output = plan(f"{LAUNCH} --nodes 1 --devices 1 --threads 1 {script} > log")
    assert "device: NVIDIA H200" in output and "1.00 CPU hours" in output


def test_the_newest_rate_of_a_folder_comes_first_and_a_damaged_one_is_an_error(tmp_path):
    rate("train_policy", {"model": {}}, "old").save(tmp_path)
    rate("train_policy", {"model": {}}, "new").save(tmp_path)
    (old,) = tmp_path.glob("*old*")
    os.utime(old, (1, 1))
    found = read_rates([tmp_path])
    assert [rate.device for rate in found] == ["new", "old"] and KnownRates(found, None).device == "new"
    old.write_text("{}")
    with pytest.raises(UserError, match=r"old\.json: not a measured rate .* delete it"):
        read_rates([tmp_path])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"critics.value.optim.lr": 1.0}, True),
        ({"critics.value.max_steps": 7}, True),
        ({"critics.value.model.value_dropout": 0.5}, True),
        ({"critics.value.model.image_size": 96}, False),
        ({"critics.value.model.freeze_vision_encoder": True}, False),
        ({"critics.value.model.gemma3_config.hidden_size": 64}, False),
        ({"critics.value.model.gemma3_config.vocab_size": 1024}, True),
        ({"critics.value.gradient_checkpointing": True}, False),
        ({"critics.value.cameras": ["one", "two"]}, False),
    ],
)
def test_what_changes_the_speed(changes, same):
    before, after = (rates.training_work(load_experiment(with_changes(DEMO, c)).critics["value"]) for c in ({}, changes))
    assert (same_speed("train_critic", before) == same_speed("train_critic", after)) == same


def test_a_pretrained_folder_counts_by_its_sizes(tmp_path):
    model = DEMO["critics"]["value"]["model"]
    for name, content in (("siglip", {"vision_config": model["siglip_config"]}), ("gemma3", model["gemma3_config"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(content | {"more": 1}))
    given = {f"critics.value.model.{tower}_path": str(tmp_path / tower) for tower in ("siglip", "gemma3")}
    none = {f"critics.value.model.{tower}_config": None for tower in ("siglip", "gemma3")}
    sizes, folders = (load_experiment(with_changes(DEMO, changes)).critics["value"] for changes in ({}, given | none))
    assert same_speed("train_critic", rates.training_work(sizes)) == same_speed("train_critic", rates.training_work(folders))
    elsewhere = dataclasses.replace(folders, model=dataclasses.replace(folders.model, siglip_path="weights/elsewhere"))
    assert same_speed("train_critic", rates.training_work(sizes)) != same_speed("train_critic", rates.training_work(elsewhere))


def test_frames_are_those_of_the_index_or_the_dataset_or_what_collecting_may_give(tmp_path):
    write_v30(tmp_path / "data", [5, 6, 7])
    given = {"path": str(tmp_path / "data"), "type": "sft"}
    collected = DEMO["datasets"]["rollouts"] | {"path": str(tmp_path / "data")}
    experiment = load_experiment(DEMO | {"datasets": {"given": given, "collected": collected}})
    results = tmp_path / "results"
    assert Workload(experiment, results, []).frames("given") == Frames(18)
    again = [Job("collect_dataset", {"dataset": ["collected"]}, 1, 1)]
    assert Workload(experiment, results, again).frames("collected") == Frames(200 * 50, bounded=True)
    index_stage(experiment, "given", results / "episodes/given.parquet")
    shutil.rmtree(tmp_path / "data")
    assert Workload(experiment, results, []).frames("given") == Frames(18)


@pytest.mark.parametrize(("scale", "guided"), [([], False), (["1.0"], False), (["1.5"], True)])
def test_an_arm_that_predicts_twice_is_another_kind_of_work(tmp_path, scale, guided):
    options = {"evaluation": ["paired"], "policy": ["recap"], **({"guidance-scale": scale} if scale else {})}
    work = Workload(load_experiment(DEMO), tmp_path, []).of(Job("evaluate_policy", options, 1, 1))
    assert work.tag == "paired: recap_" + (f"w{float(scale[0]):g}" if scale else "plain")
    assert work.kind["guided"] == guided and work.frames == Frames(200 * 50, bounded=True)


def test_a_rate_that_cannot_be_written_costs_no_job(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(rates.FOLDER, str(tmp_path))
    with atomic_output(tmp_path / f"cache_frames_{digest_json(rates.cache_work(64))[:12]}_CPU.json"):
        rates.leave("cache_frames", lambda: rates.cache_work(64), "image", 10, 2.0)
    assert "another process is writing this file" in capsys.readouterr().err
    (tmp_path / "file").touch()
    monkeypatch.setenv(rates.FOLDER, str(tmp_path / "file"))
    rates.leave("cache_frames", lambda: rates.cache_work(64), "image", 10, 2.0)


def test_rates_are_left_only_where_they_are_wanted(tmp_path, monkeypatch):
    monkeypatch.delenv(rates.FOLDER, raising=False)
    rates.leave("cache_frames", lambda: pytest.fail("not wanted"), "image", 10, 2.0)
    monkeypatch.setenv(rates.FOLDER, str(tmp_path))
    rates.leave("cache_frames", lambda: pytest.fail("nothing was done"), "image", 0, 2.0)
    rates.leave("cache_frames", lambda: rates.cache_work(64), "image", 10, 2.0, "a device", processes=3)
    (left,) = read_rates([tmp_path])
    assert left == rates.Rate("cache_frames", {"image_size": 64}, "image", "a device", 3, pytest.approx(0.6))
