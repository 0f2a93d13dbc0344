"""Plain mappings as dataclasses: what an experiment file says, as typed objects."""

import dataclasses
import types
import typing
from typing import Any


def build(hint: Any, value: Any) -> Any:
    """Turn plain mappings into the dataclass, list or mapping that ``hint`` names; a dataclass gets the fields that are given.

    Of several dataclasses, it is the first that has all of the given keys.
    """
    if value is None:
        return None
    if isinstance(hint, types.UnionType):
        hint = _choose([option for option in hint.__args__ if option is not types.NoneType], value)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        entry = object.__new__(hint)
        for key, item in value.items():
            object.__setattr__(entry, key, build(hints[key], item))
        return entry
    if typing.get_origin(hint) is dict:
        return {key: build(hint.__args__[1], item) for key, item in value.items()}
    return value


def _choose(options: list[Any], value: Any) -> Any:
    fitting = (option for option in options if dataclasses.is_dataclass(option) and value.keys() <= typing.get_type_hints(option).keys())
    return next(fitting, options[0])


def laid_over(below: dict, above: dict) -> dict:
    """Return ``below`` with the entries of ``above``, key by key in mappings that both have."""
    nested = {key: laid_over(below[key], item) for key, item in above.items() if isinstance(item, dict) and key in below}
    return below | above | nested
