"""The experiment file: validation, defaults, typed objects, and a reference of every key that cannot drift from the schema."""

import copy
import dataclasses
import itertools
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from recap_steam import config
from recap_steam.config import DatasetConfig, load_experiment, load_slice, meta_folder
from recap_steam.errors import UserError
from recap_steam.label_config import AdvantagesConfig, SteamAdvantagesConfig
from recap_steam.schema import refuse_duplicate_keys, with_defaults
from tests.references import refused
from tests.schema_keys import SCHEMA, Key, all_keys

REPOSITORY = Path(__file__).parents[2]
DATASET = {"path": "data/x", "type": "rollout"}
ENVIRONMENT = {"task": "drawer-open-v3", "prompt": "open the drawer"}
LIBERO = {"simulator": "libero", "suite": "libero_10", "task_id": 0, "prompt": "p"}

STEAM = {
    **{"method": "steam", "k": 4, "datasets": ["d"], "cameras": ["c"], "model": {"image_size": 64}},
    **{"optim": {"lr": 1.0e-3}, "max_steps": 10, "global_batch_size": 8},
}


def demo() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())


def test_a_name_alone_is_an_experiment_with_empty_sections() -> None:
    experiment = load_experiment({"experiment": "mine"})
    assert experiment.datasets == experiment.policies == experiment.evaluations == {}


def test_empty_sections_are_as_good_as_absent_ones() -> None:
    assert load_experiment({"experiment": "mine", "datasets": None}) == load_experiment({"experiment": "mine"})


def test_defaults_are_filled_in_and_the_given_document_stays_as_it_was() -> None:
    raw = {"experiment": "mine", "datasets": {"x": DATASET}}
    before = copy.deepcopy(raw)
    dataset = load_experiment(raw).datasets["x"]
    assert raw == before
    assert dataset == DatasetConfig(
        path="data/x", type="rollout", weight=1.0, split="train", camera_map=None, sidecar_root=None, collect=None
    )


def test_filled_documents_are_valid_and_mean_the_same() -> None:
    filled = with_defaults(demo())
    assert with_defaults(filled) == filled
    assert load_experiment(json.loads(json.dumps(filled))) == load_experiment(demo())


def test_a_section_given_empty_takes_its_defaults() -> None:
    assert load_experiment(demo()).policies["start"].model.small.depth == 2


def test_a_slice_has_what_it_was_given_and_nothing_else() -> None:
    dataset = load_slice({"datasets": {"x": DATASET}}).datasets["x"]
    assert (dataset.path, dataset.type) == ("data/x", "rollout")
    for absent in ("weight", "sidecar_root"):
        with pytest.raises(AttributeError, match=absent):
            getattr(dataset, absent)
    with pytest.raises(KeyError, match="wieght"):
        load_slice({"datasets": {"x": DATASET | {"wieght": 1.0}}})
    assert load_slice(config.whole_experiment(demo())) == load_experiment(demo())


def test_an_entry_has_the_keys_of_its_method() -> None:
    labels = {"critic": "progress", "datasets": ["x"]}
    entries = {
        "critics": {"progress": STEAM},
        "advantages": {"scored": labels | {"label_mode": "threshold"}, "valued": labels},
    }
    experiment = load_experiment({"experiment": "mine", **entries})
    assert isinstance(experiment.critics["progress"], config.ProgressCriticConfig)
    assert experiment.critics["progress"].model.num_bins == 2
    assert isinstance(experiment.advantages["scored"], SteamAdvantagesConfig)
    assert isinstance(experiment.advantages["valued"], AdvantagesConfig)
    part = load_slice({"critics": {"progress": {"method": "steam", "k": 4}}}).critics["progress"]
    assert isinstance(part, config.ProgressCriticConfig) and part.k == 4


def test_results_depend_on_neither_execution_nor_the_number_of_members() -> None:
    filled = config.whole_experiment({"experiment": "mine", "critics": {"progress": STEAM}})
    critic = load_slice(filled).critics["progress"]
    parameters = config.result_parameters(critic)
    left_out = {field.name for field in dataclasses.fields(critic)} - parameters.keys()
    assert left_out == {*config.EXECUTION_KEYS, *config.ENSEMBLE_KEYS}
    assert parameters["model"]["num_bins"] == 2
    del filled["critics"]["progress"]["ensemble_size"]  # as a member's slice has it
    assert config.result_parameters(load_slice(filled).critics["progress"]) == parameters


def test_slices_are_laid_over_each_other() -> None:
    one, two = {"datasets": {"x": DATASET, "y": DATASET}}, {"datasets": {"x": {"weight": 2.0}}, "returns": {"r": {"gamma": 1.0}}}
    merged = load_slice(one, two)
    assert (merged.datasets["x"].path, merged.datasets["x"].weight) == ("data/x", 2.0)
    assert merged.datasets["y"].path == "data/x"
    assert merged.returns["r"].gamma == 1.0
    assert one == {"datasets": {"x": DATASET, "y": DATASET}}


def test_camera_keys_are_the_cameras_themselves_without_a_map() -> None:
    datasets = {"own": DATASET, "mapped": {"path": "data/y", "type": "sft", "camera_map": "droid"}}
    experiment = load_experiment({"experiment": "x", "datasets": datasets})
    base = "observation.images.base_0_rgb"
    assert config.camera_keys(experiment, "own", [base]) == {base: base}
    assert config.camera_keys(experiment, "mapped", [base]) == {base: "observation.images.exterior_1_left"}


MISTAKES = {
    "no name": ({}, "the experiment file: 'experiment' is a required property"),
    "bad name": ({"experiment": "My Lab"}, "experiment: 'My Lab' does not match"),
    "unknown section": ({"experiment": "x", "dataset": {}}, "'dataset' was unexpected"),
    "unknown key": ({"experiment": "x", "datasets": {"d": DATASET | {"wieght": 1}}}, "datasets.d: Additional properties"),
    "known keys are listed": ({"experiment": "x", "datasets": {"d": DATASET | {"wieght": 1}}}, "weight"),
    "missing key": ({"experiment": "x", "datasets": {"d": {"path": "p"}}}, "datasets.d: 'type' is a required property"),
    "wrong choice": ({"experiment": "x", "datasets": {"d": DATASET | {"type": "demo"}}}, "datasets.d.type: 'demo' is not one of"),
    "zero weight": ({"experiment": "x", "datasets": {"d": DATASET | {"weight": 0}}}, "datasets.d.weight: 0 is less than"),
    "not a number": ({"experiment": "x", "returns": {"r": {"failure_reward": float("nan")}}}, "r.failure_reward: nan is not of type"),
    "infinite": ({"experiment": "x", "datasets": {"d": DATASET | {"weight": float("inf")}}}, "d.weight: inf is not of type 'number'"),
    "float for a count": ({"experiment": "x", "environments": {"e": ENVIRONMENT | {"image_size": 64.0}}}, "64.0 is not of type 'integer'"),
    "count as text": (
        {"experiment": "x", "environments": {"e": ENVIRONMENT | {"image_size": "1e2"}}},
        "reads 1e2 as text: write 100 (",
    ),
    "key of a critic's labels beside an import": (
        {"experiment": "x", "advantages": {"a": {"imported": {"column": "good"}, "datasets": ["d"], "critic": "value"}}},
        "advantages.a: Additional properties are not allowed ('critic' was unexpected); known keys: datasets, imported",
    ),
    "key of the other method": (
        {"experiment": "x", "critics": {"c": STEAM | {"returns_tag": "r"}}},
        "critics.c: Additional properties are not allowed ('returns_tag' was unexpected); known keys: balance_dataset_weights, cameras,",
    ),
    "keys of the method are listed": (
        {"experiment": "x", "critics": {"c": STEAM | {"kk": 3}}},
        "max_steps, members, method,",
    ),
    "unknown method": (
        {"experiment": "x", "critics": {"c": STEAM | {"method": "stem"}}},
        "critics.c.method: 'stem' is not one of",
    ),
    "no look-ahead": (
        {"experiment": "x", "critics": {"c": {key: value for key, value in STEAM.items() if key != "k"}}},
        "critics.c: 'k' is a required property",
    ),
    "metric of the other method": (
        {"experiment": "x", "critics": {"c": STEAM | {"eval": {"selection_metric": "mae"}}}},
        "critics.c.eval.selection_metric: 'mae' is not one of ['loss', 'accuracy', 'accuracy_neighbor']",
    ),
    "scores without a mode": (
        {"experiment": "x", "advantages": {"a": {"critic": "c", "datasets": ["d"], "rollout_quantile": 0.3}}},
        "advantages.a: 'label_mode' is a required property",
    ),
    "pool of scores": (
        {"experiment": "x", "advantages": {"a": {"critic": "c", "datasets": ["d"], "label_mode": "quantile", "pool": "all"}}},
        "advantages.a: Additional properties are not allowed ('pool' was unexpected); known keys: baseline_lookahead, critic,",
    ),
    "key of the other simulator": (
        {"experiment": "x", "environments": {"e": ENVIRONMENT | {"suite": "libero_10"}}},
        "environments.e: Additional properties are not allowed ('suite' was unexpected); known keys: action_repeat, camera_name,",
    ),
    "camera of the other simulator": (
        {"experiment": "x", "environments": {"e": LIBERO | {"camera_name": "agentview"}}},
        "environments.e: Additional properties are not allowed ('camera_name' was unexpected); known keys: action_repeat, assets, cameras,",
    ),
    "unknown suite": (
        {"experiment": "x", "environments": {"e": LIBERO | {"suite": "libero_11"}}},
        "environments.e.suite: 'libero_11' is not",
    ),
    "branch as revision": (
        {"experiment": "x", "datasets": {"d": DATASET | {"download": {"repo_id": "a/b", "revision": "main", "num_episodes": 3}}}},
        "datasets.d.download.revision: 'main' does not match",
    ),
    "number as text": ({"experiment": "x", "returns": {"r": {"failure_reward": "-3e2"}}}, "YAML reads -3e2 as text: write -300.0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_key(mistake: str) -> None:
    raw, message = MISTAKES[mistake]
    with refused(message):
        load_experiment(raw)


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [(DATASET, "data/x/meta"), (DATASET | {"path": "/data/x/"}, "/data/x/meta"), (DATASET | {"sidecar_root": "side"}, "side/name")],
)
def test_sidecars_lie_beside_the_data_or_below_the_sidecar_root(dataset: dict[str, Any], folder: str) -> None:
    experiment = load_experiment({"experiment": "x", "datasets": {"name": dataset}})
    assert meta_folder("name", experiment.datasets["name"]) == folder


def test_dataclasses_have_exactly_the_keys_of_the_schema() -> None:
    """A key of the schema without a field would be accepted and ignored."""
    named = {(re.sub(r"(\.\*)+$", "", key.path), key.method) for key in all_keys()}  # cameras have users' names
    assert set(fields(config.Experiment)) == named - {("seed", None)}  # which is written out in all others


def fields(dataclass: type, prefix: str = "", method: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Yield (key, method) of every field; of several dataclasses for one entry, each is a method's."""
    for name, hint in typing.get_type_hints(dataclass).items():
        key = f"{prefix}.{name}".removeprefix(".")
        many = typing.get_origin(hint) is dict
        item = typing.get_args(hint)[1] if many else hint
        nested = [option for option in (item, *typing.get_args(item)) if dataclasses.is_dataclass(option)]
        free = SCHEMA["$defs"][name] if name in ("siglip_config", "gemma3_config") else {}  # mappings, passed on to transformers
        for option in nested:
            kind = method_of(option) if len(nested) > 1 else method
            yield from fields(option, f"{key}.*" if many else key, kind)
        if not nested:
            yield from [(f"{key}.{word}", method) for word in free["properties"]] if free else [(key, method)]


def method_of(dataclass: type) -> str:
    """By its name: STEAM's, what is imported instead of computed, a simulator's, or RECAP's."""
    names = {"Steam": "steam", "Progress": "steam", "Imported": "imported", "MetaWorld": "metaworld", "Libero": "libero"}
    return next((method for name, method in names.items() if dataclass.__name__.startswith(name)), "recap")


def test_every_key_is_explained_with_its_default() -> None:
    text = (REPOSITORY / "config/README.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| `")] == list(rows())


def rows() -> Iterator[str]:
    """Yield the lines of config/README.md's tables: of a section first the keys of both methods, then one method's after the other."""
    for _, section in itertools.groupby(all_keys(), lambda key: key.path.split(".")[0]):
        ordered = sorted(section, key=lambda key: (None, "recap", "steam", "imported", "metaworld", "libero").index(key.method))
        by_method = {method: [row(key) for key in keys] for method, keys in itertools.groupby(ordered, lambda key: key.method)}
        first, second = by_method.get("recap") or by_method.get("metaworld", []), by_method.get("steam") or by_method.get("libero", [])
        shared = by_method.pop(None, [line for line in first if line in second])
        yield from shared
        for lines in by_method.values():
            yield from (line for line in lines if line not in shared)


def row(key: Key) -> str:
    """A key's line in config/README.md."""
    default = f"`{json.dumps(key.schema['default'])}`" if "default" in key.schema else "required" if key.required else "absent"
    choices = key.schema.get("enum", [])
    meaning = key.schema["description"]
    if not all(choice in meaning for choice in choices):
        meaning = f"{', '.join(choices)}. {meaning}"
    return f"| `{key.path}` | {default} | {meaning} |".replace("<", "\\<")


def test_a_key_given_twice_is_named_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("experiment: x\nreturns:\n  a: {failure_reward: -1}\n  b: {failure_reward: -2}\n  a: {failure_reward: -3}\n")
    with pytest.raises(UserError) as caught:
        refuse_duplicate_keys(file)
    assert str(caught.value) == f"{file}: returns.a is given twice, again in line 5; keep one of them"


def test_a_key_given_twice_on_one_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("returns: {a: {gamma: 1.0, gamma: 0.9}}\n")
    with pytest.raises(UserError, match=r"returns\.a\.gamma is given twice, again in line 1"):
        refuse_duplicate_keys(tmp_path / "mine.yaml")


def test_a_merged_key_may_be_given_again() -> None:
    assert "<<: *policy" in (REPOSITORY / "config/config.yaml").read_text()
    refuse_duplicate_keys(REPOSITORY / "config/config.yaml")
