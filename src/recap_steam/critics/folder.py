"""The critic folder: everything that labelling needs, and nothing else is needed.

config.json         architecture, cameras in order and their keys in the training data, image size, prompt template, longest prompt
model.safetensors   fp32 weights
normalizer.json     return scale (see ``labels.normalizer``)
tokenizer/          the prompt's tokenizer
evaluation.json     held-out metrics of the exported checkpoint and of the baselines
lineage.json, metrics.jsonl   written by the training loop
"""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.initialization import no_init_weights
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from recap_steam.critics.architecture import Architecture
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.prompts import TEMPLATE, PromptTable
from recap_steam.errors import UserError, run_target
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.tokenizer import load_tokenizer
from recap_steam.weights import load_model

MODEL_TYPE = "recap_value_critic"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What config.json says of a critic of either kind.

    ``camera_maps``: each training dataset's key of each camera, None where its robot lacks the camera.
    """

    cameras: list[str]
    camera_maps: dict[str, dict[str, str | None]]
    image_size: int
    max_token_len: int
    prompt_template: str

    def prompts(self, tasks: list[str], tokenizer: PreTrainedTokenizerFast) -> PromptTable:
        return PromptTable(tasks, tokenizer, self.max_token_len, self.prompt_template)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticCard(Card):
    """What config.json says of a value critic."""

    architecture: Architecture
    prompt_template: str = TEMPLATE
    model_type: str = MODEL_TYPE


@dataclasses.dataclass(frozen=True)
class SavedCritic:
    """A critic folder in memory; the model is on the CPU, in eval mode."""

    card: Card
    model: nn.Module
    tokenizer: PreTrainedTokenizerFast


def save_critic(
    folder: Path,
    card: CriticCard,
    weights: dict[str, Tensor],
    tokenizer: PreTrainedTokenizerFast,
    normalizer: ReturnNormalizer,
    evaluation: dict[str, float],
) -> None:
    """Write all files of a critic folder but the training loop's."""
    write_folder(folder, card, weights, tokenizer, evaluation)
    normalizer.save(folder)


def write_folder(
    folder: Path, card: Card, weights: dict[str, Tensor], tokenizer: PreTrainedTokenizerFast, evaluation: dict[str, float | None]
) -> None:
    """Write weights, configuration, tokenizer and metrics of a critic. Metrics that are not finite become null."""
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", dataclasses.asdict(card))
    finite = {name: value if value is not None and math.isfinite(value) else None for name, value in evaluation.items()}
    write_json(folder / "evaluation.json", finite)
    tokenizer.save_pretrained(folder / "tokenizer")


def load_critic(folder: Path | str) -> SavedCritic:
    """Load a critic folder, strictly.

    Raises:
        UserError: a file is missing or unreadable, or the tensors are not exactly those of config.json's architecture.
    """
    folder = Path(folder)
    card = load_card(folder)
    with no_init_weights():  # seconds at full size; the file has every tensor
        model = ValueCritic(card.architecture)
    load_model(model, folder)
    return SavedCritic(card, model.eval(), load_tokenizer(folder / "tokenizer"))


def load_card(folder: Path) -> CriticCard:
    """Read config.json of a value critic's folder."""

    def make(found: dict) -> CriticCard:
        return CriticCard(**{**found, "architecture": Architecture.from_json(found["architecture"])})

    return read_card(folder, MODEL_TYPE, make)


def read_card[Kind: Card](folder: Path, model_type: str, make: Callable[[dict], Kind]) -> Kind:
    """``make`` a card of config.json's content.

    Raises:
        UserError: no such file, or another ``model_type``.
    """
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text())
        if content["model_type"] != model_type:
            raise KeyError(content["model_type"])
        return make(content)
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {run_target('critics')}") from None
    except (ValueError, KeyError, TypeError) as error:
        remedy = f"give the folder of a {model_type}, or train it again"
        raise UserError(f"{path}: not a critic's configuration ({error}); {remedy}") from None


def write_json(path: Path, value: dict | list) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")
