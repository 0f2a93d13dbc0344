"""What images cost: in training, in the value pass and once before both. `python benchmarks/input_pipeline.py` prints the tables.

Everything runs on a copy of one real dataset (v2.1, AV1 video, 480 x 640, one camera). What is compared is measured in the same rounds, one
after the other, so that it meets the same machine; a ratio is the median of the ratios within the rounds. Files are in the page cache.
"""

import argparse
import contextlib
import dataclasses
import io
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import torch
from models import NAME, SMALL_CRITIC, CachedDataset, cache_dataset, critic_training, make_experiment, make_trainer, millions, timed_steps
from reporting import machine, target
from tabulate import tabulate
from tqdm import tqdm

from recap_steam import devices
from recap_steam.critics.folder import SavedCritic
from recap_steam.critics.frames import model_inputs
from recap_steam.critics.group_pass import BATCH_FRAMES
from recap_steam.critics.value_pass import evaluate_rows
from recap_steam.dataset.frames import frames_stage
from recap_steam.dataset.layout import open_dataset
from recap_steam.dataset.resize import resize_with_pad
from recap_steam.training.critic import CriticTraining
from recap_steam.training.order import DataOrder, sample_rngs

DATA = Path(__file__).parents[2] / "shared/data/unitree_g1_bottle_v21"
CAMERA = "observation.images.cam_high"
BATCH = 32
CHUNK = 10  # actions that the loop over LeRobotDataset asks for beside the image, as the reference does
MEDIUM_CRITIC = {
    **SMALL_CRITIC,
    "siglip_config": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 4, "patch_size": 16},
    "gemma3_config": SMALL_CRITIC["gemma3_config"]
    | {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 32},
}
CRITICS = {"small critic": SMALL_CRITIC, "medium critic": MEDIUM_CRITIC}
Measured = Callable[[int], float]  # from a round's number to frames per second
CACHE, ON_THE_FLY, LOOP, LOADER = "frame cache", "decoding on the fly", "loop over LeRobotDataset", "the same, 2 DataLoader workers"
PLAIN, CACHE_FRAMES, INPUT, VALUES = "plain sequential decoding", "cache_frames", "value pass, input side", "value pass, small critic"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the dataset; it is only read")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="optimiser steps of each critic")
    args = parser.parse_args()
    if not (args.data / "meta/info.json").is_file():
        print(f"skipped: no dataset at {args.data}; give its folder with --data")
        return
    with tempfile.TemporaryDirectory() as folder, devices.distributed(), contextlib.redirect_stderr(io.StringIO()):
        data, converted = prepare(args.data, Path(folder))
        critic = critic_training(data, global_batch_size=BATCH)
        training = run_rounds(training_cases(data, critic, converted), args.rounds)
        passes = run_rounds(pass_cases(data, critic), args.rounds)
        waits = [data_wait(data, title, model, args.steps, Path(folder)) for title, model in CRITICS.items()]
        text = report(training, passes, waits, data)
    print(f"{machine()}, {torch.get_num_threads()} torch thread, median of {args.rounds} rounds\n\n{text}")


def prepare(source: Path, folder: Path) -> tuple[CachedDataset, Path]:
    """Copy the dataset twice: one is indexed and cached, the other converted to v3.0 by lerobot, which reads nothing older."""
    from lerobot.scripts.convert_dataset_v21_to_v30 import convert_dataset

    for name in ("v21", "v30"):
        shutil.copytree(source, folder / name)
    data = cache_dataset(make_experiment(folder / "v21", [CAMERA], SMALL_CRITIC), folder)
    logging.disable(logging.WARNING)
    convert_dataset("benchmark/v30", root=folder / "v30", push_to_hub=False)
    return data, folder / "v30"


def run_rounds(cases: dict[str, Measured], rounds: int) -> dict[str, list[float]]:
    """Frames per second of every case in every round."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in tqdm(range(rounds), file=sys.__stderr__, disable=None):
        for name, case in cases.items():
            found[name].append(case(number))
    return found


def training_cases(data: CachedDataset, critic: CriticTraining, converted: Path) -> dict[str, Measured]:
    """Images in the order of training, batch by batch."""
    order = DataOrder(critic.lengths, critic.weights, seed=0)
    lerobot, videos = lerobot_dataset(converted), RandomAccess(data)

    def batches(count: int, number: int, load: Callable[[int, np.ndarray], object]) -> float:
        started = time.perf_counter()
        for step in range(count * number, count * (number + 1)):
            load(step, order.batch(step, BATCH))
        return count * BATCH / (time.perf_counter() - started)

    def cached(step: int, samples: np.ndarray) -> object:
        return critic.load(samples, sample_rngs(0, step, range(BATCH)))

    def on_the_fly(_: int, samples: np.ndarray) -> object:
        return np.stack([resize_with_pad(videos.frame(row), critic.card.image_size) for row in samples.tolist()])

    def loop(_: int, samples: np.ndarray) -> object:
        return [lerobot[row] for row in samples.tolist()]

    return {
        CACHE: lambda number: batches(100, number, cached),
        ON_THE_FLY: lambda number: batches(1, number, on_the_fly),
        LOOP: lambda number: batches(1, number, loop),
        LOADER: lambda number: loader_rate(lerobot, order, number),
    }


def lerobot_dataset(root: Path):
    """lerobot's own reader: whole camera images as float tensors, not resized, and an action chunk."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    fps = open_dataset(NAME, root).fps
    return LeRobotDataset("benchmark/v30", root, delta_timestamps={"action": [step / fps for step in range(CHUNK)]}, video_backend="pyav")


def loader_rate(dataset, order: DataOrder, number: int) -> float:
    """Frames per second between the first and the last batch, so that the start of the workers does not count."""
    batches = [order.batch(10 * number + step, BATCH).tolist() for step in range(8)]
    arrivals = []
    for _ in torch.utils.data.DataLoader(dataset, batch_sampler=batches, num_workers=2, prefetch_factor=1):
        arrivals.append(time.perf_counter())
    return BATCH * (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])


class RandomAccess:
    """Single frames by seeking to the key frame before them and decoding from there; every file stays open."""

    def __init__(self, data: CachedDataset):
        self._dataset = open_dataset(NAME, data.experiment.datasets[NAME].path)
        self._episode, self._frame = data.episodes.frame_keys()
        self._open: dict[int, av.container.InputContainer] = {}

    def frame(self, row: int) -> np.ndarray:
        """(H, W, 3) uint8."""
        episode = int(self._episode[row])
        if episode not in self._open:
            self._open[episode] = av.open(str(self._dataset.video_span(episode, CAMERA).path))
            self._open[episode].streams.video[0].thread_type = "AUTO"
        stream = self._open[episode].streams.video[0]
        wanted = int(self._frame[row]) / self._dataset.fps
        self._open[episode].seek(int(wanted / stream.time_base), stream=stream)
        frame = next(frame for frame in self._open[episode].decode(stream) if frame.time > wanted - 0.5 / self._dataset.fps)
        return frame.to_ndarray(format="rgb24")


def pass_cases(data: CachedDataset, critic: CriticTraining) -> dict[str, Measured]:
    """All frames in order."""
    experiment, frames, total = data.experiment, critic.training.parts[0].frames, data.episodes.num_frames
    saved = SavedCritic(critic.card, critic.model.eval(), critic.tokenizer)
    videos = sorted(Path(experiment.datasets[NAME].path).rglob("*.mp4"))

    def input_side() -> None:
        for start in range(0, total, BATCH_FRAMES):
            batch = frames.batch(np.arange(start, min(start + BATCH_FRAMES, total)))
            model_inputs({name: tensor.to(devices.device()) for name, tensor in batch.items()})

    def cache_frames() -> None:
        frames_stage(experiment, NAME, data.folder / f"{NAME}.parquet", [CAMERA], critic.card.image_size, data.folder / "again.arrow")

    def rate(action: Callable[[], object]) -> Measured:
        def measured(_: int) -> float:
            started = time.perf_counter()
            action()
            return total / (time.perf_counter() - started)

        return measured

    return {
        PLAIN: rate(lambda: [decode(path) for path in videos]),
        CACHE_FRAMES: rate(cache_frames),
        INPUT: rate(input_side),
        VALUES: rate(lambda: evaluate_rows(saved, frames, range(total))),
    }


def decode(path: Path) -> None:
    """Every frame of a video as an RGB array, which is thrown away."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        for frame in container.decode(video=0):
            frame.to_ndarray(format="rgb24")


def data_wait(data: CachedDataset, title: str, model: dict, steps: int, folder: Path) -> tuple[str, float, float]:
    """A critic's name and parameters, frames per second and the share of its steps that waits for data."""
    experiment = make_experiment(Path(data.experiment.datasets[NAME].path), [CAMERA], model)
    critic = critic_training(dataclasses.replace(data, experiment=experiment), global_batch_size=BATCH)
    trainer = make_trainer(critic, folder / title)
    seconds, wait = timed_steps(trainer, steps, warm_up=1)
    return f"{title}, {millions(critic.model):.1f} M parameters", steps * BATCH / sum(seconds), wait


def report(training: dict[str, list[float]], passes: dict[str, list[float]], waits: list[tuple], data: CachedDataset) -> str:
    ratios = relative(training, LOOP) | relative(passes, PLAIN)
    sizes = data.cache.path.stat().st_size / data.episodes.num_frames
    raw = sum(path.stat().st_size for path in Path(data.experiment.datasets[NAME].path).rglob("*.mp4")) / data.episodes.num_frames
    tables = [table("batches of training", training, LOOP), table("all frames in order", passes, PLAIN)]
    rows = [[title, f"{rate:.0f}", f"{share:.2%}"] for title, rate, share in waits]
    tables.append(tabulate(rows, ["training step, batch 32, one camera of 224 px", "frames/s", "data wait"], tablefmt="github"))
    targets = [
        target("frame cache, x loop over LeRobotDataset", ratios[CACHE], 10, at_least=True),
        target("frame cache, x the same with 2 DataLoader workers", ratios[CACHE] / ratios[LOADER], 10, at_least=True),
        *(target(f"data wait of {title}, %", 100 * share, 5) for title, _, share in waits),
        target("value pass, input side, x plain sequential decoding", ratios[INPUT], 0.8, at_least=True),
    ]
    size = f"Frame cache: {sizes:,.0f} bytes per frame and camera; the video: {raw:,.0f}."
    return "\n\n".join([*tables, size, "\n".join(targets)])


def relative(found: dict[str, list[float]], to: str) -> dict[str, float]:
    """Median over the rounds of each case's rate relative to that of case ``to``."""
    return {name: statistics.median(np.divide(rates, found[to])) for name, rates in found.items()}


def table(title: str, found: dict[str, list[float]], to: str) -> str:
    ratios = relative(found, to)
    rows = [[name, f"{statistics.median(rates):,.0f}", f"{ratios[name]:,.2f}"] for name, rates in found.items()]
    return tabulate(rows, [title, "frames/s", f"x {to}"], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    main()
