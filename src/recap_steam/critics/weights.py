"""A critic's pretrained parts, loaded strictly from local folders in transformers' layout."""

import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM, Gemma3TextModel
from transformers.models.siglip.configuration_siglip import SiglipConfig, SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipModel, SiglipVisionModel

from recap_steam.critics.model import KeyValueLayer, ValueCritic
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.errors import UserError
from recap_steam.model_config import read_config
from recap_steam.weights import TensorFolder, shapes_of


def load_pretrained(model: ValueCritic | ProgressCritic, siglip_path: str | None, gemma3_path: str | None) -> None:
    """Load pretrained parts from local folders in transformers' layout; of each, only what the critic has is read.

    Args:
        siglip_path: a SigLIP model (its text tower is left out, and where it is not read, its pooling head) or vision tower.
        gemma3_path: a Gemma3 language model (its head and unread layers are left out) or text model.

    Raises:
        UserError: a folder holds another architecture, not exactly the tensors of the one that it names, or not all that the critic has.
    """
    if siglip_path is not None:
        _load(
            siglip_path,
            "siglip_path",
            {"SiglipModel": (SiglipModel, SiglipConfig), "SiglipVisionModel": (SiglipVisionModel, SiglipVisionConfig)},
            model.vision.state_dict(),
        )
    if gemma3_path is not None:
        classes = {"Gemma3ForCausalLM": (Gemma3ForCausalLM, Gemma3TextConfig), "Gemma3TextModel": (Gemma3TextModel, Gemma3TextConfig)}
        text = model.text.state_dict() if isinstance(model, ProgressCritic) else _gemma3_names(model)
        _load(gemma3_path, "gemma3_path", classes, text)


def _load(folder: str, key: str, classes: dict[str, tuple[type[PreTrainedModel], type]], targets: dict[str, torch.Tensor]) -> None:
    found = read_config(folder, key)
    name = (found.get("architectures") or ["none"])[0]
    if name not in classes:
        raise UserError(f"{folder}/config.json: architecture {name}; {key} must hold one of {', '.join(classes)}")
    model_class, config_class = classes[name]
    with torch.device("meta"):  # shapes only
        whole = model_class(config_class.from_dict(found))
    tensors = TensorFolder(folder)
    tensors.check(shapes_of(whole.state_dict()), optional=frozenset(whole._tied_weights_keys or {}))
    prefix = f"{whole.base_model_prefix}." if name == "Gemma3ForCausalLM" else ""
    targets = {prefix + target_name: tensor for target_name, tensor in targets.items()}
    if absent := sorted(targets.keys() - tensors.shapes.keys()):
        raise UserError(f"{folder}: {name} without tensor {absent[0]}, which the critic reads; take a folder that has it")
    tensors.copy_into(targets)


def _gemma3_names(model: ValueCritic) -> dict[str, torch.Tensor]:
    """The text model's tensors by their names in transformers' Gemma3TextModel."""
    text, last = model.text, f"layers.{len(model.text.layers)}"
    names = {f"embed_tokens.{name}": tensor for name, tensor in text.embed.state_dict().items()}
    for index, layer in enumerate(text.layers):
        names |= {f"layers.{index}.{name}": tensor for name, tensor in layer.layer.state_dict().items()}
    for part, place in KeyValueLayer.PLACES.items():
        names |= {f"{last}.{place}.{name}": tensor for name, tensor in getattr(text.last, part).state_dict().items()}
    return names
