"""The episode index as a file: written once by rule index_dataset, verified by every stage that reads it."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam.config import Experiment
from recap_steam.dataset.arrow import text_array, to_arrow, to_numpy
from recap_steam.dataset.columns import some
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.indexing import index_dataset
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.errors import UserError, rerun, run_target
from recap_steam.files import atomic_output
from recap_steam.lineage import METADATA_KEY, Lineage, check_lineage, code_digest

__all__ = ["Episodes", "index_dataset", "index_stage", "load_episodes", "write_episodes"]

STAGE = "index_dataset"
REMEDY = rerun(STAGE)
SCHEMA = pa.schema(
    {
        "episode_index": pa.int64(),
        "length": pa.int64(),
        "success": pa.bool_(),
        "digest": pa.string(),
        "task_frame": pa.list_(pa.int64()),  # first frame of every run of one task
        "task": pa.list_(pa.string()),
        "intervention_start": pa.list_(pa.int64()),
        "intervention_stop": pa.list_(pa.int64()),
    }
)


def index_stage(experiment: Experiment, name: str, output: Path | str) -> None:
    """Rule index_dataset: index the experiment's dataset ``name`` into ``output``, and print notes on what deserves a look."""
    config = experiment.datasets[name]
    dataset = open_dataset(name, config.path)
    stat = _stat(dataset)  # before reading: a change while we read must be noticed later
    episodes, notes = index_dataset(dataset, config.type)
    for note in notes:
        print(f"note: {config.path}: {note}", file=sys.stderr)
    statistics = {
        "num_episodes": len(episodes.length),
        "num_frames": episodes.num_frames,
        "num_successes": int(episodes.success.sum()),
        "num_intervention_frames": int(np.diff(episodes.intervention_span).sum()),
        "notes": notes,
    }
    code = code_digest(__name__)
    lineage = Lineage(STAGE, name, episodes.fingerprint, {"type": config.type}, {}, statistics, code)
    write_episodes(output, episodes, lineage)
    with atomic_output(_stat_path(output)) as temporary:
        temporary.write_text(json.dumps({"fingerprint": episodes.fingerprint, "files": stat}))


def write_episodes(path: Path | str, episodes: Episodes, lineage: Lineage) -> None:
    """Write the index; equal episodes give equal bytes."""
    starts, stops = episodes.intervention_span.T
    task_owner, intervention_owner = (np.searchsorted(episodes.offsets, rows, "right") - 1 for rows in (episodes.task_start, starts))
    texts = text_array(episodes.tasks).take(to_arrow(episodes.task_code))
    columns = {
        "episode_index": to_arrow(episodes.episode_index),
        "length": to_arrow(episodes.length),
        "success": to_arrow(episodes.success),
        "digest": text_array(episodes.digest),
        "task_frame": _lists(episodes, task_owner, to_arrow(episodes.task_start - episodes.offsets[task_owner])),
        "task": _lists(episodes, task_owner, texts),
        "intervention_start": _lists(episodes, intervention_owner, to_arrow(starts - episodes.offsets[intervention_owner])),
        "intervention_stop": _lists(episodes, intervention_owner, to_arrow(stops - episodes.offsets[intervention_owner])),
    }
    table = pa.table(columns, schema=SCHEMA.with_metadata({METADATA_KEY: lineage.to_json()}))
    with atomic_output(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _lists(episodes: Episodes, owner: np.ndarray, values: pa.Array) -> pa.ListArray:
    """One list per episode of the ``values`` whose ``owner`` (ascending positions of episodes) it is."""
    bounds = np.searchsorted(owner, np.arange(len(episodes.length) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(bounds), values)


def load_episodes(path: Path | str, dataset: Dataset) -> Episodes:
    """Read the index of ``dataset`` from ``path`` and verify that the dataset is still what was indexed.

    Verification compares size and modification time of the data files with those at indexing; only where they differ (or are unknown,
    as for a copied index) the dataset is fingerprinted again. Equal content is accepted, for example after a copy.

    Raises:
        UserError: no such index, an index of another dataset, or a dataset that has changed; the message names the episodes.
    """
    episodes, lineage = _read(Path(path), dataset.name)
    check_lineage(lineage, path=path, remedy=REMEDY, stage=STAGE, tag=dataset.name, dataset_fingerprint=episodes.fingerprint)
    if _read_stat(path) == {"fingerprint": episodes.fingerprint, "files": _stat(dataset)}:
        return episodes
    current, _ = index_dataset(dataset, lineage.parameters["type"])
    if current.fingerprint != episodes.fingerprint:
        raise UserError(f"{dataset.root}: dataset {dataset.name} changed since it was indexed: {_difference(episodes, current)}; {REMEDY}")
    return episodes


def _read(path: Path, name: str) -> tuple[Episodes, Lineage]:
    try:
        table = pq.ParquetFile(path).read(use_threads=False)
        lineage = Lineage.from_json(table.schema.metadata[METADATA_KEY], path=path)
        table = table.cast(SCHEMA)
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {run_target('datasets')}") from None
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not a readable episode index; {REMEDY}") from None
    offsets = np.concatenate([[0], np.cumsum(to_numpy(table["length"]))])[:-1]
    texts = table["task"].combine_chunks().flatten().dictionary_encode()
    tasks = sorted(texts.dictionary.to_pylist())
    position = {text: code for code, text in enumerate(tasks)}
    code = np.array([position[text] for text in texts.dictionary.to_pylist()], dtype=np.int32)

    def rows(column: str) -> np.ndarray:
        lists = table[column].combine_chunks()
        return np.repeat(offsets, to_numpy(lists.value_lengths())) + to_numpy(lists.flatten())

    episodes = Episodes(
        dataset=name,
        episode_index=to_numpy(table["episode_index"]),
        length=to_numpy(table["length"]),
        success=to_numpy(table["success"]),
        digest=table["digest"].to_pylist(),
        tasks=tasks,
        task_start=rows("task_frame"),
        task_code=code[to_numpy(texts.indices)],
        intervention_span=np.stack([rows("intervention_start"), rows("intervention_stop")], axis=1),
    )
    return episodes, lineage


def _difference(old: Episodes, new: Episodes) -> str:
    before = dict(zip(old.episode_index.tolist(), old.digest, strict=True))
    after = dict(zip(new.episode_index.tolist(), new.digest, strict=True))
    kinds = {
        "changed": [index for index in before.keys() & after.keys() if before[index] != after[index]],
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
    }
    return "; ".join(f"episodes {kind}: {some(sorted(indices))}" for kind, indices in kinds.items() if indices)


# The state of the data files is machine-local: it lies beside the index, not in it, so that the index depends on content only. It is
# a cache written with the index; without it the dataset is fingerprinted again.


def _stat_path(index: Path | str) -> Path:
    return Path(index).with_suffix(".files.json")


def _stat(dataset: Dataset) -> dict[str, list[int]]:
    """Size and modification time (ns) by file, of all that the index is made from."""
    metadata = [path for path in sorted((dataset.root / "meta").glob("*")) if path.name in ("info.json", "tasks.jsonl", "tasks.parquet")]
    prefix = f"{dataset.root}/"
    stats = {str(path).removeprefix(prefix): os.stat(path) for path in [*metadata, *dataset.data_files()]}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _read_stat(index: Path | str) -> dict | None:
    try:
        return json.loads(_stat_path(index).read_text())
    except (OSError, ValueError):
        return None
