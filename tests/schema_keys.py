"""Every key of an experiment file, as the schema has it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import yaml

from recap_steam.schema import SCHEMA_PATH

SCHEMA = yaml.safe_load(SCHEMA_PATH.read_text())


@dataclasses.dataclass(frozen=True)
class Key:
    """A key with ``*`` for names that users choose, the method or simulator where an entry has those of one, its schema."""

    path: str
    method: str | None
    schema: dict[str, Any]
    required: bool


def all_keys() -> list[Key]:
    return list(_walk(SCHEMA, Key("", None, {}, False)))


def _walk(node: dict[str, Any], key: Key) -> Iterator[Key]:
    name = node.get("$ref", "").removeprefix("#/$defs/")
    node = SCHEMA["$defs"].get(name, {}) | {word: item for word, item in node.items() if word != "$ref"}
    branches = [condition["then"] for condition in node.get("allOf", [])] + [node[word] for word in ("else", "then") if word in node]
    if branches:
        for branch in branches:
            method = branch["$ref"].removeprefix("#/$defs/").split("_")[0]  # definitions are named by it: recap_critic
            yield from _walk(branch, dataclasses.replace(key, method=method))
    elif isinstance(node.get("additionalProperties"), dict):
        yield from _walk(node["additionalProperties"], dataclasses.replace(key, path=f"{key.path}.*"))
    elif "properties" in node:
        for word, child in node["properties"].items():
            path = f"{key.path}.{word}".removeprefix(".")
            yield from _walk(child, dataclasses.replace(key, path=path, required=word in node.get("required", [])))
    else:
        yield dataclasses.replace(key, schema=node)
