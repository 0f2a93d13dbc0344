"""The full-size critic and a pi0.5 of reduced depth on one accelerator: is bf16 right, how fast, in how much memory?

`python benchmarks/gpu.py` is made to take less than 5 minutes on one device. It needs no files: weights are random, images are noise. Where
torch sees no accelerator it says so and ends with 0. `--smoke` runs the same functions on small models anywhere. It ends with 1
where bf16 differs from fp32 by more than the tolerances: relative difference of the loss, cosine between the gradients of the worst part.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import (
    FULL_SIZE_CRITIC,
    SMALL_CRITIC,
    CachedDataset,
    cache_dataset,
    critic_training,
    leave_pass_rate,
    leave_training_rate,
    make_experiment,
    make_trainer,
    millions,
    timed_steps,
)
from reporting import keep_rates, machine, target
from synthetic_data import make_v30
from tabulate import tabulate

from recap_steam import devices
from recap_steam.critics.folder import SavedCritic
from recap_steam.critics.value_pass import evaluate_rows
from recap_steam.training.critic import CriticTraining
from recap_steam.training.order import sample_rngs

CAMERAS = ["observation.images.front", "observation.images.wrist"]
FRAMES = 128
LOSS_TOLERANCE, COSINE_TOLERANCE = 0.02, 0.95
WARM_UP, STEPS = 3, 5
HEADER = ["", "micro batch", "s/step", "samples/s", "TFLOP/s", "utilisation", "data wait", "peak memory, GB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small models, to try the script without an accelerator")
    args = parser.parse_args()
    if devices.device().type == "cpu" and not args.smoke:
        print("skipped: torch sees no accelerator here; --smoke runs the same on small models")
        return
    with tempfile.TemporaryDirectory() as folder, devices.distributed():
        data = prepare(Path(folder), args.smoke)
        if not args.smoke:
            keep_rates()
        print(f"{devices.name()}, torch {torch.__version__}, {machine()}\n", flush=True)
        checks = run(data, args.smoke)
    print("\n".join(line for line, _ in checks))
    if not all(met for _, met in checks):
        sys.exit(1)


def prepare(folder: Path, smoke: bool) -> CachedDataset:
    """A dataset of noise, and an experiment with both models on it."""
    from reduced_pi05 import REDUCED_DEPTH, SMALL, policy_section

    critic, policy = (SMALL_CRITIC | {"image_size": 64}, SMALL) if smoke else (FULL_SIZE_CRITIC, REDUCED_DEPTH)
    make_v30(folder / "dataset", np.array([FRAMES // 2] * 2), 1, CAMERAS, critic["image_size"])
    return cache_dataset(make_experiment(folder / "dataset", CAMERAS, critic, policies=policy_section(CAMERAS, policy)), folder)


def run(data: CachedDataset, smoke: bool) -> list[tuple[str, bool]]:
    """Measure both models one after the other and print their tables; return the lines of the checks and whether they are met."""
    from reduced_pi05 import policy_training

    from recap_steam.policy.pi05 import enable_gradient_checkpointing

    micro_batches, recomputed = ([2], [4]) if smoke else ([8, 32], [32, 128])
    critic = critic_training(data)
    checks = measure("critic", critic, critic.model.enable_gradient_checkpointing, data.folder, micro_batches, recomputed)
    print_value_pass(critic)
    del critic
    policy = policy_training(data)
    return checks + measure("pi0.5", policy, lambda: enable_gradient_checkpointing(policy.model), data.folder, micro_batches, recomputed)


def measure(
    name: str, trainable: Any, recompute: Any, folder: Path, micro_batches: list[int], recomputed: list[int]
) -> list[tuple[str, bool]]:
    """Check and time one model, plain and with ``recompute`` switched on; print its table and return its checks."""
    devices.shard(trainable.model)
    checks = compare(name, trainable)
    rows = [[name, *speed(trainable, folder, micro)] for micro in micro_batches]
    recompute()
    rows += [[f"{name}, activations recomputed", *speed(trainable, folder, micro, recomputed=True)] for micro in recomputed]
    table = tabulate(rows, HEADER, tablefmt="github", disable_numparse=True)
    print(f"{name}: {millions(trainable.model):,.1f} M parameters\n\n{table}\n", flush=True)
    return checks


def compare(name: str, trainable: Any) -> list[tuple[str, bool]]:
    """Loss and gradients of one batch in bf16 against fp32; gradients by part of the model, of which the worst counts."""
    batch = trainable.load(np.arange(2), sample_rngs(0, 0, range(2)))
    batch = {key: tensor.to(devices.device()) for key, tensor in batch.items()}
    loss, gradients = loss_and_gradients(trainable, batch, torch.float32)
    low_loss, low_gradients = loss_and_gradients(trainable, batch, torch.bfloat16)
    difference = abs(low_loss - loss) / abs(loss)
    worst, part = min((cosine(gradients[part], low_gradients[part]), part) for part in gradients)
    title = f"{name}, bf16 against fp32"
    return [
        (target(f"{title}, relative difference of the loss", difference, LOSS_TOLERANCE), difference <= LOSS_TOLERANCE),
        (target(f"{title}, cosine of the gradients ({part})", worst, COSINE_TOLERANCE, at_least=True), worst >= COSINE_TOLERANCE),
    ]


def loss_and_gradients(trainable: Any, batch: dict[str, torch.Tensor], dtype: torch.dtype) -> tuple[float, dict[str, list[torch.Tensor]]]:
    """The loss, and the gradients of each of the model's parts."""
    model = trainable.model.train()
    model.zero_grad()
    devices.seed(0)  # dropout
    with torch.autocast(devices.device().type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss, _ = trainable.loss(batch)
    loss.backward()
    gradients = {name: [p.grad for p in part.parameters() if p.grad is not None] for name, part in model.named_children()}
    model.zero_grad()
    return loss.item(), {name: tensors for name, tensors in gradients.items() if tensors}


def cosine(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Cosine of the angle between two lists of tensors taken as one vector each."""

    def dot(left: list[torch.Tensor], right: list[torch.Tensor]) -> float:
        return sum(float((a * b).sum()) for a, b in zip(left, right, strict=True))

    return dot(one, other) / (dot(one, one) * dot(other, other)) ** 0.5


def speed(trainable: Any, folder: Path, micro_batch: int, recomputed: bool = False) -> list[str]:
    """The columns of a row from ``micro batch`` on: median step of the real loop, one micro batch a step."""
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
    try:
        execution = {"micro_batch_size": micro_batch, "gradient_checkpointing": recomputed}
        trainer = make_trainer(trainable, folder, global_batch_size=micro_batch, **execution)
        steps, wait = timed_steps(trainer, STEPS, WARM_UP)
    except torch.OutOfMemoryError:
        trainable.model.zero_grad()
        return [str(micro_batch), "does not fit"]
    seconds = float(np.median(steps))
    leave_training_rate(trainer.config, micro_batch, seconds)
    rate, peak = trainer.step_flops / seconds, devices.peak_flops()
    used = f"{rate / peak:.0%}" if peak else "unknown"
    memory = f"{devices.peak_memory() / 1e9:.1f}"
    return [str(micro_batch), f"{seconds:.3f}", f"{micro_batch / seconds:.1f}", f"{rate / 1e12:.3g}", used, f"{wait:.1%}", memory]


def print_value_pass(critic: CriticTraining) -> None:
    """Frames per second of the value pass, from the frame cache to values."""
    saved = SavedCritic(critic.card, critic.model.eval(), critic.tokenizer)
    frames = critic.training.parts[0].frames
    evaluate_rows(saved, frames, range(FRAMES))  # warm-up
    started = time.perf_counter()
    evaluate_rows(saved, frames, range(FRAMES))
    seconds = time.perf_counter() - started
    leave_pass_rate(critic.config, FRAMES, seconds)
    print(f"value pass: {FRAMES / seconds:.0f} frames/s, {len(CAMERAS)} cameras\n", flush=True)


if __name__ == "__main__":
    main()
