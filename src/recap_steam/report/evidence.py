"""The evidence: what replicates of some experiments found, as pages, figures and one row an episode. Equal results give equal bytes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tabulate import tabulate

from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.report.figures import ArmPoint, draw_success
from recap_steam.report.results import arm_label
from recap_steam.report.study import RESULTS, Study, read_studies, round_numbers
from recap_steam.report.study_guidance import guidance_table
from recap_steam.report.study_tables import (
    arms_table,
    comparisons_table,
    critics_table,
    ensembles_table,
    ledger_table,
    pooled_summary,
)
from recap_steam.report.tables import Table

SCHEMA = pa.schema(
    [
        ("experiment", pa.string()),
        ("evaluation", pa.string()),
        ("task", pa.string()),
        ("seed", pa.int64()),  # of the replicate
        ("policy", pa.string()),
        ("guidance_scale", pa.float64()),  # null: without indicator
        ("round", pa.int64()),  # null: the scripted expert
        ("initial_state", pa.int64()),
        ("success", pa.bool_()),
        ("num_frames", pa.int64()),
    ]
)
NOTE = (
    "A replicate (seed) is the whole experiment again with other initial states, weights and orders of data. Pooled numbers are over the "
    "initial states of all replicates that have the arms. p: exact McNemar test of their pairs, two-sided, not corrected for the number of "
    "tests. Intervals, 95 %: Wilson's of a rate, Newcombe's paired one of a difference. These are about initial states; what another "
    "training run would give varies more, which the columns by seed show. Guidance chosen elsewhere: in each replicate the scale that "
    "solved most initial states of the experiment's other evaluations (of equal ones the least), judged on the states of this one. A dash: "
    "not there."
)


def evidence_stage(files: list[Path], seeds: list[int], output_dir: Path) -> None:
    """Write ``episodes.parquet``, ``tables.md`` and, for each evaluation, ``success_{evaluation}.png`` of the replicates ``seeds`` of the
    experiment ``files`` to ``output_dir``, as far as they are below this folder.

    Raises:
        UserError: as of ``read_studies``, or not one arm is there.
    """
    studies = read_studies(files, seeds)
    if not any(arms for study in studies for arms in study.arms.values()):
        raise UserError(f"{RESULTS}: no arm of any replicate is here; run make evidence, or this where it ran")
    with atomic_output(output_dir / "episodes.parquet") as path:
        pq.write_table(pa.concat_tables([SCHEMA.empty_table(), *(table for study in studies for table in _rows(study))]), path)
    with atomic_output(output_dir / "tables.md") as path:
        path.write_text("\n\n".join(["# Tables of the evidence", NOTE, *_sections(studies)]) + "\n")
    for evaluation in dict.fromkeys(study.evaluation for study in studies):
        with atomic_output(output_dir / f"success_{evaluation}.png") as path:
            draw_success(path, panels([study for study in studies if study.evaluation == evaluation]))
    print(*(f"{study.title}: {_state(study)}" for study in studies), sep="\n")


def _rows(study: Study) -> Iterator[pa.Table]:
    """One row an episode of every arm that is there."""
    numbers = round_numbers(study.experiment)
    for seed, arms in study.arms.items():
        for (policy, scale), arm in arms.items():
            same = [study.name, study.evaluation, study.task, seed, policy, scale, numbers.get(policy)]
            columns = [*([value] * len(arm.seed) for value in same), arm.seed, arm.success, arm.num_frames]
            yield pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def _sections(studies: list[Study]) -> Iterator[str]:
    """The evaluations of each experiment, then its critics, which are the same in all of them."""
    for name, group in itertools.groupby(studies, lambda study: study.name):
        evaluations = list(group)
        for study in evaluations:
            yield from _section(study, evaluations)
        yield from _parts(name, {"Value critics": critics_table(evaluations[0]), "Progress critics": ensembles_table(evaluations[0])})


def _section(study: Study, studies: list[Study]) -> Iterator[str]:
    """A study's part of the page; ``studies`` are all evaluations of its experiment."""
    episodes = study.experiment.evaluations[study.evaluation].num_episodes
    yield f"## {study.title}"
    yield f"Task {study.task}; {len(study.results)} seeds, {len(study.keys)} arms, {episodes} initial states in each. {_state(study)}"
    tables = {"Arms": arms_table(study), "Tests": comparisons_table(study), "Guidance chosen elsewhere": guidance_table(study, studies)}
    yield from _parts(study.title, tables | {"Rounds": ledger_table(study)})


def _parts(of: str, tables: dict[str, Table]) -> Iterator[str]:
    for title, table in tables.items():
        if table.rows:
            yield f"### {title}, {of}"
            yield markdown(table)


def _state(study: Study) -> str:
    """Whether something is missing, and what."""
    lines = []
    for seed, keys in study.missing().items():
        which = "every arm" if len(keys) == len(study.keys) else ", ".join(f"`{arm_label(key)}`" for key in keys)
        lines.append(f"seed {seed}: {which}")
    return f"**Missing:** {'; '.join(lines)}." if lines else "Nothing is missing."


def panels(studies: list[Study]) -> dict[str, list[ArmPoint]]:
    """What a figure shows, by title; of studies that have an arm."""
    return {f"{study.title}: {study.task}": points for study in studies if (points := _points(study))}


def _points(study: Study) -> list[ArmPoint]:
    """Of every arm that is there: the pooled rate, and those of its replicates."""
    points = []
    for key in study.keys:
        if summary := pooled_summary(study, key):
            single = tuple(float(arm.success.mean()) for arm in study.by_seed(key).values())
            points.append(ArmPoint(arm_label(key), summary.rate, summary.low, summary.high, bool(summary.arm.control), single))
    return points


def markdown(table: Table) -> str:
    """The table in Markdown, numbers flush right."""
    align = ["right" if table.numeric(column) else "left" for column in range(len(table.head))]
    return tabulate(table.rows, table.head, tablefmt="pipe", disable_numparse=True, colalign=align)
