"""The Parquet contract: one row per frame, sorted by (episode_index, frame_index), with the lineage in the file's metadata.

A sidecar is written whole or not at all, byte-identical when recomputed, and read only by a consumer that states what it expects.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recap_steam.config import DatasetConfig, meta_folder
from recap_steam.dataset.arrow import text_array, to_arrow, to_numpy
from recap_steam.dataset.columns import KEY_COLUMNS, is_list
from recap_steam.dataset.episodes import Episodes
from recap_steam.errors import UserError, rerun, run_target
from recap_steam.files import atomic_output
from recap_steam.lineage import METADATA_KEY, Lineage, check_lineage
from recap_steam.sidecar_schemas import RULES, schema_of

ROW_GROUP_ROWS = 1 << 20  # rows held at once when a sidecar is written
READ_ROWS = 1 << 17  # and when it is read and checked
Column = np.ndarray | pa.Array


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """Content of a sidecar, and its lineage: columns of numbers as NumPy arrays (F,), of lists (F, width), of text as Arrow dictionary
    arrays."""

    columns: dict[str, Column]
    lineage: Lineage


def sidecar_path(config: DatasetConfig, name: str, stem: str) -> Path:
    """Path of sidecar ``stem`` of dataset ``name``, in its ``meta_folder``."""
    return Path(meta_folder(name, config)) / f"{stem}.parquet"


def write_sidecar(path: Path | str, kind: str, columns: Mapping[str, Column | str], episodes: Episodes, lineage: Lineage) -> None:
    """Write a sidecar; the key columns are added, and equal content gives equal bytes.

    Args:
        path: file to write.
        kind: one of ``sidecar_schemas.SCHEMAS``.
        columns: exactly the kind's columns beside the key, (F,) in row order and in the schema's dtype, (F, width) for lists; a ``str``
            is a constant column, an Arrow dictionary array a text column.
        episodes: index of the dataset that the rows belong to.
        lineage: what made the content; its fingerprint must be that of ``episodes``.

    Raises:
        UserError: NaN in a column, another process writing ``path``, or a full device.
        ValueError: the caller's columns are not what the schema says.
    """
    schema = schema_of(kind, columns)
    _check_columns(columns, schema, episodes)
    if lineage.dataset_fingerprint != episodes.fingerprint:
        raise ValueError("the lineage is not of this dataset")
    schema = schema.with_metadata({METADATA_KEY: lineage.to_json()})
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    floats += [f"{field.name}.list.element" for field in schema if is_list(field.type)]  # where Parquet keeps what lists hold
    dictionaries = [field.name for field in schema if field.name == "episode_index" or _is_text(field.type)]
    with (
        atomic_output(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="snappy",
            use_dictionary=dictionaries,
            column_encoding={"frame_index": "DELTA_BINARY_PACKED"} | dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),  # smaller and faster
        ) as writer,
    ):
        for start in range(0, episodes.num_frames, ROW_GROUP_ROWS):
            stop = min(start + ROW_GROUP_ROWS, episodes.num_frames)
            episode, frame = episodes.frame_keys(start, stop)
            part = {"episode_index": episode, "frame_index": frame}
            part |= {name: _slice(column, start, stop) for name, column in columns.items()}
            _refuse_nan(part, path)
            arrays = [part[field.name] for field in schema]
            arrays = [
                array.cast(field.type) if isinstance(array, pa.Array) else to_arrow(array)
                for field, array in zip(schema, arrays, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema), row_group_size=ROW_GROUP_ROWS)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or pa.types.is_string(kind)


def _check_columns(columns: Mapping[str, Column | str], schema: pa.Schema, episodes: Episodes) -> None:
    expected = [name for name in schema.names if name not in KEY_COLUMNS]
    if set(columns) != set(expected):
        raise ValueError(f"columns {sorted(columns)}, expected {sorted(expected)}")
    for name, column in columns.items():
        if isinstance(column, str):
            continue
        kind = column.type if isinstance(column, pa.Array) else pa.from_numpy_dtype(column.dtype)
        if isinstance(column, np.ndarray) and column.ndim == 2:
            kind = pa.list_(pa.field("element", kind))
        right = pa.types.is_dictionary(kind) if _is_text(schema.field(name).type) else kind == schema.field(name).type
        if not right or len(column) != episodes.num_frames:
            raise ValueError(f"column {name}: {kind} x {len(column)}, expected {schema.field(name).type} x {episodes.num_frames}")


def _slice(column: Column | str, start: int, stop: int) -> Column:
    if isinstance(column, str):
        return pa.DictionaryArray.from_arrays(to_arrow(np.zeros(stop - start, np.int32)), text_array([column]))
    return column[start:stop]


def _refuse_nan(part: Mapping[str, Column], path: Path | str) -> None:
    for name, column in part.items():
        if isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isnan(column).any():
            row = int(np.argmax(np.isnan(column).reshape(len(column), -1).any(1)))
            where = f"episode {part['episode_index'][row]}, frame {part['frame_index'][row]}"
            raise UserError(f"{path}: column '{name}' is NaN at {where}; the input that it was computed from is broken, make it again")


def read_sidecar(
    path: Path | str, kind: str, episodes: Episodes, columns: Sequence[str] | None = None, **expected_lineage: object
) -> Sidecar:
    """Read a sidecar and check that it is what the consumer needs.

    Args:
        path: the sidecar.
        kind: one of ``sidecar_schemas.SCHEMAS``.
        episodes: index of the dataset as it is now; the sidecar must be of this very content.
        columns: which columns to return; None: all beside the key. The key is always checked and never returned, rows are in row order.
        expected_lineage: fields of ``Lineage`` that must hold, for example ``tag="fail40", parameters={"gamma": 1.0}``.

    Raises:
        UserError: missing or unreadable file, another schema, other keys, NaN, or another lineage; with the rule to run again.
    """
    remedy = rerun(RULES[kind])
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            metadata = file.schema_arrow.metadata or {}
            if METADATA_KEY not in metadata:
                raise UserError(f"{path}: no lineage, so it was not made by this workflow; move it away and {remedy}")
            lineage = Lineage.from_json(metadata[METADATA_KEY], path=path)
            remedy = rerun(lineage.stage) if lineage.stage.startswith("import_") else remedy
            fingerprint = episodes.fingerprint
            if lineage.dataset_fingerprint != fingerprint:
                versions = f"{lineage.dataset_fingerprint[:12]} instead of {fingerprint[:12]}"
                raise UserError(f"{path}: made from another version of dataset {episodes.dataset} (fingerprint {versions}); {remedy}")
            check_lineage(lineage, path=path, remedy=remedy, **expected_lineage)
            schema = schema_of(kind, file.schema_arrow.names)
            _check_schema(file.schema_arrow, schema, path, remedy)
            names = [name for name in schema.names if name not in KEY_COLUMNS] if columns is None else list(columns)
            return Sidecar(_read_rows(file, names, episodes, path, remedy), lineage)
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {run_target(kind)}") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).strip().splitlines()[0]}); {remedy}") from None


def _check_schema(found: pa.Schema, expected: pa.Schema, path: Path | str, remedy: str) -> None:
    for name in expected.names:
        if name not in found.names:
            raise UserError(f"{path}: no column '{name}'; {remedy}")
        if found.field(name).type != expected.field(name).type:
            raise UserError(f"{path}: column '{name}' is {found.field(name).type}, expected {expected.field(name).type}; {remedy}")
    if extra := [name for name in found.names if name not in expected.names]:
        raise UserError(f"{path}: unexpected column '{extra[0]}'; {remedy}")


def _read_rows(file: pq.ParquetFile, names: Sequence[str], episodes: Episodes, path: Path | str, remedy: str) -> dict[str, Column]:
    """One pass over the rows: keys compared with the index's, columns copied into place."""
    schema = file.schema_arrow
    total = episodes.num_frames
    columns: dict[str, Column] = {}
    texts: dict[str, list[pa.Array]] = {name: [] for name in names if _is_text(schema.field(name).type)}
    start = 0
    for batch in file.iter_batches(batch_size=READ_ROWS, columns=[*KEY_COLUMNS, *names], use_threads=False):
        stop = start + len(batch)
        if not all(
            np.array_equal(to_numpy(batch[key]), wanted) for key, wanted in zip(KEY_COLUMNS, episodes.frame_keys(start, stop), strict=True)
        ):
            raise UserError(f"{path}: {_key_problem(file, episodes)}; {remedy}")
        for name in names:
            column = batch[name]
            _refuse_missing(column, name, episodes, start, path, remedy)
            if name in texts:
                texts[name].append(column if pa.types.is_dictionary(column.type) else column.dictionary_encode())
            else:
                numbers = to_numpy(column)
                columns.setdefault(name, np.empty((total, *numbers.shape[1:]), numbers.dtype))[start:stop] = numbers
        start = stop
    if start != total:
        raise UserError(f"{path}: {_key_problem(file, episodes)}; {remedy}")
    return columns | {name: pa.chunked_array(chunks).unify_dictionaries().combine_chunks() for name, chunks in texts.items()}


def _refuse_missing(column: pa.Array, name: str, episodes: Episodes, start: int, path: Path | str, remedy: str) -> None:
    """Nulls and NaN are errors, and so are lists of other lengths than the first."""
    wrong, width = pc.is_null(column, nan_is_null=True), 1
    if is_list(column.type):
        lengths = to_numpy(pc.fill_null(pc.list_value_length(column), -1))
        if (lengths != lengths[0]).any():
            raise UserError(f"{path}: column '{name}' has lists of different lengths; {remedy}")
        wrong, width = pc.is_null(column.flatten(), nan_is_null=True), int(lengths[0])
    if pc.any(wrong).as_py():
        row = start + int(np.argmax(to_numpy(wrong))) // width
        episode, frame = (int(key[0]) for key in episodes.frame_keys(row, row + 1))
        raise UserError(f"{path}: column '{name}' is NaN or null at episode {episode}, frame {frame} ({pc.sum(wrong)} such rows); {remedy}")


def _key_problem(file: pq.ParquetFile, episodes: Episodes) -> str:
    """What is wrong with the keys: the kind, the first offending frame and how many there are."""
    table = file.read(columns=list(KEY_COLUMNS), use_threads=False)
    if any(table[key].null_count for key in KEY_COLUMNS):
        return "a key is null"
    episode, frame = (to_numpy(table[key]) for key in KEY_COLUMNS)
    rows = episodes.locate(episode, frame)
    counts = np.bincount(rows[rows >= 0], minlength=episodes.num_frames)
    if (rows < 0).any():
        problem, count, at = "has no such frame in the dataset", int((rows < 0).sum()), int(np.argmax(rows < 0))
        return f"episode {episode[at]}, frame {frame[at]} {problem} ({count} such rows)"
    for problem, wrong in (("is missing", counts == 0), ("appears more than once", counts > 1)):
        if wrong.any():
            at = int(np.argmax(wrong))
            first_episode, first_frame = (int(key[0]) for key in episodes.frame_keys(at, at + 1))
            return f"episode {first_episode}, frame {first_frame} {problem} ({int(wrong.sum())} such frames)"
    moved = rows != np.arange(len(rows))
    at = int(np.argmax(moved))
    return f"episode {episode[at]}, frame {frame[at]} is out of order ({int(moved.sum())} such rows)"
