"""Sizes of a critic: from the experiment's configuration, or from the pretrained folders that it names."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

from recap_steam.config import CriticModelConfig
from recap_steam.critics.value_head import Support
from recap_steam.errors import UserError

# transformers 5.5 warns of the rope_parameters that its own Gemma3 configuration makes
logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)


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
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Everything that determines a critic's tensors. ``siglip`` and ``gemma3`` are keyword arguments of transformers' configurations."""

    siglip: dict[str, Any]
    gemma3: dict[str, Any]
    expert: ExpertSize
    support: Support
    value_dropout: float

    @classmethod
    def from_config(cls, config: CriticModelConfig) -> "Architecture":
        """Read the sizes that an experiment asks for.

        Raises:
            UserError: neither folder nor sizes are given, or parts do not fit together.
        """
        try:
            siglip, gemma3, expert = _siglip(config), _gemma3(config), EXPERT_VARIANTS[config.critic_expert_variant]
        except StrictDataclassError as error:  # transformers' own check of sizes
            raise UserError(f"config: siglip_config or gemma3_config: {error.__cause__ or error}") from None
        _check_sizes(config, siglip, gemma3, expert)
        support = Support(config.num_bins, config.v_min, config.v_max)
        return cls(_arguments(siglip), _arguments(gemma3), expert, support, config.value_dropout)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Architecture":
        """Undo ``dataclasses.asdict``."""
        return cls(**{**value, "expert": ExpertSize(**value["expert"]), "support": Support(**value["support"])})


def _check_sizes(config: CriticModelConfig, siglip: SiglipVisionConfig, gemma3: Gemma3TextConfig, expert: ExpertSize) -> None:
    size, patch, layers, kv_heads = siglip.image_size, siglip.patch_size, gemma3.num_hidden_layers, gemma3.num_key_value_heads
    name = f"critic expert '{config.critic_expert_variant}'"
    problems = [
        (layers < expert.depth, f"{name} reads {expert.depth} text layers, gemma3 has {layers}; choose a shallower expert or more layers"),
        (size != config.image_size, f"image_size is {config.image_size}, but the vision tower was made for {size}; set it to that"),
        (size % patch, f"image_size {size} is not a multiple of the vision tower's patch_size {patch}"),
        (siglip.hidden_size % siglip.num_attention_heads, "siglip hidden_size is not a multiple of its num_attention_heads"),
        (gemma3.num_attention_heads % kv_heads, f"gemma3 num_attention_heads is not a multiple of its num_key_value_heads {kv_heads}"),
        (expert.num_heads % kv_heads, f"{name} has {expert.num_heads} heads, not a multiple of gemma3's num_key_value_heads {kv_heads}"),
        (gemma3.head_dim % 2, f"gemma3 head_dim {gemma3.head_dim} is odd; rotary embeddings need an even number"),
    ]
    for is_wrong, message in problems:
        if is_wrong:
            raise UserError(f"config: {message}")


def read_config(folder: str, key: str) -> dict[str, Any]:
    """The config.json of a pretrained folder; ``key`` names it in the message."""
    path = Path(folder) / "config.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {key} must be a local folder in Hugging Face layout") from None
    except ValueError:
        raise UserError(f"{path}: not JSON; copy the folder of {key} again") from None


def _siglip(config: CriticModelConfig) -> SiglipVisionConfig:
    if config.siglip_path is not None:
        found = read_config(config.siglip_path, "siglip_path")
        return SiglipVisionConfig.from_dict(found.get("vision_config", found))
    if config.siglip_config is None:
        raise UserError("config: a critic needs siglip_path (a local folder) or siglip_config (sizes)")
    return SiglipVisionConfig(**config.siglip_config, image_size=config.image_size)


def _gemma3(config: CriticModelConfig) -> Gemma3TextConfig:
    if config.gemma3_path is not None:
        return Gemma3TextConfig.from_dict(read_config(config.gemma3_path, "gemma3_path"))
    if config.gemma3_config is None:
        raise UserError("config: a critic needs gemma3_path (a local folder) or gemma3_config (sizes)")
    sizes = Gemma3TextConfig(**config.gemma3_config)
    sizes.query_pre_attn_scalar = sizes.head_dim
    sizes.initializer_range = sizes.hidden_size**-0.5  # keeps the scale of activations; the default is made for large widths
    return sizes


_BOOKKEEPING = ("transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path")


def _arguments(config: SiglipVisionConfig | Gemma3TextConfig) -> dict[str, Any]:
    return {key: value for key, value in json.loads(config.to_json_string(use_diff=False)).items() if key not in _BOOKKEEPING}
