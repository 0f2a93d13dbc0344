"""Validation of an experiment file: the schema, its defaults, and mistakes as one line each."""

import functools
import math
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from recap_steam.errors import UserError

SCHEMA_PATH = Path(__file__).parents[2] / "config/schemas/config.schema.yaml"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 4 ms for the schema instead of 31, in every job


def with_defaults(raw: dict) -> dict:
    """Return a copy of ``raw`` that is valid under the schema, with every default filled in and absent sections as empty mappings.

    Raises:
        UserError: naming the key, what is wrong with it and what would be right.
    """
    filled = _copy(raw)
    validator = _validator()
    error = jsonschema.exceptions.best_match(validator.iter_errors(filled))
    if error is not None:
        raise UserError(_explain(error))
    for section, subschema in validator.schema["properties"].items():
        if "object" in _resolve(validator.schema, subschema).get("type", ()):
            filled[section] = filled.get(section) or {}
    return filled


def read_experiment(path: Path) -> dict:
    """What an experiment file holds, not validated.

    Raises:
        UserError: no such file, or it is not YAML.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such experiment file; give one with --config")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())}); correct it") from None


def refuse_duplicate_keys(path: str | Path) -> None:
    """Refuse an experiment file that writes a key twice, of which YAML silently keeps the last.

    Raises:
        UserError: naming the file, the key and its second line.
    """
    nodes = [(yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=_LOADER), "")]
    while nodes:
        node, place = nodes.pop()
        if isinstance(node, yaml.SequenceNode):
            nodes += [(item, f"{place}{number}.") for number, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.value in seen:
                    raise UserError(f"{path}: {place}{key.value} is given twice, again in line {key.start_mark.line + 1}; keep one of them")
                seen.add(key.value)
                nodes.append((value, f"{place}{key.value}."))


@functools.cache
def _validator() -> jsonschema.protocols.Validator:
    """A validator that also writes defaults into what it validates."""
    base = jsonschema.Draft202012Validator
    schema = yaml.load(SCHEMA_PATH.read_text(), Loader=_LOADER)

    def fill_then_validate(validator, properties, instance, parent):
        if validator.is_type(instance, "object"):
            for key, subschema in properties.items():
                declared = _resolve(schema, subschema) | subschema
                if key not in instance and "default" in declared:
                    instance[key] = _copy(declared["default"])
        yield from base.VALIDATORS["properties"](validator, properties, instance, parent)

    numbers = base.TYPE_CHECKER.redefine_many({"number": _is_finite_number, "integer": _is_integer})
    return jsonschema.validators.extend(base, {"properties": fill_then_validate}, type_checker=numbers)(schema)


def _is_finite_number(_: jsonschema.TypeChecker, value: Any) -> bool:
    """JSON knows neither NaN nor infinity, YAML does, and NaN passes every limit."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(_: jsonschema.TypeChecker, value: Any) -> bool:
    """Not 1.0e+3, which JSON schema takes for an integer and Python for a float."""
    return isinstance(value, int) and not isinstance(value, bool)


def _resolve(schema: dict, subschema: dict) -> dict:
    """The definition that ``subschema`` refers to; empty if it refers to none."""
    return schema["$defs"][subschema["$ref"].removeprefix("#/$defs/")] if "$ref" in subschema else {}


def _explain(error: jsonschema.ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "the experiment file"
    message = error.message
    if error.validator == "additionalProperties":
        known = ", ".join(sorted(error.schema.get("properties", {})))
        message = f"{message}; known keys: {known}"
    elif error.validator == "type" and isinstance(error.instance, str) and _is_number(error.instance):
        number = _yaml_number(error.instance, whole="integer" in error.validator_value)
        message = f"{message}; YAML reads {error.instance} as text: write {number}"
    return f"config: {place}: {message} (every key is explained in config/README.md)".replace("\n", " ")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _yaml_number(text: str, whole: bool) -> str:
    """YAML wants a point in a number with an exponent, and only digits in a whole one."""
    if whole:
        return str(round(float(text)))
    number = repr(float(text))
    return number if "." in number else number.replace("e", ".0e")


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
