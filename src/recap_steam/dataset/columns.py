"""Arrow columns as NumPy arrays, strictly: nulls, NaN, wrong types and ragged lists are errors that name the frame."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.dataset.arrow import to_numpy
from recap_steam.errors import UserError

KEY_COLUMNS = ("episode_index", "frame_index")


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def single(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def integers(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """An integer column of ``path`` as (n,) int64.

    Raises:
        UserError: another type, or nulls.
    """
    column = single(table[name])
    if not pa.types.is_integer(column.type):
        raise UserError(f"{path}: column '{name}' is {column.type}, expected int64; rewrite the column")
    if column.null_count:
        row = first_true(column.is_null())
        raise UserError(f"{path}: column '{name}' is null at row {row}; restore the value")
    return to_numpy(column).astype(np.int64, copy=False)


def frame_keys(table: pa.Table, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """``episode_index`` and ``frame_index`` of every row of ``table``, two (n,) int64 arrays."""
    return integers(table, "episode_index", path), integers(table, "frame_index", path)


def matrix(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """A numeric column as (n, d) in its own dtype: lists of one length d, or scalars (d = 1).

    Raises:
        UserError: not numbers, ragged, null, NaN or infinite; the message names the first such frame.
    """
    column = single(table[name])
    values, rows = column, len(column)
    if is_list(column.type):
        if column.null_count:
            raise UserError(f"{place(table, path, first_true(column.is_null()))}: '{name}' is null; restore the value")
        values = column.flatten()
        if not pa.types.is_fixed_size_list(column.type):
            _check_widths(column, table, name, path)
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise UserError(f"{path}: column '{name}' is {column.type}, expected float32 numbers or lists of them; rewrite the column")
    array = to_numpy(values).reshape(rows, -1)
    if values.null_count or not np.isfinite(array).all():
        row = int(np.argmax(~np.isfinite(array).all(axis=1)))
        raise UserError(f"{place(table, path, row)}: '{name}' holds NaN, null or infinity; repair or drop the episode")
    return array


def _check_widths(column: pa.ListArray, table: pa.Table, name: str, path: Path) -> None:
    widths = to_numpy(column.value_lengths())
    uneven = (widths != widths[0]) | (widths == 0)
    if uneven.any():
        row = first_true(uneven)
        raise UserError(f"{place(table, path, row)}: '{name}' has {widths[row]} numbers, the first row has {widths[0]}; restore the row")


def place(table: pa.Table, path: Path, row: int) -> str:
    """File, episode and frame of a row, to open a message with."""
    episode, frame = (table[key][row].as_py() for key in KEY_COLUMNS)
    return f"{path}: episode {episode}, frame {frame}"


def first_true(mask: pa.Array | np.ndarray) -> int:
    return int(np.argmax(np.asarray(mask)))


def some(items: Sequence[object], limit: int = 5) -> str:
    """The first few items, for a message."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(str(item) for item in items[:limit]) + more
