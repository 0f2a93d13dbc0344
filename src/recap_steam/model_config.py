"""Models as an experiment describes them: folders of weights, sizes, and the table of critic experts. No torch."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from recap_steam.errors import UserError

WEIGHTS = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class TowersConfig:
    """What critics of both methods have: a vision tower, a text model and its tokenizer."""

    siglip_path: str | None
    gemma3_path: str | None
    tokenizer_path: str | None
    image_size: int
    siglip_config: dict | None
    gemma3_config: dict | None
    freeze_vision_encoder: bool
    max_token_len: int


@dataclasses.dataclass(frozen=True)
class CriticModelConfig(TowersConfig):
    critic_expert_variant: str
    num_bins: int
    v_min: float
    v_max: float
    value_dropout: float
    freeze_vlm: bool


@dataclasses.dataclass(frozen=True)
class ProgressModelConfig(TowersConfig):
    num_bins: int
    fusion_hidden_dim: int
    label_smoothing: float
    dropout: float
    freeze_language_model: bool


@dataclasses.dataclass(frozen=True)
class ExpertSize:
    width: int
    depth: int
    mlp_dim: int
    num_heads: int


EXPERT_VARIANTS = {  # RLinf's table; key-value heads and head_dim follow the text model
    "dummy": ExpertSize(64, 4, 128, 8),
    "gemma_1m": ExpertSize(128, 4, 448, 1),
    "gemma_50m": ExpertSize(384, 18, 1536, 8),
    "gemma_100m": ExpertSize(512, 18, 2048, 8),
    "gemma_150m": ExpertSize(640, 18, 2560, 8),
    "gemma_300m": ExpertSize(1024, 18, 4096, 8),
    "gemma_2b": ExpertSize(2048, 18, 16384, 8),
}


@dataclasses.dataclass(frozen=True)
class SmallPi05Config:
    width: int
    mlp_dim: int
    depth: int
    head_dim: int
    expert_width: int
    expert_mlp_dim: int
    vision_width: int
    vision_mlp_dim: int
    vision_depth: int
    vision_heads: int
    patch_size: int
    vocab_size: int


@dataclasses.dataclass(frozen=True)
class PolicyModelConfig:
    pretrained_path: str | None
    tokenizer_path: str | None
    image_size: int
    chunk_size: int
    n_action_steps: int
    num_inference_steps: int
    max_token_len: int
    small: SmallPi05Config | None
    train_expert_only: bool
    freeze_vision_encoder: bool


def weight_folders(model: TowersConfig | PolicyModelConfig) -> list[tuple[str, str, list[str]]]:
    """Return (key, folder, files that must be in it) of every folder that a model starts from."""
    needed = {
        "siglip_path": ["config.json", WEIGHTS],
        "gemma3_path": ["config.json", WEIGHTS, *(["tokenizer.json"] if model.tokenizer_path is None else [])],
        "pretrained_path": [WEIGHTS, *(["tokenizer/tokenizer.json"] if model.tokenizer_path is None else [])],
        "tokenizer_path": ["tokenizer.json"],
    }
    return [(key, getattr(model, key), files) for key, files in needed.items() if getattr(model, key, None) is not None]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, sorted: one, or those that its index names; whether or not they are there.

    Raises:
        UserError: the index is damaged.
    """
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return [folder / WEIGHTS]
    try:
        return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not readable as an index of safetensors files ({error!r}); copy it again") from None


def read_config(folder: str, key: str) -> dict[str, Any]:
    """Return the config.json of a pretrained folder.

    Raises:
        UserError: naming ``key``, where the folder was given, if there is none or it is no JSON.
    """
    path = Path(folder) / "config.json"
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or not isinstance(found.get("vision_config", {}), dict):
            raise ValueError
        return found
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {key} must be a local folder in Hugging Face layout") from None
    except ValueError:
        raise UserError(f"{path}: not a model's configuration; copy the folder of {key} again") from None
