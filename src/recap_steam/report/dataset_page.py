"""Rule report_datasets: what is in every dataset, as a page, as text for the terminal, and as Parquet. A defect hides no other dataset."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam.config import Experiment
from recap_steam.dataset.inspection import Inspection, inspect_dataset
from recap_steam.files import atomic_output
from recap_steam.report.dataset_figures import Lengths, draw_lengths
from recap_steam.report.dataset_tables import cameras_table, datasets_table, notes_table, tasks_table
from recap_steam.report.document import Block, Document, Notice, Section
from recap_steam.report.tables import Table

LENGTHS = "lengths.png"
NOTE = (
    "Demonstrations without a recorded outcome count as successes. Fingerprint: of indices, tasks, outcomes and actions of all frames "
    "(SHA-256, first 12 digits); equal fingerprints mean equal content. Pictures are not read here: the frame cache checks them."
)


def datasets_stage(experiment: Experiment, output_dir: Path) -> None:
    """Write index.html, summary.txt, lengths.png, datasets.parquet and episodes.parquet into ``output_dir``; print the summary."""
    inspections = [inspect_dataset(name, config) for name, config in experiment.datasets.items()]
    lengths = [_lengths(item) for item in inspections if item.episodes is not None]
    with atomic_output(output_dir / LENGTHS) as path:
        draw_lengths(path, lengths)
    figures = {"Lengths of episodes by outcome": output_dir / LENGTHS} if lengths else {}
    document = Document(
        title="Datasets",
        subtitle="What is in the datasets of the experiment, read before anything is computed.",
        findings=[],
        warnings=[notice for item in inspections for notice in _notices(item)],
        sections=[
            Section("datasets", "Datasets", [Block(table=datasets_table(inspections), note=NOTE)]),
            Section("tasks", "Tasks", _block(tasks_table(inspections))),
            Section("lengths", "Lengths", [Block(figures=figures)] if figures else []),
            Section("cameras", "Cameras", _block(cameras_table(inspections))),
            Section("notes", "Notes", _block(notes_table(inspections), "Accepted, though it deserves a look.")),
        ],
    )
    for name, text in {"index.html": document.html(), "summary.txt": document.text()}.items():
        with atomic_output(output_dir / name) as path:
            path.write_text(text)
    for name, table in {"datasets.parquet": _datasets(inspections), "episodes.parquet": _episodes(inspections)}.items():
        with atomic_output(output_dir / name) as path:
            pq.write_table(table, path, compression="zstd")
    print(document.text())


def _block(table: Table, note: str = "") -> list[Block]:
    return [Block(table=table, note=note)] if table.rows else []


def _notices(item: Inspection) -> list[Notice]:
    """Defects as messages state them: what is wrong; what to do."""
    notices = []
    for defect in item.defects:
        problem, _, remedy = defect.removeprefix(f"dataset {item.name} ").partition("; ")
        notices.append(Notice(f"{item.name}: {problem}.", f"{remedy[:1].upper()}{remedy[1:]}." if remedy else ""))
    return notices


def _lengths(item: Inspection) -> Lengths:
    episodes, success = item.episodes, np.asarray(item.episodes.success)
    if item.config.type == "sft":
        return Lengths(item.name, {"demonstration": episodes.length})
    groups = {"success": episodes.length[success], "failure": episodes.length[~success]}
    return Lengths(item.name, {group: lengths for group, lengths in groups.items() if len(lengths)})


def _datasets(inspections: list[Inspection]) -> pa.Table:
    """One row a dataset; numbers are null where a defect hides them."""
    rows = []
    for item in inspections:
        row = {"dataset": item.name, "path": item.config.path, "type": item.config.type, "notes": item.notes, "defects": item.defects}
        if item.dataset is not None:
            row |= {"version": item.dataset.version, "fps": item.dataset.fps, "cameras": list(item.dataset.cameras)}
        if item.episodes is not None:
            episodes = item.episodes
            row |= {"num_episodes": len(episodes.length), "num_frames": episodes.num_frames, "tasks": episodes.tasks}
            row |= {"num_successes": int(episodes.success.sum()), "fingerprint": episodes.fingerprint}
            row |= {"num_intervention_frames": int(episodes.interventions().sum())}
        rows.append(row)
    texts, numbers = pa.list_(pa.string()), ("num_episodes", "num_frames", "num_successes", "num_intervention_frames")
    schema = {"dataset": pa.string(), "path": pa.string(), "type": pa.string(), "version": pa.string(), "fps": pa.float64()}
    schema |= {"cameras": texts, "tasks": texts, **dict.fromkeys(numbers, pa.int64()), "fingerprint": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema(schema | {"notes": texts, "defects": texts}))


def _episodes(inspections: list[Inspection]) -> pa.Table:
    """One row an episode of every dataset that could be read; ``task`` is that of its first frame."""
    schema = {"dataset": pa.string(), "episode_index": pa.int64(), "task": pa.string(), "success": pa.bool_(), "num_frames": pa.int64()}
    schema = pa.schema(schema | {"num_intervention_frames": pa.int64()})
    parts = [schema.empty_table()]
    for episodes in (item.episodes for item in inspections if item.episodes is not None):
        corrected = np.add.reduceat(episodes.interventions().astype(np.int64), episodes.offsets[:-1])
        task = [episodes.tasks[code] for code in episodes.prompt_codes()[episodes.offsets[:-1]]]
        names = [episodes.dataset] * len(task)
        columns = [names, episodes.episode_index, task, np.asarray(episodes.success), episodes.length, corrected]
        parts.append(pa.table([pa.array(column) for column in columns], names=schema.names).cast(schema))
    return pa.concat_tables(parts)
