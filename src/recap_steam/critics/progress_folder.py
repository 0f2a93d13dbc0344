"""Folders of progress critics: one member, as training writes it, or an ensemble, as ``ensemble.merge_stage`` writes it.

config.json         architecture, k, number of members, cameras in order and their keys in the training data, image size, prompt template,
                    longest prompt, length scale
model.safetensors   fp32 weights; in an ensemble their names begin with ``members.<index>.``
tokenizer/          the prompt's tokenizer
evaluation.json     held-out metrics and baselines; of an ensemble the members' means, and each member's as ``member<index>/...``
lineage.json        and of a member metrics.jsonl, of an ensemble merge_manifest.json: where each member came from
"""

import dataclasses
from pathlib import Path

from torch import nn
from transformers.initialization import no_init_weights

from recap_steam.critics.architecture import ProgressArchitecture
from recap_steam.critics.folder import Card, SavedCritic, read_card
from recap_steam.critics.pairs import LengthScale
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.tokenizer import load_tokenizer
from recap_steam.weights import load_model

MODEL_TYPE = "steam_progress_critic"
TEMPLATE = "Task: {prompt}\nValue: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressCard(Card):
    """What config.json says of a progress critic. ``length_scale``: None where strides are counted in frames."""

    architecture: ProgressArchitecture
    k: int
    length_scale: LengthScale | None
    ensemble_size: int = 1
    prompt_template: str = TEMPLATE
    model_type: str = MODEL_TYPE


class ProgressEnsemble(nn.Module):
    """The members of an ensemble, which share an architecture and no weights."""

    def __init__(self, architecture: ProgressArchitecture, size: int):
        super().__init__()
        self.members = nn.ModuleList(ProgressCritic(architecture) for _ in range(size))


def load_ensemble(folder: Path | str) -> SavedCritic:
    """Load an ensemble, strictly; the model is a ``ProgressEnsemble``.

    Raises:
        UserError: a file is missing or unreadable, or the tensors are not exactly those of config.json's members.
    """
    folder = Path(folder)
    card = load_progress_card(folder)
    with no_init_weights():  # the file has every tensor
        model = ProgressEnsemble(card.architecture, card.ensemble_size)
    load_model(model, folder)
    return SavedCritic(card, model.eval(), load_tokenizer(folder / "tokenizer"))


def load_progress_card(folder: Path) -> ProgressCard:
    """Read config.json of a member or an ensemble."""

    def make(found: dict) -> ProgressCard:
        scale = found["length_scale"]
        architecture = ProgressArchitecture(**found["architecture"])
        return ProgressCard(**{**found, "architecture": architecture, "length_scale": scale and LengthScale(**scale)})

    return read_card(folder, MODEL_TYPE, make)
