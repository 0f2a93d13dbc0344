"""Strict loading of tensors: every missing, unexpected or misshapen tensor is an error."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM, Gemma3TextModel
from transformers.models.siglip.configuration_siglip import SiglipConfig, SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipModel, SiglipVisionModel

from recap_steam.critics.architecture import read_config
from recap_steam.critics.model import KeyValueLayer, ValueCritic
from recap_steam.errors import UserError

Shapes = dict[str, tuple[int, ...]]


class TensorFolder:
    """The tensors of the safetensors files of a folder, one file or a sharded set with its index.

    Raises:
        UserError: no weights in the folder, or an unreadable file.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        index = self.folder / "model.safetensors.index.json"
        names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else ["model.safetensors"]
        self._files: dict[str, Path] = {}
        self.shapes: Shapes = {}
        for path in (self.folder / name for name in names):
            with _open(path) as file:
                for name in file.keys():  # noqa: SIM118 (not a mapping)
                    self._files[name], self.shapes[name] = path, tuple(file.get_slice(name).get_shape())

    def check(self, expected: Shapes, optional: frozenset[str] = frozenset()) -> None:
        """Raise UserError where the tensors are not exactly the ``expected`` ones; ``optional`` ones may be absent."""
        missing = sorted(expected.keys() - self.shapes.keys() - optional)
        extra = sorted(self.shapes.keys() - expected.keys())
        misshapen = [name for name in expected if name in self.shapes and self.shapes[name] != expected[name]]
        for problem, names in (("lacks", missing), ("has an unknown", extra), ("has a misshapen", misshapen)):
            if names:
                shapes = f": {self.shapes[names[0]]} instead of {expected[names[0]]}" if names is misshapen else ""
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                raise UserError(f"{self.folder}: {problem} tensor {names[0]}{shapes}{more}; these weights are not of this architecture")

    def copy_into(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy each named tensor into its target, in the target's dtype."""
        for path in sorted(set(self._files.values())):
            with _open(path) as file, torch.no_grad():
                for name in targets.keys() & {name for name, place in self._files.items() if place == path}:
                    targets[name].copy_(file.get_tensor(name))


def load_model(model: nn.Module, folder: Path | str) -> None:
    """Load a critic folder's own weights into ``model``.

    Raises:
        UserError: the folder's tensors are not exactly the model's.
    """
    tensors, targets = TensorFolder(folder), model.state_dict()
    tensors.check({name: tuple(tensor.shape) for name, tensor in targets.items()})
    tensors.copy_into(targets)


def load_pretrained(model: ValueCritic, siglip_path: str | None, gemma3_path: str | None) -> None:
    """Load pretrained parts from local folders in transformers' layout; of each, only what the critic has is read.

    Args:
        siglip_path: a SigLIP model (its text tower and pooling head are left out) or vision tower.
        gemma3_path: a Gemma3 language model (its head and unread layers are left out) or text model.

    Raises:
        UserError: a folder holds another architecture, or not exactly the tensors of the one that it names.
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
        _load(gemma3_path, "gemma3_path", classes, _gemma3_names(model))


def _load(folder: str, key: str, classes: dict[str, tuple[type[PreTrainedModel], type]], targets: dict[str, torch.Tensor]) -> None:
    found = read_config(folder, key)
    name = (found.get("architectures") or ["none"])[0]
    if name not in classes:
        raise UserError(f"{folder}/config.json: architecture {name}; {key} must hold one of {', '.join(classes)}")
    model_class, config_class = classes[name]
    with torch.device("meta"):  # shapes only
        whole = model_class(config_class.from_dict(found))
    expected = {tensor_name: tuple(tensor.shape) for tensor_name, tensor in whole.state_dict().items()}
    tensors = TensorFolder(folder)
    tensors.check(expected, optional=frozenset(whole._tied_weights_keys or {}))
    prefix = f"{whole.base_model_prefix}." if name == "Gemma3ForCausalLM" else ""
    tensors.copy_into({prefix + target_name: tensor for target_name, tensor in targets.items()})


def _gemma3_names(model: ValueCritic) -> dict[str, torch.Tensor]:
    """The text model's tensors by their names in transformers' Gemma3TextModel."""
    text, last = model.text, f"layers.{len(model.text.layers)}"
    names = {f"embed_tokens.{name}": tensor for name, tensor in text.embed.state_dict().items()}
    for index, layer in enumerate(text.layers):
        names |= {f"layers.{index}.{name}": tensor for name, tensor in layer.layer.state_dict().items()}
    for part, place in KeyValueLayer.PLACES.items():
        names |= {f"{last}.{place}.{name}": tensor for name, tensor in getattr(text.last, part).state_dict().items()}
    return names


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise UserError(f"{path}: not found, so there are no weights to load; copy or train them again") from None
    except SafetensorError as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}); copy or train it again") from None
