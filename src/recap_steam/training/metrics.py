"""Training metrics: one JSON line per step for the report, the same numbers for TensorBoard, and a progress line for people."""

import json
import math
import os
import time
from pathlib import Path

from recap_steam import devices

PROGRESS_INTERVAL_S = 10.0


class MetricLog:
    """Rows ``{"step": n, name: number, ...}`` in a JSONL file, and the same in TensorBoard. Only process 0 writes.

    Numbers that depend on the clock go to TensorBoard only, so that equal runs write equal files. Non-finite numbers become null.

    Args:
        path: the JSONL file; rows of steps after ``step`` (of a run that died) are dropped, so no step appears twice.
        tensorboard_dir: folder of the event files.
        step: the step that training continues from.
    """

    def __init__(self, path: Path, tensorboard_dir: Path, step: int):
        self.path = path
        self._file = self._tensorboard = None
        if devices.is_main():
            from torch.utils.tensorboard import SummaryWriter

            path.parent.mkdir(parents=True, exist_ok=True)
            _drop_rows_after(path, step)
            self._file = path.open("a", buffering=1)
            self._tensorboard = SummaryWriter(tensorboard_dir, purge_step=step + 1)

    def write(self, step: int, values: dict[str, float], clocked: dict[str, float] | None = None) -> None:
        """Record ``values`` of a step; ``clocked`` are numbers that depend on the clock."""
        if self._file is None:
            return
        row = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        for name, value in {**values, **(clocked or {})}.items():
            self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._tensorboard.close()


class ProgressLine:
    """Prints step, rate, share of time spent waiting for data, ETA and loss every few seconds and at the end."""

    def __init__(self, title: str, start: int, total: int, samples_per_step: int):
        self.title, self.total, self.samples_per_step = title, total, samples_per_step
        self._printed = (time.monotonic(), start, 0.0)

    def update(self, step: int, loss: float, data_wait_s: float) -> dict[str, float]:
        """Print when due; ``data_wait_s`` is the total since the start. Returns the rates since the last line, for TensorBoard."""
        then, then_step, then_wait = self._printed
        elapsed = time.monotonic() - then
        if elapsed < PROGRESS_INTERVAL_S and step < self.total:
            return {}
        rate = (step - then_step) / max(elapsed, 1e-9)
        wait = (data_wait_s - then_wait) / max(elapsed, 1e-9)
        self._printed = (time.monotonic(), step, data_wait_s)
        if devices.is_main():
            minutes, seconds = divmod(round((self.total - step) / rate), 60)
            eta = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
            print(
                f"{self.title}: step {step}/{self.total}, {rate:.2f} steps/s, {rate * self.samples_per_step:.0f} samples/s, "
                f"data wait {wait:.0%}, ETA {eta}, loss {loss:.4f}",
                flush=True,
            )
        return {"time/steps_per_second": rate, "time/samples_per_second": rate * self.samples_per_step, "time/data_wait_share": wait}


def _drop_rows_after(path: Path, step: int) -> None:
    """Keep the whole rows of steps up to ``step``; a killed process may have left later ones, the last one cut short."""
    kept = []
    for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
        if not line.endswith("\n") or json.loads(line)["step"] > step:
            break
        kept.append(line)
    part = path.with_suffix(".part")
    part.write_text("".join(kept))
    os.replace(part, path)
