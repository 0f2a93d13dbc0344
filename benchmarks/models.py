"""Critics and policies with random weights as the stages build them, and their optimiser steps: shared by the benchmarks of models."""

import contextlib
import dataclasses
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from recap_steam import devices, rates
from recap_steam.config import CriticConfig, Experiment, TrainingConfig, load_experiment
from recap_steam.critics.architecture import Architecture
from recap_steam.critics.folder import CriticCard
from recap_steam.critics.frames import CriticFrames
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.prompts import prompt_text
from recap_steam.dataset.episodes import Episodes, index_stage, load_episodes
from recap_steam.dataset.frames import FrameCache, frames_stage
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.lineage import Lineage
from recap_steam.tokenizer import train_tokenizer
from recap_steam.training.critic import CriticTraining
from recap_steam.training.critic_data import LabelledFrames
from recap_steam.training.loop import Trainer

NAME = "frames"  # of the one dataset
FULL_SIZE_CRITIC = {  # SigLIP2-so400m-patch14-224, Gemma3-270M
    "image_size": 224,
    "siglip_config": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
    },
    "gemma3_config": {
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "vocab_size": 262_144,
    },
    "critic_expert_variant": "gemma_1m",
}
SMALL_CRITIC = {
    "image_size": 224,
    "siglip_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 16},
    "gemma3_config": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": 512,
    },
    "critic_expert_variant": "dummy",
}


@dataclasses.dataclass(frozen=True)
class CachedDataset:
    """The one dataset of an experiment, indexed and with its frames cached."""

    experiment: Experiment
    folder: Path  # of the index and the cache
    episodes: Episodes
    cache: FrameCache


def make_experiment(dataset: Path, cameras: list[str], critic_model: dict[str, Any], **sections: Any) -> Experiment:
    """An experiment with a critic ``value`` on one dataset; ``sections`` are further ones of its file."""
    critic = {
        "returns_tag": "success",
        "datasets": [NAME],
        "cameras": cameras,
        "model": critic_model,
        "optim": {"lr": 5.0e-5},
        "max_steps": 1_000_000,
        "global_batch_size": 1,
    }
    datasets = {NAME: {"path": str(dataset), "type": "sft"}}
    returns = {"success": {"failure_reward": -300.0}}
    return load_experiment({"experiment": "benchmark", "datasets": datasets, "returns": returns, "critics": {"value": critic}, **sections})


def cache_dataset(experiment: Experiment, folder: Path) -> CachedDataset:
    """Run the stages that come before training: index and frame cache."""
    critic, path = experiment.critics["value"], experiment.datasets[NAME].path
    index, frames = folder / f"{NAME}.parquet", folder / f"{NAME}_{critic.model.image_size}px.arrow"
    with contextlib.redirect_stderr(io.StringIO()):  # no progress bar in a table
        index_stage(experiment, NAME, index)
        frames_stage(experiment, NAME, index, critic.cameras, critic.model.image_size, frames)
    episodes = load_episodes(index, open_dataset(NAME, path))
    return CachedDataset(experiment, folder, episodes, FrameCache.open(frames, episodes))


def critic_training(data: CachedDataset, **changes: Any) -> CriticTraining:
    """Critic ``value`` with random weights, ``changes`` applied to its configuration; it learns the frames that are left."""
    config = dataclasses.replace(data.experiment.critics["value"], **changes)
    episodes, model_config = data.episodes, config.model
    tokenizer = train_tokenizer(map(prompt_text, episodes.tasks), vocab_size=512)
    keys = {camera: camera for camera in config.cameras}
    architecture = Architecture.from_config(model_config)
    card = CriticCard(
        architecture=architecture,
        cameras=config.cameras,
        camera_maps={NAME: keys},
        image_size=model_config.image_size,
        max_token_len=model_config.max_token_len,
    )
    codes = episodes.prompt_codes()
    frames = CriticFrames(data.cache, list(keys), card.prompts(episodes.tasks, tokenizer), codes)
    returns = episodes.frame_keys()[1] + 1.0 - np.repeat(episodes.length, episodes.length)
    normalizer = ReturnNormalizer(float(returns.min()))
    labelled = LabelledFrames(frames, episodes, normalizer.normalize(returns, codes, episodes.tasks))
    return CriticTraining(config, _critic(config, architecture), card, tokenizer, normalizer, [labelled], [], [1.0])


def _critic(config: CriticConfig, architecture: Architecture) -> ValueCritic:
    devices.seed(config.seed)
    model = ValueCritic(architecture)
    if config.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    return model


def make_trainer(trainable: Any, folder: Path, **changes: Any) -> Trainer:
    """The real loop around ``trainable``, ``changes`` applied to its configuration; its files would lie under ``folder``."""
    config = dataclasses.replace(trainable.config, **changes)
    return Trainer(trainable, config, folder / "state", folder / "output", Lineage("benchmark", "model", None, {}, {}, {}, ""))


def timed_steps(trainer: Trainer, count: int, warm_up: int = 0) -> tuple[list[float], float]:
    """Take ``warm_up`` and then ``count`` optimiser steps as ``Trainer.run`` does; nothing is evaluated or saved.

    Returns:
        seconds of each of the ``count`` steps, and the share of their time that was spent waiting for data.
    """
    seconds, waits = [], []
    with contextlib.closing(trainer._batches()) as batches:
        for _ in range(warm_up + count):
            waited, started = trainer.data_wait_s, time.perf_counter()
            trainer._step(batches, False)
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            seconds.append(time.perf_counter() - started)
            waits.append(trainer.data_wait_s - waited)
    return seconds[warm_up:], sum(waits[warm_up:]) / sum(seconds[warm_up:])


def leave_training_rate(config: TrainingConfig, samples: int, seconds: float) -> None:
    """Leave what a sample took in training for `make plan`, where rates are wanted."""
    stage = "train_critic" if isinstance(config, CriticConfig) else "train_policy"
    rates.leave(stage, lambda: rates.training_work(config), "sample", samples, seconds, devices.name())


def leave_pass_rate(config: CriticConfig, frames: int, seconds: float) -> None:
    """Leave what a frame took in the value pass."""
    model = dataclasses.asdict(config.model)
    rates.leave("compute_values", lambda: rates.pass_work(model, len(config.cameras)), "frame", frames, seconds, devices.name())


def millions(module: nn.Module) -> float:
    """Parameters, in millions."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6
