"""What the views of the catalogue are made of: SELECT statements over files, put together as text."""

import dataclasses
from pathlib import Path

from recap_steam.lineage import METADATA_KEY


@dataclasses.dataclass(frozen=True)
class View:
    """``comment``: for readers of the catalogue. ``columns``: name and type of those that the view always has, with no file too.
    ``selects``: SELECT statements by what they read; their union by name is the view."""

    comment: str
    columns: dict[str, str]
    selects: dict[str, str]


def parquet(path: Path | str) -> str:
    """Table of a Parquet file, or of all that a pattern matches."""
    return f"read_parquet({text(path)})"


def record(path: Path) -> str:
    """A table with one row and the column ``record``: the lineage of a file, as JSON."""
    if path.suffix == ".json":
        return f"(SELECT json AS record FROM read_json_objects({text(path)}))"
    key = text(METADATA_KEY.decode())
    return f"(SELECT decode(value)::JSON AS record FROM parquet_kv_metadata({text(path)}) WHERE decode(key) = {key})"


def text(value: object) -> str:
    """``value`` as an SQL string."""
    return "'" + str(value).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
