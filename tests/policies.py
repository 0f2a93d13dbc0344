"""A small pi0.5 with a real tokenizer, processors and statistics, for the tests of policies."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from recap_steam.model_config import PolicyModelConfig, SmallPi05Config
from recap_steam.policy import pi05
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.norm_stats import compute_statistics
from recap_steam.policy.processors import make_processors
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.tokenizer import train_tokenizer

CAMERA = "observation.images.front"
STATE_DIM, ACTION_DIM = 3, 2
SMALL = SmallPi05Config(
    width=32,
    mlp_dim=64,
    depth=2,
    head_dim=8,
    expert_width=32,
    expert_mlp_dim=64,
    vision_width=16,
    vision_mlp_dim=32,
    vision_depth=1,
    vision_heads=2,
    patch_size=16,
    vocab_size=512,
)
MODEL = PolicyModelConfig(
    pretrained_path=None,
    tokenizer_path=None,
    image_size=32,
    chunk_size=4,
    n_action_steps=3,
    num_inference_steps=3,
    max_token_len=64,
    small=SMALL,
    train_expert_only=False,
    freeze_vision_encoder=False,
)


CONFIG = pi05.make_config(MODEL, [CAMERA], STATE_DIM, ACTION_DIM)


def make_statistics(states: np.ndarray, actions: np.ndarray) -> dict[str, dict[str, list]]:
    return {"observation.state": compute_statistics(lambda: [states]), "action": compute_statistics(lambda: [actions])}


def make_policy(config: pi05.PI05Config = CONFIG) -> pi05.PI05Policy:
    """Random weights, in eval mode."""
    torch.manual_seed(0)
    return perturb(pi05.build(config, SMALL, initialise=True).eval())


def perturb(policy: pi05.PI05Policy) -> pi05.PI05Policy:
    """The expert's adaptive norms start at zero, so that at first nothing depends on the prompt; here it does."""
    for name, parameter in policy.named_parameters():
        if ".dense." in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return policy


def make_serving(cameras: list[str]) -> Serving:
    """Of a policy that was trained with both indicators."""
    return Serving(
        conditional=True,
        default_guidance_scale=1.0,
        cameras=cameras,
        image_size=MODEL.image_size,
        state_dim=STATE_DIM,
        action_dim=ACTION_DIM,
        chunk_size=MODEL.chunk_size,
        n_action_steps=MODEL.n_action_steps,
        num_inference_steps=MODEL.num_inference_steps,
        small=SMALL,
    )


def save_small_policy(
    folder: Path,
    cameras: tuple[str, ...] = (CAMERA,),
    state_dim: int = STATE_DIM,
    action_dim: int = ACTION_DIM,
    prompt: str = "open the drawer",
) -> Path:
    """The folder of a policy with random weights, by default one that reads one camera; its tokenizer is short on ``prompt``."""
    rng, config = np.random.default_rng(0), pi05.make_config(MODEL, list(cameras), state_dim, action_dim)
    policy = make_policy(config)
    statistics = make_statistics(rng.normal(2, 3, (500, state_dim)), rng.uniform(-0.5, 2, (500, action_dim)))
    tokenizer = train_tokenizer(tokenizer_corpus([prompt]), SMALL.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    serving = dataclasses.replace(make_serving(list(cameras)), state_dim=state_dim, action_dim=action_dim)
    processors = make_processors(config, statistics, tokenizer)
    save_policy(folder, policy, policy.model.state_dict(), processors, tokenizer, serving)
    return folder
