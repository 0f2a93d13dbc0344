"""A critic small enough for tests: configuration, architecture and a random batch."""

import dataclasses
from pathlib import Path

import torch

from recap_steam import devices
from recap_steam.critics.architecture import Architecture, ProgressArchitecture
from recap_steam.critics.folder import CriticCard, save_critic, write_folder
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.progress_folder import ProgressCard, ProgressEnsemble
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.model_config import CriticModelConfig, ProgressModelConfig
from recap_steam.tokenizer import train_tokenizer

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
VISION = {**SIGLIP, "image_size": 16}
TEXT_TOWER = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SIX_LAYERS = {**GEMMA3, "num_hidden_layers": 6}
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


TOWERS = {name: getattr(MODEL, name) for name in ("siglip_path", "gemma3_path", "tokenizer_path", "siglip_config", "gemma3_config")}
PROGRESS_MODEL = ProgressModelConfig(
    **TOWERS,
    image_size=16,
    num_bins=4,
    fusion_hidden_dim=12,
    label_smoothing=0.05,
    dropout=0.0,
    freeze_vision_encoder=False,
    freeze_language_model=False,
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


def progress_architecture(**changes) -> ProgressArchitecture:
    return ProgressArchitecture.from_config(dataclasses.replace(PROGRESS_MODEL, **changes))


def progress_critic(seed: int = 0, **changes) -> ProgressCritic:
    devices.seed(seed)
    return ProgressCritic(progress_architecture(**changes))


def pair_batch(frames: int = 4, cameras: int = 2, tokens: int = 5) -> tuple[torch.Tensor, ...]:
    """The arguments of a progress critic's forward: each frame with the next and, reversed, the one before, under two prompts."""
    images, places, camera_mask, ids, mask = batch(frames, cameras, tokens)
    near, far = torch.arange(frames - 1), torch.arange(1, frames)
    first, second = torch.cat([near, far]), torch.cat([far, near])
    return images, places, camera_mask, first, second, ids[:2], mask[:2], torch.arange(len(first)) % 2


def save_small_critics(root: Path, cameras: list[str], ensemble_cameras: list[str], k: int) -> tuple[Path, Path]:
    """Folders of a value critic (returns of -40 to 0) and of an ensemble of two, with random weights; without evaluation and lineage."""
    shared = {"camera_maps": {}, "image_size": MODEL.image_size, "max_token_len": 32}
    tokenizer = train_tokenizer(["Task: open the drawer."], GEMMA3["vocab_size"])
    value, score = root / "value", root / "score"
    for folder in (value, score):
        folder.mkdir(parents=True)
    card = CriticCard(architecture=architecture(), cameras=cameras, **shared)
    save_critic(value, card, critic().state_dict(), tokenizer, ReturnNormalizer(-40.0), {})
    members = ProgressCard(
        architecture=progress_architecture(), cameras=ensemble_cameras, k=k, length_scale=None, ensemble_size=2, **shared
    )
    devices.seed(1)
    write_folder(score, members, ProgressEnsemble(members.architecture, 2).state_dict(), tokenizer, {})
    return value, score
