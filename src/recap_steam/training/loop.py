"""The training loop of every trainer: critics and policies differ only in their ``Trainable``."""

import contextlib
import dataclasses
import hashlib
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from recap_steam import devices
from recap_steam.background import ahead
from recap_steam.config import TrainingConfig
from recap_steam.errors import UserError
from recap_steam.files import publish_folder
from recap_steam.lineage import Lineage, digest_file
from recap_steam.training.batches import BatchPlan
from recap_steam.training.flops import ModelFlops
from recap_steam.training.metrics import MetricLog, Throughput
from recap_steam.training.optim import build_optimizer, learning_rate
from recap_steam.training.order import DataOrder, sample_rngs
from recap_steam.training.state import StateFolder, full_weights, require_finite

PREFETCHED_BATCHES = 2

# Name -> (sum, count), logged as the mean over the global batch, or null where the count is 0; (sum, None) is logged as the sum.
Metrics = dict[str, tuple[Tensor, Tensor | None]]


class Trainable(Protocol):
    """What the loop needs of a model, its data and its files.

    A sample is a global int id over the concatenated datasets. Every method is called in every process unless said otherwise.
    """

    model: nn.Module  # fp32 master weights; the loop moves it to the device and shards it
    lengths: list[int]  # samples per dataset
    weights: list[float]  # mixture share per dataset, any scale
    selection: tuple[str, Literal["min", "max"]] | None  # held-out metric that picks the exported checkpoint; None: the last

    def parameter_groups(self) -> list[dict]:
        """Groups ``{"params": ..., "lr": peak (optional)}`` of what is trained. Called once, after sharding."""

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """Build the host micro batch of ``samples`` (n,) int64. Every random draw comes from ``rngs[i]``. Runs in a background thread."""

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Metrics]:
        """Return the scalar mean loss and metrics, under the same names in every call."""

    def evaluate(self) -> dict[str, float]:
        """Return metrics of fixed frames, held out or not. The model is in eval mode, without gradients; process 0's numbers count."""

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        """Write model.safetensors and all else but lineage.json and metrics.jsonl; called in process 0 only.

        ``weights`` are the selected full state dict, ``metrics`` its evaluation.
        """


def train(trainable: Trainable, config: TrainingConfig, state_dir: Path, output_dir: Path, lineage: Lineage) -> None:
    """Train, resuming from ``state_dir`` where a state of the same ``lineage`` lies there, and write the checkpoint to ``output_dir``.

    Every step is a pure function of the state and of (seed, step), so a killed and resumed run ends with the weights of an uninterrupted
    one. SIGTERM while it steps saves the state and ends with an error; while it exports, it is finished all the same.

    Raises:
        UserError: another process trains into ``state_dir``; the batch sizes do not divide; the loss stays non-finite; SIGTERM.
    """
    with devices.exclusive(state_dir):
        trainer = Trainer(trainable, config, Path(state_dir), Path(output_dir), lineage)
        with devices.sigterm() as terminated:
            trainer.run(terminated)
            trainer.export()


class Trainer:
    """One run: the trainable, its optimiser and where it stands."""

    def __init__(self, trainable: Trainable, config: TrainingConfig, state_dir: Path, output_dir: Path, lineage: Lineage):
        self.trainable, self.config, self.output_dir, self.lineage = trainable, config, output_dir, lineage
        self.title = f"{lineage.stage} {lineage.tag}"
        self.plan = BatchPlan.of(config)
        self.model = devices.shard(trainable.model)
        if config.compile_model:
            self.model.compile(backend=devices.compile_backend())
        self.optimizer = build_optimizer(trainable.parameter_groups(), config.optim)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.state = StateFolder(state_dir, hashlib.sha256(lineage.to_json().encode()).hexdigest()[:16])
        self.progress = self.state.resume(self.model, self.optimizer)
        self.data_wait_s = 0.0
        self.step_flops: int | None = None  # of this process; counted in the first step

    def run(self, terminated: list) -> None:
        """Step, evaluate and save until ``max_steps``, or until ``terminated`` is not empty."""
        first, last = self.progress.step, self.config.max_steps
        if first and devices.is_main():
            print(f"{self.title}: resumed at step {first}/{last}", flush=True)
        line = Throughput(self.title, first, last, self.plan.global_batch_size)
        log = MetricLog(self.state.metrics_path, self.output_dir / "tensorboard", first)
        with contextlib.closing(log), contextlib.closing(self._batches()) as batches:
            while self.progress.step < last:
                metrics, stop = self._step(batches, bool(terminated))
                step = self.progress.step
                clocked = line.update(step, metrics["train/loss"], self.data_wait_s, self.step_flops)
                if step % self.config.eval_interval == 0 or step == last:
                    metrics |= self._evaluate()
                log.write(step, metrics, clocked)
                if stop or step % self.config.save_interval == 0 or step == last:
                    self.state.save(self.model, self.optimizer, self.progress)
                if stop and step < last:
                    message = f"{self.title}: stopped by SIGTERM at step {step}/{last}; the state is saved, run it again to go on"
                    raise UserError(message) if devices.is_main() else SystemExit(1)
        line.leave_rate(self.lineage.stage, self.config)

    def export(self) -> None:
        """Write the checkpoint's files beside their final names, then rename them, lineage.json last."""
        best = self.progress.best_step
        weights = full_weights(self.model) if best is None else self.state.load_weights(best)
        part = self.output_dir / ".part"
        with self.state.writing(self.output_dir, part):
            devices.on_main(lambda: self._publish(weights, part))

    def _step(self, batches: Iterator[dict[str, Tensor]], terminated: bool) -> tuple[dict[str, float], bool]:
        """One optimiser step. Returns its metrics and whether any process was told to stop."""
        devices.seed(self.config.seed, self.progress.step, devices.rank())  # dropout; all else is drawn in load()
        rates = [learning_rate(self.progress.step, peak, self.config.optim, self.config.max_steps) for peak in self.peaks]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        sums = self._backward(batches)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip_grad)
        metrics, norm, stop = _reduce(sums, norm, terminated)
        self._update(finite=math.isfinite(metrics["train/loss"]) and math.isfinite(norm))
        return {**metrics, "train/grad_norm": norm, "train/lr": rates[0]}, stop

    def _backward(self, batches: Iterator[dict[str, Tensor]]) -> Metrics:
        """Accumulate the gradient of the mean loss over this process's micro batches; return the metrics' sums and counts over them."""
        self.model.train()
        self.optimizer.zero_grad()
        sums: Metrics = {}
        count = len(self.plan.micro_batches)
        for _ in range(count):
            started = time.monotonic()
            batch = devices.to_device(next(batches))
            self.data_wait_s += time.monotonic() - started
            with self._counted_once():
                with devices.autocast():
                    loss, metrics = self.trainable.loss(batch)
                (loss / count).backward()
            for name, pair in {"loss": (loss, torch.ones_like(loss)), **metrics}.items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = tuple(None if new is None else old + new.detach().float() for old, new in zip(before, pair, strict=True))
        return sums

    @contextlib.contextmanager
    def _counted_once(self) -> Iterator[None]:
        """Count the operations of the first micro batch, which is like all others."""
        if self.step_flops is not None:
            yield
            return
        eager = torch.compiler.set_stance("force_eager") if self.config.compile_model else contextlib.nullcontext()
        with eager, ModelFlops() as counter:
            yield
        self.step_flops = counter.total * len(self.plan.micro_batches)

    def _update(self, finite: bool) -> None:
        """Apply the gradient; a non-finite one is skipped, and too many of them in a row are an error."""
        self.progress.step += 1
        if finite:
            self.optimizer.step()
            self.progress.skipped = 0
            return
        self.progress.skipped += 1
        if self.progress.skipped > self.config.optim.nonfinite_patience:
            raise UserError(
                f"{self.title}: the loss or its gradient is not finite for {self.progress.skipped} steps up to step {self.progress.step}; "
                "lower optim.lr or look for broken frames"
            )

    def _evaluate(self) -> dict[str, float]:
        self.model.eval()
        with torch.no_grad(), devices.autocast():
            metrics = devices.broadcast(self.trainable.evaluate())
        progress, selection = self.progress, self.trainable.selection
        if selection is None:
            progress.best_metrics = metrics
        elif progress.best_step is None or _better(metrics, progress.best_metrics, *selection):
            progress.best_step, progress.best_metrics = progress.step, metrics
            self.state.keep_weights(self.model, progress.step)
        return metrics

    def _batches(self) -> Iterator[dict[str, Tensor]]:
        """The host micro batches from the current step on, in order."""
        order = DataOrder(self.trainable.lengths, self.trainable.weights, self.config.seed)

        def load(step: int, positions: range) -> dict[str, Tensor]:
            samples = order.batch(step, self.plan.global_batch_size)[positions.start : positions.stop]
            return self.trainable.load(samples, sample_rngs(self.config.seed, step, positions))

        steps = range(self.progress.step, self.config.max_steps)
        return ahead((load(step, positions) for step in steps for positions in self.plan.micro_batches), PREFETCHED_BATCHES)

    def _publish(self, weights: dict[str, Tensor], part: Path) -> None:
        require_finite(weights, self.title)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        self.trainable.export(part, weights, self.progress.best_metrics)
        shutil.copyfile(self.state.metrics_path, part / "metrics.jsonl")
        digests = {"model.safetensors": digest_file(part / "model.safetensors")}
        lineage = dataclasses.replace(self.lineage, statistics={**self.lineage.statistics, "digests": digests})
        (part / "lineage.json").write_text(lineage.to_json())
        publish_folder(part, self.output_dir, last="lineage.json")


def _reduce(sums: Metrics, norm: Tensor, terminated: bool) -> tuple[dict[str, float], float, bool]:
    """Metrics over all processes, the gradient's norm, and whether any process was told to stop. The device is read once."""
    columns = [value for pair in sums.values() for value in pair if value is not None]
    *values, norm = torch.stack([*columns, devices.whole(norm)]).tolist()
    *totals, stop = devices.all_sum([*values, float(terminated)])
    remaining = iter(totals)
    metrics = {}
    for name, (_, count) in sums.items():
        total = next(remaining)
        number = 1.0 if count is None else next(remaining)
        metrics[f"train/{name}"] = total / number if number else math.nan
    return metrics, norm, stop > 0


def _better(metrics: dict[str, float], best: dict[str, float], name: str, direction: str) -> bool:
    """Whether ``metrics`` are to be exported rather than the earlier ``best``. A metric that is never a number chooses the last."""
    new, old = metrics[name], best[name]
    return not math.isfinite(old) or (math.isfinite(new) and (new < old if direction == "min" else new > old))
