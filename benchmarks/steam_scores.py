"""What scores of an ensemble cost: every frame encoded once per member, against both frames of every pair, as the reference does.

`python benchmarks/steam_scores.py` prints the table. Images through the vision towers are counted; seconds are of both ways, one after the
other on the same frames. Small members with random weights: the ratios of larger ones come closer to that of the counts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from models import SMALL_CRITIC, cache_dataset, make_experiment
from reporting import machine, target
from synthetic_data import make_v30
from tabulate import tabulate

from recap_steam import devices
from recap_steam.config import load_experiment
from recap_steam.critics.architecture import ProgressArchitecture
from recap_steam.critics.folder import SavedCritic
from recap_steam.critics.frames import CriticFrames, collate_tokens, model_inputs
from recap_steam.critics.group_pass import critic_frames
from recap_steam.critics.progress_folder import ProgressCard, ProgressEnsemble
from recap_steam.critics.score_pass import score_rows
from recap_steam.dataset.episodes import Episodes
from recap_steam.tokenizer import train_tokenizer

CAMERA = "observation.images.front"
K, MEMBERS, BATCH = 32, 3, 64
SIZE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--length", type=int, default=400, help="frames of an episode")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, devices.distributed():
        ensemble, frames, episodes = prepare(Path(name), np.full(args.episodes, args.length))
        images = count_images(ensemble)
        once = measured(images, lambda: score_rows(ensemble, frames, episodes, range(episodes.num_frames)))
        both = measured(images, lambda: score_pairs(ensemble, frames, episodes))
    print(f"{machine()}\n\n{report(once, both)}")


def prepare(folder: Path, lengths: np.ndarray) -> tuple[SavedCritic, CriticFrames, Episodes]:
    """A dataset of noise, and an ensemble that reads it."""
    make_v30(folder / "dataset", lengths, 1, [CAMERA], SIZE)
    sizes = SMALL_CRITIC | {"image_size": SIZE}
    data = cache_dataset(make_experiment(folder / "dataset", [CAMERA], sizes), folder)
    towers = {name: value for name, value in sizes.items() if name != "critic_expert_variant"}
    training = {"datasets": ["frames"], "cameras": [CAMERA], "optim": {"lr": 1e-3}, "max_steps": 1, "global_batch_size": 1}
    document = {
        "experiment": "benchmark",
        "datasets": {"frames": {"path": str(folder / "dataset"), "type": "sft"}},
        "critics": {"progress": {"method": "steam", "k": K, "model": {**towers, "fusion_hidden_dim": 64}, **training}},
    }
    architecture = ProgressArchitecture.from_config(load_experiment(document).critics["progress"].model)
    card = ProgressCard(
        architecture=architecture,
        cameras=[CAMERA],
        camera_maps={},
        image_size=SIZE,
        max_token_len=48,
        k=K,
        length_scale=None,
        ensemble_size=MEMBERS,
    )
    devices.seed(0)
    model = ProgressEnsemble(architecture, MEMBERS).to(devices.device()).eval()
    ensemble = SavedCritic(card, model, train_tokenizer(data.episodes.tasks, vocab_size=512))
    return ensemble, critic_frames(ensemble, data.episodes, data.cache.path, {CAMERA: CAMERA}), data.episodes


def count_images(ensemble: SavedCritic) -> list[int]:
    """The numbers of images of every call of a vision tower from now on."""
    calls = []
    for member in ensemble.model.members:
        member.vision.register_forward_pre_hook(lambda *call: calls.append(len(call[2]["pixel_values"])), with_kwargs=True)
    return calls


def score_pairs(ensemble: SavedCritic, frames: CriticFrames, episodes: Episodes) -> None:
    """The same scores as the reference makes them: for every frame but the last of an episode, both images and the prompt."""
    first = np.concatenate([np.arange(start, stop - 1) for start, stop in zip(episodes.offsets, episodes.offsets[1:], strict=False)])
    last = np.repeat(episodes.offsets[1:] - 1, episodes.length - 1)
    second = np.minimum(first + K, last)
    for start in range(0, len(first), BATCH):
        rows = np.concatenate([first[start : start + BATCH], second[start : start + BATCH]])
        inputs = model_inputs(on_device(frames.image_batch(rows)), ("places", "camera_mask"))
        text = on_device(collate_tokens(frames.tokens(rows[: len(rows) // 2])))
        pair = torch.arange(len(rows) // 2, device=devices.device())
        for member in ensemble.model.members:
            with torch.no_grad(), devices.autocast():
                member(*inputs, pair, pair + len(pair), *text.values(), pair)


def on_device(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(devices.device()) for name, tensor in batch.items()}


def measured(images: list[int], work: Callable[[], object]) -> tuple[int, float]:
    """Images encoded per member, and seconds."""
    images.clear()
    started = time.perf_counter()
    work()
    return sum(images) // MEMBERS, time.perf_counter() - started


def report(once: tuple[int, float], both: tuple[int, float]) -> str:
    rows = [[title, images, f"{seconds:.1f}"] for title, (images, seconds) in (("each frame once", once), ("pair by pair", both))]
    rows.append(["ratio", f"{both[0] / once[0]:.2f}", f"{both[1] / once[1]:.1f}"])
    table = tabulate(rows, [f"scores, k = {K}, {MEMBERS} members", "images per member", "s"], tablefmt="github", disable_numparse=True)
    return f"{table}\n\n{target('times fewer vision forwards than pair by pair', both[0] / once[0], 1.8, at_least=True)}"


if __name__ == "__main__":
    main()
