"""How long jobs took, from the tables that Snakemake's ``benchmark:`` writes beside their logs."""

import csv
import dataclasses
from pathlib import Path

from recap_steam.report.tables import MISSING, Table


@dataclasses.dataclass(frozen=True)
class RunTime:
    """One job: ``seconds`` of wall time, ``peak_mib`` of resident memory (None: too short to be measured)."""

    rule: str
    job: str
    seconds: float
    peak_mib: float | None


def read_run_times(logs_dir: Path, files: list[str]) -> list[RunTime]:
    """Of those ``files`` below ``logs_dir``, {rule}/{job}.tsv, that are there: a log may be deleted at any time."""
    return [_read(logs_dir / file, file) for file in files if (logs_dir / file).is_file()]


def _read(path: Path, file: str) -> RunTime:
    with path.open(newline="") as stream:
        *_, row = csv.DictReader(stream, delimiter="\t")
    rule, _, job = file.removesuffix(".tsv").partition("/")
    return RunTime(rule, job.removesuffix("/meta"), float(row["s"]), _number(row["max_rss"]))


def _number(cell: str) -> float | None:
    return None if cell in ("-", "NA", "") else float(cell)


def by_rule(times: list[RunTime]) -> Table:
    """Jobs of each rule together."""
    rows = []
    for rule in dict.fromkeys(time.rule for time in times):
        jobs = [time for time in times if time.rule == rule]
        memory = [time.peak_mib for time in jobs if time.peak_mib is not None]
        total = sum(time.seconds for time in jobs)
        longest = max(time.seconds for time in jobs)
        rows.append([rule, str(len(jobs)), duration(total), duration(longest), f"{max(memory) / 1024:.1f}" if memory else MISSING])
    return Table(["rule", "jobs", "time, all jobs", "longest job", "peak memory, GiB"], rows)


def by_job(times: list[RunTime]) -> Table:
    rows = [
        [time.rule, time.job, duration(time.seconds), MISSING if time.peak_mib is None else f"{time.peak_mib / 1024:.1f}"] for time in times
    ]
    return Table(["rule", "job", "time", "peak memory, GiB"], rows)


def notes(times: list[RunTime]) -> dict[str, str]:
    """By rule, its number of jobs and their time together."""
    table = by_rule(times)
    return {row[0]: f"{row[1]} job{'s' if row[1] != '1' else ''}, {row[2]}" for row in table.rows}


def duration(seconds: float) -> str:
    """``48 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
