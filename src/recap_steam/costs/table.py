"""The plan as text: one row for the jobs of a stage and tag, then sums, and what could not be estimated."""

import dataclasses

from tabulate import tabulate

from recap_steam.costs.jobs import Job
from recap_steam.costs.known import KnownRates
from recap_steam.costs.work import NO_FRAMES, Frames, Work
from recap_steam.rates import CPU, Rate

HEAD = ["stage", "tag", "jobs", "frames", "steps", "work", "devices", "device hours", "hours", "measured"]
NOTHING = "Nothing to compute: every output is there."


@dataclasses.dataclass
class Row:
    """Jobs of one stage and tag on as many devices; ``rate`` is None where nothing like them was measured."""

    job: Job
    work: Work
    rate: Rate | None
    jobs: int = 0
    frames: Frames = NO_FRAMES
    units: int = 0

    def add(self, work: Work) -> None:
        self.jobs, self.units = self.jobs + 1, self.units + work.units
        self.frames = work.frames if work.steps else self.frames + work.frames  # members of an ensemble learn from the same

    @property
    def device_hours(self) -> float | None:
        """Of all jobs; None where it is not known."""
        return self.units * self.rate.device_seconds / 3600 if self.rate else None

    @property
    def hours(self) -> float | None:
        """One job after the other, as if twice the devices took half the time."""
        hours = self.device_hours
        return None if hours is None else hours / (max(self.job.devices, 1) * self.job.nodes)

    def cells(self) -> list[str]:
        if not self.work.unit:
            return [self.job.stage, "", str(self.jobs), *[""] * 6, "not counted"]
        limit = "at most " if self.frames.bounded else ""
        frames = f"{limit}{self.frames.number:,}"
        rollouts = limit if self.work.unit != "sample" else ""
        return [
            *(self.job.stage, self.work.tag, str(self.jobs), frames),
            f"{self.work.steps:,}" if self.work.steps else "",
            f"{rollouts}{self.units:,} {self.work.unit}s",
            _devices(self.job),
            *(_hours(self.device_hours), _hours(self.hours)),
            f"{self.rate.device} x {self.rate.processes}" if self.rate else "not measured",
        ]


def make_rows(jobs: list[Job], works: list[Work], known: KnownRates) -> list[Row]:
    """Jobs by stage, tag and devices, in the order in which they come, and at the end those that are not estimated."""
    rows: dict[tuple, Row] = {}
    for job, work in zip(jobs, works, strict=True):
        key = (job.stage, work.tag, job.devices, job.nodes)
        if key not in rows:
            rows[key] = Row(job, work, known.of(job.stage, work.kind) if work.unit else None)
        rows[key].add(work)
    stages = list(dict.fromkeys(job.stage for job in jobs))
    return sorted(rows.values(), key=lambda row: (not row.work.unit, stages.index(row.job.stage)))


def describe(rows: list[Row], experiment: str, device: str) -> str:
    """The table and what it adds up to."""
    if not rows:
        return NOTHING
    lines = [f"{experiment}: {sum(row.jobs for row in rows)} jobs would run; device: {device}", ""]
    lines += [tabulate([row.cells() for row in rows], HEAD, tablefmt="github", disable_numparse=True, colalign=_alignment()), ""]
    return "\n".join([*lines, *_sums(rows, device)])


def _sums(rows: list[Row], device: str) -> list[str]:
    known = [row for row in rows if row.rate]
    accelerated = [row.device_hours for row in known if row.rate.device != CPU]
    others = [row.device_hours for row in known if row.rate.device == CPU]
    sums = [f"{_hours(sum(hours))} {name} hours" for name, hours in ((device, accelerated), (CPU, others)) if hours]
    lines = [f"Sum of what was measured: {' and '.join(sums)}; {_hours(sum(row.hours for row in known))} hours, one job after the other."]
    if any(row.frames.bounded for row in known):
        lines.append("At most: rollouts are counted at full length, and may end earlier.")
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.work.unit and not row.rate:
            missing.setdefault(row.job.stage, []).append(row.work.tag)
    if missing:
        lines.append(f"Not measured on {device}: {'; '.join(f'{stage} ({", ".join(tags)})' for stage, tags in missing.items())}.")
        lines.append(
            "A finished job leaves its rate: let it run with few max_steps or episodes. benchmarks/gpu.py measures full-size models."
        )
    return lines if known else lines[1:]


def _alignment() -> list[str]:
    return ["left", "left", *["right"] * 7, "left"]


def _devices(job: Job) -> str:
    if not job.devices:
        return ""
    return str(job.devices) if job.nodes == 1 else f"{job.nodes} x {job.devices}"


def _hours(hours: float | None) -> str:
    if hours is None:
        return ""
    return f"{hours:,.2f}" if hours >= 0.01 else "< 0.01"
