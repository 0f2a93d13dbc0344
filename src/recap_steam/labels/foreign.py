"""Sidecars and columns that another tool wrote: no lineage says what they belong to, so every row is compared with the dataset now."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.dataset.arrow import to_numpy
from recap_steam.dataset.columns import KEY_COLUMNS, first_true, frame_keys, integers, is_list, matrix, place, single, some
from recap_steam.dataset.episodes import Episodes
from recap_steam.dataset.layout import Dataset
from recap_steam.dataset.reader import read_table
from recap_steam.errors import UserError


def read_foreign(path: Path, columns: pa.Schema, episodes: Episodes) -> dict[str, np.ndarray]:
    """Read ``columns`` in the dtypes of that schema, in row order: (F,), lists (F, width). The rows of the file may be in any order.

    Raises:
        UserError: unreadable file, missing or wrongly typed column, null, NaN or infinite number, and every disagreement of its frames
            with those of the dataset: unknown, missing or repeated ones.
    """
    table = read_table(path, [*KEY_COLUMNS, *columns.names])
    rows = _rows(table, path, episodes)
    found = {}
    for field in columns:
        numbers = _values(table, field, path)
        found[field.name] = np.empty_like(numbers)
        found[field.name][rows] = numbers
    return found


def read_column(dataset: Dataset, field: pa.Field, episodes: Episodes) -> np.ndarray:
    """Read a column of the dataset's own files in the dtype of ``field``: (F,) in row order. ``episodes`` are those of the files.

    Raises:
        UserError: missing or wrongly typed column, null, NaN or infinite number.
    """
    found = np.empty(episodes.num_frames, field.type.to_pandas_dtype())
    for path in dataset.data_files():
        table = read_table(path, [*KEY_COLUMNS, field.name])
        found[episodes.locate(*frame_keys(table, path))] = _values(table, field, path)
    return found


def _rows(table: pa.Table, path: Path, episodes: Episodes) -> np.ndarray:
    """Row of the dataset (n,) of every row of the file; each of the dataset's occurs once."""
    remedy = f"it belongs to another version of dataset {episodes.dataset}: make it again from this one"
    rows = episodes.locate(*frame_keys(table, path))
    if (rows < 0).any():
        where = place(table, path, first_true(rows < 0))
        raise UserError(f"{where}: the dataset has no such frame ({(rows < 0).sum()} such rows); {remedy}")
    counts = np.bincount(rows, minlength=episodes.num_frames)
    for problem, wrong in (("has no row", counts == 0), ("has several rows", counts > 1)):
        if wrong.any():
            first = int(np.argmax(wrong))
            episode, frame = (int(key[0]) for key in episodes.frame_keys(first, first + 1))
            affected = np.unique(episodes.frame_keys()[0][wrong]).tolist()
            raise UserError(f"{path}: episode {episode}, frame {frame} {problem} (episodes concerned: {some(affected)}); {remedy}")
    return rows


def _values(table: pa.Table, field: pa.Field, path: Path) -> np.ndarray:
    return _flags(table, field.name, path) if pa.types.is_boolean(field.type) else _numbers(table, field, path)


def _numbers(table: pa.Table, field: pa.Field, path: Path) -> np.ndarray:
    array = matrix(table, field.name, path)
    item = field.type.value_type if is_list(field.type) else field.type
    if not is_list(field.type):
        if array.shape[1] != 1:
            raise UserError(f"{path}: column '{field.name}' holds lists, expected {field.type}; rewrite the column")
        array = array[:, 0]
    if pa.types.is_integer(item) and array.dtype.kind == "f":
        raise UserError(f"{path}: column '{field.name}' is {array.dtype}, expected {item}; rewrite the column")
    return array.astype(item.to_pandas_dtype(), copy=False)


def _flags(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """Booleans, or integers that are 0 and 1. Other numbers would need a threshold, which nothing says."""
    column = single(table[name])
    if pa.types.is_integer(column.type):
        numbers = integers(table, name, path)
        if (other := ~np.isin(numbers, (0, 1))).any():
            row = first_true(other)
            raise UserError(f"{place(table, path, row)}: '{name}' is {numbers[row]}, expected 0 or 1; write labels, not numbers")
        return numbers.astype(bool)
    if not pa.types.is_boolean(column.type):
        raise UserError(f"{path}: column '{name}' is {column.type}, expected bool (or integers 0 and 1); write labels, not numbers")
    if column.null_count:
        raise UserError(f"{place(table, path, first_true(column.is_null()))}: '{name}' is null; restore the value")
    return to_numpy(column)
