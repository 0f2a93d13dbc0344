"""Outcome and intervention flags, read strictly: what is not clearly true or false is an error, never a guess."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recap_steam.dataset.arrow import to_numpy
from recap_steam.dataset.columns import first_true, is_list, place, single
from recap_steam.errors import UserError

OUTCOME_COLUMN = "is_success"
INTERVENTION_COLUMNS = ("intervene_flag", "is_intervention", "intervention")


def flags(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """A flag column as (n,) bool. Accepted are bool, the integers 0 and 1, and lists that hold exactly one of these.

    Raises:
        UserError: anything else (null, NaN, strings, other numbers, other lists); the message names the first such frame.
    """
    column = single(table[name])
    if is_list(column.type):
        wrong = pc.fill_null(pc.not_equal(pc.list_value_length(column), 1), True)
        if pc.any(wrong).as_py():
            _refuse(table, name, path, first_true(wrong))
        column = column.flatten()
    if column.null_count:
        _refuse(table, name, path, first_true(column.is_null()))
    if pa.types.is_boolean(column.type):
        return to_numpy(column)
    if pa.types.is_integer(column.type):
        values = to_numpy(column)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            _refuse(table, name, path, first_true(wrong))
        return values == 1
    row = first_true(pc.is_nan(column)) if pa.types.is_floating(column.type) else 0
    return _refuse(table, name, path, row)


def _refuse(table: pa.Table, name: str, path: Path, row: int) -> np.ndarray:
    value = table[name][row].as_py()
    raise UserError(
        f"{place(table, path, row)}: {name} is {value!r} ({table[name].type}), expected true or false (bool, 0/1, or a list of one of "
        "these); correct the dataset"
    )


def episode_success(num_frames: int, num_true: int, last_is_true: bool) -> tuple[bool, bool] | None:
    """An episode's outcome from its frames' flags.

    Returns:
        (success, whether only the last frame carries the flag), or None if the frames disagree in another way.
    """
    if num_true in (0, num_frames):
        return num_true > 0, False
    return (True, True) if num_true == 1 and last_is_true else None
