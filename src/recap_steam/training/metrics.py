"""Training metrics: one JSON line per step for the report, the same numbers for TensorBoard, and a progress line for people."""

import functools
import json
import math
import os
import time
from pathlib import Path

from recap_steam import devices, rates
from recap_steam.config import TrainingConfig

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


class Throughput:
    """Prints speed, use of the device, ETA and loss every few seconds and at the end, and leaves the rate of the whole run."""

    def __init__(self, title: str, start: int, total: int, samples_per_step: int):
        self.title, self.total, self.samples_per_step = title, total, samples_per_step
        self._printed = (time.monotonic(), start, 0.0)
        self._first: tuple[float, int] | None = None  # when the first step was done, and its number

    def update(self, step: int, loss: float, data_wait_s: float, step_flops: int) -> dict[str, float]:
        """Print when due. Returns the rates since the last line, for TensorBoard.

        Args:
            data_wait_s: time that this process waited for data, in all.
            step_flops: floating-point operations of the model in one step of this process.
        """
        now = time.monotonic()
        self._first = self._first or (now, step)
        then, then_step, then_wait = self._printed
        elapsed = max(now - then, 1e-9)
        if elapsed < PROGRESS_INTERVAL_S and step < self.total:
            return {}
        self._printed = (now, step, data_wait_s)
        rate = (step - then_step) / elapsed
        found = {
            "time/steps_per_second": rate,
            "time/samples_per_second": rate * self.samples_per_step,
            "time/data_wait_share": (data_wait_s - then_wait) / elapsed,
            "time/peak_memory_gib": devices.peak_memory() / 2**30,
            "time/tflops_per_device": rate * step_flops / 1e12,
        }
        if peak := devices.peak_flops():
            found["time/model_flops_utilization"] = rate * step_flops / peak
        if devices.is_main():
            print(
                f"{self.title}: step {step}/{self.total}, {_text(found)}, ETA {_clock((self.total - step) / rate)}, loss {loss:.4f}",
                flush=True,
            )
        return found

    def leave_rate(self, stage: str, config: TrainingConfig) -> None:
        """Call it after the last step: all since the first one counts, evaluations and saved states too."""
        if self._first and devices.is_main():
            began, step = self._first
            samples = (self.total - step) * self.samples_per_step
            work = functools.partial(rates.training_work, config)
            rates.leave(stage, work, "sample", samples, time.monotonic() - began, devices.name(), devices.world_size())


def _text(found: dict[str, float]) -> str:
    utilization = found.get("time/model_flops_utilization")
    share = "" if utilization is None else f" (model FLOP utilisation {utilization:.0%})"
    return (
        f"{found['time/steps_per_second']:.2f} steps/s, {found['time/samples_per_second']:.0f} samples/s, "
        f"data wait {found['time/data_wait_share']:.0%}, peak memory {found['time/peak_memory_gib']:.1f} GiB, "
        f"{found['time/tflops_per_device']:.3g} TFLOP/s per device{share}"
    )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


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
