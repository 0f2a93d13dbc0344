"""What made an artefact: digests of data, parameters, inputs and code, and the check that every consumer calls."""

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recap_steam.errors import UserError

SCHEMA_VERSION = 1
METADATA_KEY = b"recap_steam"  # of the entry in Parquet and Arrow metadata that holds a lineage
_PACKAGE = __name__.split(".")[0]
_ROOT = Path(__file__).parent


def digest_json(value: Any) -> str:
    """SHA-256 (hex) of ``value``'s canonical JSON: sorted keys, no spaces; NaN and infinities are refused."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path | str) -> str:
    """SHA-256 (hex) of a file's bytes.

    Raises:
        UserError: the file is missing.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: not found; run Snakemake again, it makes what is missing") from None


def digest_listing(paths: Iterable[Path | str], suffixes: tuple[str, ...] | str = "") -> str:
    """SHA-256 (hex) over name, size and time, not content, of the files at and below ``paths`` whose names end on one of ``suffixes``."""
    files = sorted(file for path in paths for file in _files(path) if file.endswith(suffixes) and os.path.isfile(file))
    status = [os.stat(file) for file in files]
    return digest_json([(file, found.st_size, found.st_mtime_ns) for file, found in zip(files, status, strict=True)])


def _files(path: Path | str) -> Iterator[str]:
    """A path itself and, if it is a folder, what is anywhere in it."""
    yield str(path)
    for folder, _, names in os.walk(path, followlinks=True):
        yield from (os.path.join(folder, name) for name in names)


def code_digest(*modules: str) -> str:
    """SHA-256 (hex) over the sources of ``modules`` and of everything in this package that they import, directly or not.

    Nothing is imported, so the Snakefile can call it for modules that need torch.

    Raises:
        ValueError: no such module in this package.
    """
    found: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module in found:
            continue
        if _source(module) is None:
            raise ValueError(f"no module {module} in {_PACKAGE}")
        found.add(module)
        todo += _imports(module)
    return digest_json({module: _file_digest(module) for module in found})


def _source(module: str) -> Path | None:
    """The file of a module of this package, without importing it."""
    package, *parts = module.split(".")
    if package != _PACKAGE:
        return None
    path = _ROOT.joinpath(*parts)
    return next((file for file in (path.with_suffix(".py") if parts else path, path / "__init__.py") if file.is_file()), None)


@functools.cache
def _file_digest(module: str) -> str:
    return hashlib.sha256(_source(module).read_bytes()).hexdigest()


@functools.cache
def _imports(module: str) -> list[str]:
    """Modules of this package that ``module`` names in its import statements, and the packages that contain it."""
    path = _source(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = [package] if package else []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return [name for name in names if _source(name) is not None]


@dataclasses.dataclass(frozen=True)
class Lineage:
    """The record that every sidecar and checkpoint carries. It holds no timestamp, so that equal inputs give equal bytes.

    Attributes:
        stage: rule that made the artefact, for example ``compute_returns``.
        tag: parameter set or dataset name.
        dataset_fingerprint: of the dataset that rows belong to; None if the artefact belongs to several (they are in ``inputs``).
        parameters: all parameters that the content depends on.
        inputs: digest by name of everything else that was read.
        statistics: facts about the content: mean, std, min, max, counts, for people and reports; and digests of a checkpoint's weights.
        code: digest of the code that made it (``code_digest``).
        schema_version: version of this record.
    """

    stage: str
    tag: str
    dataset_fingerprint: str | None
    parameters: dict[str, Any]
    inputs: dict[str, str]
    statistics: dict[str, Any]
    code: str
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """One line of JSON with sorted keys."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, path: Path | str) -> "Lineage":
        """Read ``to_json``'s text, found in ``path``.

        Raises:
            UserError: not a lineage record of this schema version.
        """
        try:
            lineage = cls(**json.loads(text))
        except (TypeError, ValueError):
            raise UserError(f"{path}: its lineage record is unreadable; delete the file and run its stage again") from None
        if lineage.schema_version != SCHEMA_VERSION:
            version = lineage.schema_version
            raise UserError(f"{path}: lineage schema version {version}, expected {SCHEMA_VERSION}; delete the file and run its stage again")
        return lineage


def check_lineage(found: Lineage, *, path: Path | str, remedy: str, **expected: Any) -> None:
    """Check that an artefact is the one its consumer needs.

    Args:
        found: what the artefact says.
        path: the artefact, for the message.
        remedy: what to run if it is another, for the message.
        expected: fields of ``Lineage`` with their expected value. Of mappings, such as ``parameters`` and ``inputs``, only the given
            keys are compared, so a consumer states just what it relies on.

    Raises:
        UserError: naming the first field or key that differs, both values and the remedy.
    """
    for field, value in expected.items():
        actual = getattr(found, field)
        pairs = [(field, actual, value)]
        if isinstance(value, dict):
            pairs = [(f"{field}.{key}", actual.get(key, "absent"), item) for key, item in value.items()]
        for name, was, needed in pairs:
            if was != needed:
                raise UserError(f"{path}: {name} is {_short(was)}, needed is {_short(needed)}; {remedy}")


def _short(value: Any) -> str:
    """Digests are shown by their first 12 digits."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
