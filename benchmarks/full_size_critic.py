"""The critic at the size that users run, on the CPU: does it train and label, how long and in how much memory?

SigLIP2-so400m-patch14-224, Gemma3-270M and the gemma_1m expert with random weights, two cameras of 224 px. The second optimiser step of the
real loop and one batch of the value pass, each in a process of its own, so that the kernel's peak is that of this part alone.
`python benchmarks/full_size_critic.py` prints the table; the largest part needs about 13 GB.
"""

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from reporting import keep_rates, machine
from tabulate import tabulate

HERE = Path(__file__)
CAMERAS = ["observation.images.front", "observation.images.wrist"]
FRAMES = 8
CASES = {
    "training step, micro batch 1": {"micro_batch_size": 1},
    "training step, micro batch 2": {"micro_batch_size": 2},
    "training step, micro batch 2, activations recomputed": {"micro_batch_size": 2, "gradient_checkpointing": True},
    "value pass, one batch": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small critic instead, to try the script")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # run by the parent
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(CASES[args.case], args.small)))
        return
    found = {name: in_child(name, args.small) for name in CASES}
    print(f"{machine()}\n")
    print(report(found))


def in_child(case: str, small: bool) -> dict:
    """What ``measure`` found in a process of its own."""
    command = [sys.executable, str(HERE), "--case", case, *(["--small"] if small else [])]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def measure(training: dict | None, small: bool) -> dict:
    """Seconds, FLOPs and peak memory of one optimiser step with the configuration ``training``, or of one batch of the value pass."""
    import models
    from synthetic_data import make_v30

    from recap_steam import devices

    with tempfile.TemporaryDirectory() as name, devices.distributed():
        folder = Path(name)
        make_v30(folder / "dataset", np.array([FRAMES]), 1, CAMERAS)
        model = models.SMALL_CRITIC if small else models.FULL_SIZE_CRITIC
        data = models.cache_dataset(models.make_experiment(folder / "dataset", CAMERAS, model), folder)
        if not small:
            keep_rates()
        if training is None:
            critic, measured, leave = models.critic_training(data), label, models.leave_pass_rate
        else:
            critic = models.critic_training(data, global_batch_size=training["micro_batch_size"], **training)
            measured, leave = functools.partial(train, folder=folder), models.leave_training_rate
        found = measured(critic)
        leave(critic.config, found["samples"], found["seconds"])
        return found | {"peak_gb": devices.peak_memory() / 1e9}


def train(critic, folder: Path) -> dict:
    from models import make_trainer, millions, timed_steps

    trainer = make_trainer(critic, folder)
    (seconds,), _ = timed_steps(trainer, 1, warm_up=1)  # only from the second step on do activations stand beside the optimiser's moments
    parts = {name: millions(part) for name, part in critic.model.named_children()}
    return {"seconds": seconds, "samples": trainer.plan.global_batch_size, "flops": trainer.step_flops, "parts": parts}


def label(critic) -> dict:
    from recap_steam.critics.folder import SavedCritic
    from recap_steam.critics.value_pass import evaluate_rows

    saved = SavedCritic(critic.card, critic.model.eval(), critic.tokenizer)
    started = time.perf_counter()
    values = evaluate_rows(saved, critic.training.parts[0].frames, range(FRAMES))
    seconds = time.perf_counter() - started
    assert np.isfinite(values["value"]).all()
    return {"seconds": seconds, "samples": FRAMES, "flops": None}


def report(found: dict[str, dict]) -> str:
    parts = next(iter(found.values()))["parts"]
    sizes = [[name, f"{size:.1f}"] for name, size in (parts | {"all": sum(parts.values())}).items()]
    rows = [
        [
            name,
            case["samples"],
            f"{case['seconds']:.1f}",
            f"{case['flops'] / case['samples'] / 1e12:.3f}" if case["flops"] else "",
            f"{case['peak_gb']:.1f}",
        ]
        for name, case in found.items()
    ]
    costs = tabulate(rows, ["full-size critic, two cameras", "samples", "s", "TFLOP per sample", "peak memory, GB"], tablefmt="github")
    return f"{tabulate(sizes, ['part', 'M parameters'], tablefmt='github')}\n\n{costs}"


if __name__ == "__main__":
    main()
