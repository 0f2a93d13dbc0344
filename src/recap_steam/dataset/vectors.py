"""State and action vectors of a whole dataset, in row order."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.dataset.columns import KEY_COLUMNS, frame_keys, matrix, place
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.layout import Dataset
from recap_steam.dataset.reader import BATCH_ROWS, read_batches
from recap_steam.errors import UserError, rerun


def read_rows(
    dataset: Dataset, episodes: Episodes, columns: Sequence[str], batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[Path, pa.Table, np.ndarray]]:
    """Stream ``columns`` in file order: (file, table with the key columns too, row number (n,) of every line of the table).

    Raises:
        UserError: a frame that the index does not have, or what ``read_batches`` raises.
    """
    for path in dataset.data_files():
        for table in read_batches(path, [*KEY_COLUMNS, *columns], batch_rows=batch_rows):
            rows = episodes.locate(*frame_keys(table, path))
            if (rows < 0).any():
                where = place(table, path, int(np.argmin(rows)))
                raise UserError(f"{where} is not in the episode index; {rerun('index_dataset')}")
            yield path, table, rows


def read_vectors(dataset: Dataset, episodes: Episodes, column: str) -> np.ndarray:
    """Column ``column`` of every frame as (F, d) float32 in row order; a column of scalars has d = 1.

    Raises:
        UserError: missing column, not numbers, NaN, or rows of different lengths.
    """
    vectors = np.empty((0, 0), dtype=np.float32)
    for path, table, rows in read_rows(dataset, episodes, [column]):
        values = matrix(table, column, path)
        if not vectors.size:
            vectors = np.empty((episodes.num_frames, values.shape[1]), dtype=np.float32)
        if values.shape[1] != vectors.shape[1]:
            raise UserError(
                f"{path}: '{column}' has {values.shape[1]} numbers, other files have {vectors.shape[1]}; repair or drop the file"
            )
        vectors[rows] = values
    return vectors
