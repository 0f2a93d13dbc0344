"""Reading Parquet files that others wrote: whatever is wrong with one is one line that names it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recap_steam.errors import UserError

BATCH_ROWS = 1 << 18  # frames held at once from a large file


def read_batches(path: Path, columns: Sequence[str], optional: Sequence[str] = (), batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Read ``columns`` and those of ``optional`` that exist, as tables of at most ``batch_rows`` rows.

    Raises:
        UserError: unreadable or empty file, or missing column.
    """
    try:
        with pa.OSFile(str(path)) as source:
            file = pq.ParquetFile(source, pre_buffer=False)
            names = set(file.schema_arrow.names)
            missing = [column for column in columns if column not in names]
            if missing:
                raise UserError(f"{path}: no column '{missing[0]}'; it has: {', '.join(file.schema_arrow.names)}")
            wanted = [*columns, *(column for column in optional if column in names)]
            if file.metadata.num_rows == 0:
                raise UserError(f"{path}: no rows; restore it from its source")
            if file.metadata.num_rows <= batch_rows:  # the common case, and the cheapest way to read a small file
                yield file.read(columns=wanted, use_threads=False)
                return
            for batch in file.iter_batches(batch_size=batch_rows, columns=wanted, use_threads=False):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error).strip().split("\n")[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}); restore it from its source") from None


def read_table(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """All rows of ``read_batches``; for small tables."""
    return pa.concat_tables(read_batches(path, columns, optional))


def read_episode(path: Path, index: int, columns: Sequence[str]) -> pa.Table:
    """The rows of episode ``index``, none if the file has none. Row groups that cannot hold any, by their statistics, are not read.

    Raises:
        UserError: unreadable file or missing column.
    """
    try:
        return pq.read_table(path, columns=list(columns), filters=pc.field("episode_index") == index, use_threads=False)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).strip().splitlines()[0]}); restore it from its source") from None
