"""A critic small enough for tests: configuration, architecture and a random batch."""

import dataclasses

import torch

from recap_steam import devices
from recap_steam.critics.architecture import Architecture
from recap_steam.critics.model import ValueCritic
from recap_steam.model_config import CriticModelConfig

SIGLIP = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
GEMMA3 = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 300,
}
MODEL = CriticModelConfig(
    siglip_path=None,
    gemma3_path=None,
    tokenizer_path=None,
    image_size=16,
    siglip_config=SIGLIP,
    gemma3_config=GEMMA3,
    critic_expert_variant="dummy",
    num_bins=201,
    v_min=-1.0,
    v_max=0.0,
    value_dropout=0.0,
    freeze_vlm=False,
    freeze_vision_encoder=False,
    max_token_len=16,
)


def architecture(**changes) -> Architecture:
    return Architecture.from_config(dataclasses.replace(MODEL, **changes))


def critic(seed: int = 0, **changes) -> ValueCritic:
    devices.seed(seed)
    return ValueCritic(architecture(**changes))


def batch(n: int = 3, cameras: int = 2, tokens: int = 5) -> tuple[torch.Tensor, ...]:
    """The arguments of a critic's forward; every camera is there."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(n * cameras, 3, 16, 16, generator=generator) * 2 - 1
    camera_mask, token_mask = torch.ones(n, cameras, dtype=torch.bool), torch.ones(n, tokens, dtype=torch.bool)
    return images, torch.arange(n * cameras), camera_mask, torch.randint(4, 300, (n, tokens), generator=generator), token_mask
