"""What an experiment file says about a label tag: recorded by who writes labels, and checked by who reads them."""

import dataclasses
from typing import Any

from recap_steam.config import Experiment
from recap_steam.label_config import ImportedAdvantagesConfig, ImportedReturnsConfig, SteamAdvantagesConfig

IMPORTED = {"returns": "import_returns", "advantages": "import_advantages"}  # stages, by kind
RELABELLED = "relabel_advantages"  # the stage of labels that a command made, not the workflow


def label_parameters(experiment: Experiment, tag: str) -> dict[str, Any]:
    """Return the tag's entry and what its critic learned: returns (RECAP), or strides up to k frames in ``num_bins`` bins (STEAM)."""
    labels = experiment.advantages[tag]
    if isinstance(labels, ImportedAdvantagesConfig):  # no dataset of the tag has a part in the labels of another
        return {"imported": dataclasses.asdict(labels.imported)}
    critic = experiment.critics[labels.critic]
    if isinstance(labels, SteamAdvantagesConfig):
        return dataclasses.asdict(labels) | {"k": critic.k, "num_bins": critic.model.num_bins}
    return dataclasses.asdict(labels) | returns_parameters(experiment, critic.returns_tag)


def returns_parameters(experiment: Experiment, tag: str) -> dict[str, Any]:
    """Return the tag's entry, without the datasets for which it is imported."""
    returns = experiment.returns[tag]
    if isinstance(returns, ImportedReturnsConfig):
        return {"imported": dataclasses.asdict(returns.imported), "gamma": returns.gamma}
    return dataclasses.asdict(returns)
