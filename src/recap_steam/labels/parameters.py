"""What an experiment file says about a label tag: recorded by who writes labels, and checked by who reads them."""

import dataclasses
from typing import Any

from recap_steam.config import Experiment
from recap_steam.label_config import SteamAdvantagesConfig

RELABELLED = "relabel_advantages"  # the stage of labels that a command made, not the workflow


def label_parameters(experiment: Experiment, tag: str) -> dict[str, Any]:
    """Return the tag's entry and what its critic learned: returns (RECAP), or strides up to k frames in ``num_bins`` bins (STEAM)."""
    labels = experiment.advantages[tag]
    critic = experiment.critics[labels.critic]
    if isinstance(labels, SteamAdvantagesConfig):
        return dataclasses.asdict(labels) | {"k": critic.k, "num_bins": critic.model.num_bins}
    return dataclasses.asdict(labels) | dataclasses.asdict(experiment.returns[critic.returns_tag])
