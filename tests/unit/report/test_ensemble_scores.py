"""What the page says of ensembles: from made-up results, and from those that training and merging write."""

import json
import shutil
from pathlib import Path

import pytest

from recap_steam.config import load_experiment
from recap_steam.critics.ensemble import merge_stage
from recap_steam.report import ensemble_scores, series
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING
from recap_steam.training.progress_stage import train_member_stage
from tests.experiments import RESULTS, small_config
from tests.unit.critics.experiment import Files, make


@pytest.fixture
def here(finished, tmp_path, monkeypatch) -> Path:
    shutil.copytree(finished / RESULTS / "critics", tmp_path / RESULTS / "critics")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(**critic) -> Results:
    config = small_config()
    config["critics"]["progress"] |= critic
    return Results(load_experiment(config), RESULTS)


def test_members_stand_beside_their_mean_and_the_majority(here):
    accuracy = {row[1]: row[3] for row in ensemble_scores.ensemble_table(results()).rows}
    assert accuracy == {
        "mean of the members, held out": "0.500",
        "majority, held out": "0.250",
        "mean of the members, training pairs": "0.600",
        "member 0, held out": "0.450",
        "member 1, held out": "0.550",
    }
    assert ensemble_scores.sentences(results()) == ["progress: bin accuracy 0.500 held out, majority 0.250: the members beat it."]


def test_members_that_learned_nothing_and_those_trained_on_rollouts_are_named(here):
    folder = RESULTS / "critics/progress"
    evaluation, lineage = (json.loads((folder / name).read_text()) for name in ("evaluation.json", "lineage.json"))
    (folder / "evaluation.json").write_text(json.dumps(evaluation | {"eval/accuracy": 0.25}))
    lineage["parameters"]["members"][1]["parameters"] |= {"datasets": ["demonstrations", "rollouts"], "rollouts": ["rollouts"]}
    (folder / "lineage.json").write_text(json.dumps(lineage))
    weak, rollouts = ensemble_scores.sentences(results())
    assert weak.endswith("the members do not beat it: they have learned no order of frames.")
    assert rollouts.startswith("progress: members were trained on rollouts (rollouts).")
    assert [row[5] for row in ensemble_scores.members_table(results()).rows] == [MISSING, "rollouts"]


def test_merged_members_say_where_they_came_from(here):
    own = ensemble_scores.members_table(results()).rows
    assert [row[2] for row in own] == ["trained here"] * 2 and own[1][3] == "progress, member 1, seed 42"
    path = RESULTS / "critics/progress/merge_manifest.json"
    path.write_text(path.read_text().replace('"raw": "results/small/critics/progress/members/1"', '"raw": "elsewhere/ensemble:1"'))
    merged = results(members=["elsewhere/a", "elsewhere/ensemble:1"])
    assert [row[2] for row in ensemble_scores.members_table(merged).rows][1] == "elsewhere/ensemble:1"
    assert series.training_panels(merged, "ensembles") == []  # their training is elsewhere


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Files, Results]:
    """Two members that trained for a step, on demonstrations and rollouts."""
    options = {"datasets": ["demonstrations", "rollouts"], "train_on_rollouts": True, "ensemble_size": 2, "max_steps": 1}
    files = make(tmp_path_factory.mktemp("experiment")).with_progress(**options)
    folder = files.root / "critics/progress"
    members = [folder / f"members/{member}" for member in range(2)]
    for number, member in enumerate(members):
        train_member_stage(files.experiment, "progress", number, files.episodes, files.frames, files.root / f"state{number}", member)
    merge_stage([str(member) for member in members], folder, overwrite=False)
    return files, Results(files.experiment, files.root)


def test_every_number_of_the_tables_is_there(trained):
    _, found = trained
    rows = ensemble_scores.ensemble_table(found).rows
    assert len(rows) == 5 and not [row for row in rows if MISSING in row]
    rows = ensemble_scores.outcome_table(found).rows
    assert [row[1] for row in rows] == ["failure", "success"] and not [row for row in rows if MISSING in row]
    judgement, rollouts = ensemble_scores.sentences(found)
    assert judgement.startswith("progress: bin accuracy ") and "trained on rollouts (rollouts)" in rollouts


def test_curves_and_members_are_there(trained):
    files, found = trained
    panels = {panel.title: [curve.label for curve in panel.curves] for panel in series.training_panels(found, "ensembles")}
    assert panels["training loss"] == ["progress 0", "progress 1"] and "progress 0, majority" in panels["bin accuracy"]
    seed = str(files.experiment.critics["progress"].seed)
    assert [row[3].split()[-1] for row in ensemble_scores.members_table(found).rows] == [seed, seed]
    assert {"train_member", "merge_ensemble"} <= {lineage.stage for lineage in found.lineages().values()}
