"""A pi0.5 of full width and reduced depth with random weights, as the policy stage builds it: full size is 66 GB with its optimiser."""

from pathlib import Path
from typing import Any

from models import NAME, CachedDataset
from torch import nn

from recap_steam import devices
from recap_steam.config import Experiment
from recap_steam.policy import pi05
from recap_steam.policy.norm_stats import compute_statistics
from recap_steam.policy.processors import make_processors
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.policy.samples import load_sources
from recap_steam.tokenizer import train_tokenizer
from recap_steam.training.policy import PolicyTraining
from recap_steam.training.policy_samples import Views

REDUCED_DEPTH = {  # 4 of 18 layers; the vision tower is whole; the vocabulary, which costs memory and hardly any time, an eighth
    "image_size": 224,
    "chunk_size": 50,
    "small": {
        "width": 2048,
        "mlp_dim": 16_384,
        "depth": 4,
        "head_dim": 256,
        "expert_width": 1024,
        "expert_mlp_dim": 4096,
        "vision_width": 1152,
        "vision_mlp_dim": 4304,
        "vision_depth": 27,
        "vision_heads": 16,
        "patch_size": 14,
        "vocab_size": 32_768,
    },
}
SMALL = {"image_size": 64, "small": {}}


def policy_section(cameras: list[str], model: dict[str, Any]) -> dict[str, Any]:
    """The section ``policies`` of an experiment: imitation of the one dataset."""
    policy = {
        "datasets": [NAME],
        "cameras": cameras,
        "model": model,
        "optim": {"lr": 2.5e-5},
        "max_steps": 1_000_000,
        "global_batch_size": 1,
    }
    return {"imitation": policy}


def policy_training(data: CachedDataset) -> PolicyTraining:
    """Policy ``imitation`` with random weights."""
    experiment: Experiment = data.experiment
    config = experiment.policies["imitation"]
    (source,) = load_sources(experiment, "imitation", Path(data.folder))
    stock = pi05.make_config(config.model, config.cameras, source.states.shape[1], source.actions.shape[1])
    devices.seed(config.seed)
    policy = pi05.build(stock, config.model.small, initialise=True)
    for name, parameter in policy.named_parameters():
        if ".dense." in name:  # the expert's adaptive norms start at zero, and with them everything that it reads of the prefix
            nn.init.normal_(parameter, std=0.02)
    tokenizer = train_tokenizer(tokenizer_corpus(source.episodes.tasks), vocab_size=512)
    columns = {"observation.state": source.states, "action": source.actions}
    statistics = {name: compute_statistics(lambda rows=rows: [rows]) for name, rows in columns.items()}
    views = {NAME: Views(data.cache, config.cameras)}
    return PolicyTraining(config, policy, make_processors(stock, statistics, tokenizer), tokenizer, [source], [], views, [1.0])
