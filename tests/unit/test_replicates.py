"""A replicate is the experiment with seeds and folders of its own, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from recap_steam.config import load_experiment, whole_experiment
from recap_steam.errors import UserError
from recap_steam.references import check_references
from tests.changes import with_changes

DEMO = yaml.safe_load((Path(__file__).parents[2] / "config/config.yaml").read_text())
ROUNDS = {
    "recap": {"count": 3, "dataset": "rollouts", "controls": ["filtered"], "seed": 7000},
    "steam": {"count": 2, "dataset": "rollouts"},
}


def replicate(number: Any, **changes: Any) -> dict[str, Any]:
    """The demo with rounds, whose folders follow from its name."""
    experiment = with_changes(DEMO, {"rounds": ROUNDS, "seed": number, "experiment": f"demo_seed{number}"})
    for dataset in experiment["datasets"].values():
        del dataset["path"]
    return with_changes(experiment, {key.replace("__", "."): value for key, value in changes.items()})


def leaves(entry: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Every value of nested mappings, by dotted key."""
    nested = [leaves(item, f"{place}{key}.") if isinstance(item, dict) else {f"{place}{key}": item} for key, item in entry.items()]
    return {key: item for part in nested for key, item in part.items()}


def test_every_seed_is_moved_once_and_every_folder_is_its_own() -> None:
    first, second = (leaves(whole_experiment(replicate(seed))) for seed in (0, 3))
    assert first.keys() == second.keys()
    moved = {key: (first[key], second[key]) for key in first if first[key] != second[key]}
    seeds = {key: pair for key, pair in moved.items() if key.split(".")[-1] == "seed"}
    assert len(seeds) == 26 and all(after == before + 3_000_000 for before, after in seeds.values())
    assert {key for key in first if key.split(".")[-1] == "seed"} - seeds.keys() == {"rounds.steam.seed"}  # null: as the dataset's
    paths = {key: pair for key, pair in moved.items() if key.endswith(".path")}
    assert paths["datasets.rollouts.path"] == ("data/demo_seed0/rollouts", "data/demo_seed3/rollouts")
    assert paths["datasets.rollouts_recap_r2.path"] == ("data/demo_seed0/rollouts_recap_r2", "data/demo_seed3/rollouts_recap_r2")
    assert len(paths) == 6 and moved.keys() - seeds.keys() - paths.keys() == {"experiment"}


def test_a_replicate_is_written_out_once_however_often_it_is_read() -> None:
    whole = whole_experiment(replicate(2))
    assert whole_experiment(json.loads(json.dumps(whole))) == whole
    experiment = load_experiment(whole)
    check_references(experiment)
    assert experiment.datasets["rollouts"].collect.seed == 2_002_000
    assert experiment.datasets["rollouts_recap_r3"].collect.seed == 2_007_200
    assert experiment.policies["recap"].seed == 2_000_000


def test_the_first_replicate_is_the_experiment_as_it_is_written() -> None:
    assert whole_experiment(DEMO | {"seed": 0}) == whole_experiment(DEMO)
    assert "seed" not in whole_experiment(DEMO)
    assert load_experiment(DEMO).datasets["rollouts"].path == "data/demo/rollouts"


def test_a_seed_of_another_replicate_is_a_mistake() -> None:
    load_experiment(replicate(0, evaluations__paired__seed=1_012_000))
    with pytest.raises(UserError, match=r"^config: evaluations\.paired\.seed: 1012000 may be .*; with a `seed`, give less than 1,000,000$"):
        load_experiment(replicate(1, evaluations__paired__seed=1_012_000))


def test_replicates_do_not_collect_into_one_folder() -> None:
    load_experiment(replicate(0, datasets__rollouts__path="data/mine"))
    with pytest.raises(
        UserError, match=r"^config: datasets\.rollouts\.path: replicates would overwrite .* in data/mine; with a `seed`, remove it"
    ):
        load_experiment(replicate(1, datasets__rollouts__path="data/mine"))


def test_a_dataset_is_somewhere_or_collected() -> None:
    experiment = replicate(0)
    del experiment["datasets"]["rollouts"]["collect"]
    with pytest.raises(UserError, match=r"^config: datasets\.rollouts: has no path; say where the dataset is, or under `collect` how"):
        load_experiment(experiment)


@pytest.mark.parametrize("seed", [-1, 2001, 1.0, True])
def test_seeds_stay_below_the_least_limit_of_a_random_generator(seed: Any) -> None:
    with pytest.raises(UserError, match=r"^config: seed: "):
        load_experiment(replicate(0, seed=seed))
    largest = whole_experiment(replicate(2000))
    assert max(item for key, item in leaves(largest).items() if key.endswith(".seed") and item is not None) + 1_000_000 < 2**31
