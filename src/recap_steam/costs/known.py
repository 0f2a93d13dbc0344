"""Rates that were measured, and which of them is that of a job."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recap_steam.errors import UserError
from recap_steam.lineage import digest_json
from recap_steam.model_config import read_config
from recap_steam.rates import CPU, Rate

TOWERS = {  # what determines the time of a tower
    "siglip": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "patch_size"),
    "gemma3": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
}
SAME_SPEED = (  # what a model may differ in at the same speed
    *("tokenizer_path", "pretrained_path", "max_token_len", "num_bins", "v_min", "v_max"),
    *("dropout", "value_dropout", "label_smoothing"),
)
TRAINING_ONLY = ("freeze_vision_encoder", "freeze_vlm", "freeze_language_model", "train_expert_only")
SCENE = ("prompt", "max_episode_steps")  # what an environment may differ in at the same speed


def read_rates(folders: Iterable[Path]) -> list[Rate]:
    """Rates in ``folders``, those of the first folder first, the newest of a folder first.

    Raises:
        UserError: a file is no rate.
    """
    files = [file for folder in folders for file in sorted(folder.glob("*.json"), key=lambda file: -file.stat().st_mtime)]
    return [_read(file) for file in files]


def _read(file: Path) -> Rate:
    try:
        return Rate(**json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: not a measured rate ({error}); delete it") from None


class KnownRates:
    """Rates to plan with.

    Args:
        found: of ``read_rates``.
        device: name of the device to plan for; None: the one that a model was last measured on.
    """

    def __init__(self, found: list[Rate], device: str | None):
        last = next((rate.device for rate in found if _has_model(rate.work)), CPU)
        self.device = device or last
        self._rates: dict[tuple[str, str], list[Rate]] = {}
        for rate in found:
            self._rates.setdefault((rate.stage, same_speed(rate.stage, rate.work)), []).append(rate)

    def of(self, stage: str, kind: dict[str, Any]) -> Rate | None:
        """The newest rate of this kind of work on the device; of work without a model, which no device speeds up, on any."""
        fitting = self._rates.get((stage, same_speed(stage, kind)), [])
        return next((rate for rate in fitting if rate.device == self.device or not _has_model(kind)), None)


def _has_model(work: dict[str, Any]) -> bool:
    """False for the frame cache and for the scripted expert."""
    return work.get("model") is not None


def same_speed(stage: str, kind: dict[str, Any]) -> str:
    """A digest that is the same for kinds of work of which a unit takes the same time on the same device."""
    kind = dict(kind)
    if kind.get("model"):
        kind["model"] = _model(kind["model"], training=stage.startswith("train_"))
    if "environment" in kind:
        kind["environment"] = {key: value for key, value in kind["environment"].items() if key not in SCENE}
    return digest_json(kind)


def _model(model: dict[str, Any], training: bool) -> dict[str, Any]:
    """A model's section without what does not matter; pretrained folders as the sizes that they have."""
    dropped = [*SAME_SPEED, *(() if training else TRAINING_ONLY)]
    kept = {key: value for key, value in model.items() if key not in dropped}
    for tower in TOWERS:
        if f"{tower}_path" in kept:
            kept[tower] = _tower(tower, kept.pop(f"{tower}_path"), kept.pop(f"{tower}_config"))
    return kept


def _tower(tower: str, folder: str | None, sizes: dict[str, Any] | None) -> dict[str, Any]:
    """The sizes of a tower; a folder that is not here stands for itself."""
    if folder is not None:
        try:
            found = read_config(folder, f"{tower}_path")
        except UserError:
            return {"folder": folder}
        sizes = found.get("vision_config", found)
    return {key: (sizes or {}).get(key) for key in TOWERS[tower]}
