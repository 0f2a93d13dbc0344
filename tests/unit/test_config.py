"""The experiment file: validation, defaults, typed objects, and a reference of every key that cannot drift from the schema."""

import copy
import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from recap_steam import config
from recap_steam.config import DatasetConfig, load_experiment, load_slice, meta_folder
from recap_steam.errors import UserError
from recap_steam.schema import SCHEMA_PATH, refuse_duplicate_keys, with_defaults

REPOSITORY = Path(__file__).parents[2]
SCHEMA = yaml.safe_load(SCHEMA_PATH.read_text())
DATASET = {"path": "data/x", "type": "rollout"}
ENVIRONMENT = {"task": "drawer-open-v3", "prompt": "open the drawer"}


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
    filled = with_defaults(demo())
    assert load_slice(filled) == load_experiment(demo())


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
    "number as text": ({"experiment": "x", "returns": {"r": {"failure_reward": "-3e2"}}}, "YAML reads -3e2 as text: write -300.0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_key(mistake: str) -> None:
    raw, message = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        load_experiment(raw)
    text = str(caught.value)
    assert text.startswith("config: ")
    assert "\n" not in text
    assert message in text


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [(DATASET, "data/x/meta"), (DATASET | {"path": "/data/x/"}, "/data/x/meta"), (DATASET | {"sidecar_root": "side"}, "side/name")],
)
def test_sidecars_lie_beside_the_data_or_below_the_sidecar_root(dataset: dict[str, Any], folder: str) -> None:
    experiment = load_experiment({"experiment": "x", "datasets": {"name": dataset}})
    assert meta_folder("name", experiment.datasets["name"]) == folder


def test_dataclasses_have_exactly_the_keys_of_the_schema() -> None:
    """A key of the schema without a field would be accepted and ignored."""
    assert set(fields(config.Experiment)) == {key.removesuffix(".*.*") for key, _, _ in leaves(SCHEMA)}  # cameras have users' names


def fields(dataclass: type, prefix: str = "") -> Iterator[str]:
    for name, hint in typing.get_type_hints(dataclass).items():
        key = f"{prefix}.{name}".removeprefix(".")
        hints = [hint, *typing.get_args(hint)]
        nested = [item for item in hints if dataclasses.is_dataclass(item)]
        free = SCHEMA["$defs"][name] if name in ("siglip_config", "gemma3_config") else {}  # mappings, passed on to transformers
        if nested:
            many = typing.get_origin(hint) is dict
            yield from fields(nested[0], f"{key}.*" if many else key)
        elif free:
            yield from (f"{key}.{item}" for item in free["properties"])
        else:
            yield key


def test_every_key_is_explained_with_its_default() -> None:
    text = (REPOSITORY / "config/README.md").read_text()
    expected = [row(*leaf) for leaf in leaves(SCHEMA)]
    assert [line for line in text.splitlines() if line.startswith("| `")] == expected


def leaves(node: dict[str, Any], key: str = "", required: bool = False) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield (dotted key with ``*`` for names that users choose, its schema, whether it must be given)."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].removeprefix("#/$defs/")] | {name: item for name, item in node.items() if name != "$ref"}
    if isinstance(node.get("additionalProperties"), dict):
        yield from leaves(node["additionalProperties"], f"{key}.*")
    elif "properties" in node:
        for name, child in node["properties"].items():
            yield from leaves(child, f"{key}.{name}".removeprefix("."), name in node.get("required", []))
    else:
        yield key, node, required


def row(key: str, schema: dict[str, Any], required: bool) -> str:
    """A key's line in config/README.md."""
    default = f"`{json.dumps(schema['default'])}`" if "default" in schema else "required" if required else "absent"
    choices = schema.get("enum", [])
    meaning = schema["description"]
    if not all(choice in meaning for choice in choices):
        meaning = f"{', '.join(choices)}. {meaning}"
    return f"| `{key}` | {default} | {meaning} |".replace("<", "\\<")


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
