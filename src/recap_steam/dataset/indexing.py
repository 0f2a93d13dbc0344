"""One pass over a dataset's Parquet files: narrow columns and actions in, a checked and fingerprinted table of episodes out."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.dataset.arrow import to_numpy
from recap_steam.dataset.assembly import Assembler, Batch, EpisodeBuilder
from recap_steam.dataset.columns import KEY_COLUMNS, frame_keys, integers, matrix, single, some
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.layout import Dataset
from recap_steam.dataset.outcome import INTERVENTION_COLUMNS, OUTCOME_COLUMN, episode_success, flags
from recap_steam.dataset.reader import read_batches
from recap_steam.errors import UserError

_OPTIONAL = ("task", "task_index", OUTCOME_COLUMN, *INTERVENTION_COLUMNS)


def index_dataset(dataset: Dataset, dataset_type: str) -> tuple[Episodes, list[str]]:
    """Read and check every frame of ``dataset`` (no images).

    Episodes may span files, come in any order and have any indices. A ``task`` text column wins over ``task_index``, as in the
    reference. The outcome column must be valid where it is present; where it is missing, an ``sft`` dataset counts as successful.

    Args:
        dataset: what to read.
        dataset_type: ``sft`` or ``rollout``.

    Returns:
        The episodes, and notes: what was accepted though it deserves a look.

    Raises:
        UserError: unreadable or empty files, missing columns, incomplete or duplicate frames, episodes without data, unknown tasks,
            unclear outcomes, bad actions.
    """
    texts = _Texts()
    columns: set[str] | None = None
    width = None
    assembler = None
    for path in dataset.data_files():
        for table in read_batches(path, [*KEY_COLUMNS, dataset.action_key], _OPTIONAL):
            if columns is None:
                columns = set(table.column_names)
                _check_columns(columns, path, dataset_type)
                assembler = Assembler(texts.text if "task" in columns else dataset.tasks.get)
            if odd := columns ^ set(table.column_names):
                raise UserError(f"{path}: column '{min(odd)}' is in some data files and not in others; add or drop it everywhere")
            batch = _batch(table, path, dataset.action_key, texts)
            width = width or batch.action.shape[1]
            if batch.action.shape[1] != width:
                raise UserError(f"{path}: actions have {batch.action.shape[1]} numbers, other files {width}; repair or drop the file")
            assembler.add(batch)
    builders = sorted(assembler.episodes.values(), key=lambda builder: builder.index)
    _check_lengths(dataset, builders)
    notes: list[str] = []
    return _episodes(dataset.name, builders, OUTCOME_COLUMN in columns, notes), notes


def _check_columns(columns: set[str], path: Path, dataset_type: str) -> None:
    if not columns & {"task", "task_index"}:
        raise UserError(f"{path}: neither 'task_index' nor 'task' column, so prompts are unknown; add one")
    if OUTCOME_COLUMN not in columns and dataset_type == "rollout":
        raise UserError(
            f"{path}: no column '{OUTCOME_COLUMN}', which a dataset of type rollout needs; add it, or set type: sft for demonstrations"
        )


def _batch(table: pa.Table, path: Path, action_key: str, texts: "_Texts") -> Batch:
    names = table.column_names
    episode, frame = frame_keys(table, path)
    interventions = [flags(table, name, path) for name in INTERVENTION_COLUMNS if name in names]
    return Batch(
        path=path,
        episode=episode,
        frame=frame,
        action=matrix(table, action_key, path),
        task=texts.codes(table, path) if "task" in names else integers(table, "task_index", path),
        success=flags(table, OUTCOME_COLUMN, path) if OUTCOME_COLUMN in names else None,
        intervention=np.logical_or.reduce(interventions) if interventions else None,
    )


class _Texts:
    """Numbers for the texts of a ``task`` column, in the order in which they are met."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []

    def text(self, code: int) -> str:
        return self._texts[code]

    def codes(self, table: pa.Table, path: Path) -> np.ndarray:
        """The column ``task`` as (n,) numbers."""
        column = single(table["task"])
        if column.null_count or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise UserError(f"{path}: column 'task' has nulls or is not text ({column.type}); repair it, or drop it to use 'task_index'")
        encoded = column.dictionary_encode()
        new = [text for text in encoded.dictionary.to_pylist() if text not in self._codes]
        self._codes |= {text: len(self._texts) + position for position, text in enumerate(new)}
        self._texts += new
        return np.array([self._codes[text] for text in encoded.dictionary.to_pylist()])[to_numpy(encoded.indices)]


def _check_lengths(dataset: Dataset, builders: list[EpisodeBuilder]) -> None:
    """Frames complete within each episode and in agreement with meta/episodes, where the dataset has it."""
    recorded = dataset.recorded_lengths()
    for builder in builders:
        builder.finish()
        expected = recorded.get(builder.index, builder.num_frames)
        if builder.num_frames != expected:
            raise UserError(
                f"{builder.path}: episode {builder.index} has {builder.num_frames} frames, meta/episodes says {expected}; restore the "
                "missing data file, or correct meta/episodes"
            )
    if absent := sorted(recorded.keys() - {builder.index for builder in builders}):
        name, removal = ("episodes", "export the dataset again") if dataset.version == "v3.0" else ("episodes.jsonl", "remove their lines")
        place = dataset.root / "meta" / name
        raise UserError(f"{place}: episodes without data: {some(absent)}; restore their data files, or {removal}")


def _episodes(name: str, builders: list[EpisodeBuilder], has_outcome: bool, notes: list[str]) -> Episodes:
    success = _outcomes(builders, notes) if has_outcome else [True] * len(builders)
    if not has_outcome:
        notes.append(f"no column '{OUTCOME_COLUMN}': all count as successes")
    offsets = np.concatenate([[0], np.cumsum([builder.num_frames for builder in builders])])
    runs = [(offset + frame, text) for offset, builder in zip(offsets, builders, strict=False) for frame, text in builder.tasks]
    spans = [(offset + a, offset + b) for offset, builder in zip(offsets, builders, strict=False) for a, b in builder.interventions]
    tasks = sorted({text for _, text in runs})
    code = {text: position for position, text in enumerate(tasks)}
    return Episodes(
        dataset=name,
        episode_index=np.array([builder.index for builder in builders], dtype=np.int64),
        length=np.diff(offsets).astype(np.int64),
        success=np.array(success, dtype=bool),
        digest=[b.digest.finish(b.num_frames, b.tasks, ok, b.interventions) for b, ok in zip(builders, success, strict=True)],
        tasks=tasks,
        task_start=np.array([row for row, _ in runs], dtype=np.int64),
        task_code=np.array([code[text] for _, text in runs], dtype=np.int32),
        intervention_span=np.array(spans, dtype=np.int64).reshape(-1, 2),
    )


def _outcomes(builders: list[EpisodeBuilder], notes: list[str]) -> list[bool]:
    success, last_only = [], []
    for builder in builders:
        outcome = episode_success(builder.num_frames, builder.num_true, builder.last_is_true)
        if outcome is None:
            raise UserError(
                f"{builder.path}: episode {builder.index}: {OUTCOME_COLUMN} is true in {builder.num_true} of {builder.num_frames} frames; "
                "it must be the same in all frames, or true in the last one only"
            )
        success.append(outcome[0])
        if outcome[1]:
            last_only.append(builder.index)
    if last_only:
        notes.append(f"{OUTCOME_COLUMN} is set on the last frame only, taken as success, in {len(last_only)} episodes: {some(last_only)}")
    return success
