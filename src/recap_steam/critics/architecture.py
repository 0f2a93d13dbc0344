"""Sizes of a critic: from the experiment's configuration, or from the pretrained folders that it names."""

import dataclasses
import json
import logging
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers.activations import ACT2FN
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

from recap_steam.critics.value_head import Support
from recap_steam.errors import UserError, config_error
from recap_steam.model_checks import size_problems
from recap_steam.model_config import EXPERT_VARIANTS, CriticModelConfig, ExpertSize, ProgressModelConfig, TowersConfig, read_config

# transformers 5.5 warns of the rope_parameters that its own Gemma3 configuration makes
logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """All that determines a value critic's tensors. ``siglip`` and ``gemma3`` are keyword arguments of transformers' configurations."""

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
        siglip, gemma3 = _towers(config)
        support = Support(config.num_bins, config.v_min, config.v_max)
        return cls(siglip, gemma3, EXPERT_VARIANTS[config.critic_expert_variant], support, config.value_dropout)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Architecture":
        """Undo ``dataclasses.asdict``."""
        return cls(**{**value, "expert": ExpertSize(**value["expert"]), "support": Support(**value["support"])})


@dataclasses.dataclass(frozen=True)
class ProgressArchitecture:
    """All that determines a progress critic's tensors, and its dropout; see ``Architecture``."""

    siglip: dict[str, Any]
    gemma3: dict[str, Any]
    fusion_hidden_dim: int
    num_bins: int
    dropout: float

    @classmethod
    def from_config(cls, config: ProgressModelConfig) -> "ProgressArchitecture":
        """Read the sizes that an experiment asks for; raises what ``Architecture.from_config`` does."""
        return cls(*_towers(config), config.fusion_hidden_dim, config.num_bins, config.dropout)


def _towers(config: TowersConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of transformers' configurations of SigLIP's vision tower and Gemma3's text model."""
    try:
        siglip, gemma3 = _arguments(_siglip(config)), _arguments(_gemma3(config))
    except StrictDataclassError as error:  # transformers' own check of sizes
        raise UserError(f"config: siglip_config or gemma3_config: {error.__cause__ or error}") from None
    for name, activation in (("siglip", siglip["hidden_act"]), ("gemma3", gemma3["hidden_activation"])):
        if activation not in ACT2FN:
            raise config_error(f"critics.*.model.{name}_path", f"unknown activation {activation!r}; copy the folder again")
    for key, message in size_problems(config, siglip, gemma3):
        raise config_error(f"critics.*.model.{key}", message)
    return siglip, gemma3


def _siglip(config: TowersConfig) -> SiglipVisionConfig:
    if config.siglip_path is not None:
        found = read_config(config.siglip_path, "siglip_path")
        return SiglipVisionConfig.from_dict(found.get("vision_config", found))
    if config.siglip_config is None:
        raise UserError("config: a critic needs siglip_path (a local folder) or siglip_config (sizes)")
    return SiglipVisionConfig(**config.siglip_config, image_size=config.image_size)


def _gemma3(config: TowersConfig) -> Gemma3TextConfig:
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
