"""The check of progress critics and of labels made from their scores, before anything runs."""

import re
from pathlib import Path

from recap_steam.config import Experiment, ProgressCriticConfig
from recap_steam.errors import config_error
from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.model_config import read_config


def check_steam(experiment: Experiment) -> None:
    """Check what the schema cannot see of STEAM critics and labels.

    Raises:
        UserError: naming the key, what is wrong and the remedy.
    """
    for tag, critic in experiment.critics.items():
        if isinstance(critic, ProgressCriticConfig):
            _check_training_data(f"critics.{tag}.datasets", critic, experiment)
            _check_members(f"critics.{tag}", critic)
            if critic.length_scale_enabled and critic.model.num_bins == 2:
                message = "two bins tell only the direction, which no scale changes; use more bins, or remove it"
                raise config_error(f"critics.{tag}.length_scale_enabled", message)
    for tag, labels in experiment.judged_labels.items():
        steam = isinstance(labels, SteamAdvantagesConfig)
        if steam != isinstance(experiment.critics[labels.critic], ProgressCriticConfig):
            method, remedy = ("recap", "remove label_mode") if steam else ("steam", "set label_mode (threshold or quantile)")
            raise config_error(f"advantages.{tag}", f"its critic '{labels.critic}' has method {method}; {remedy}, or name another critic")
        if steam:
            types = {experiment.datasets[name].type for name in labels.datasets}
            check_mode(f"advantages.{tag}", labels, types)
            _check_scale(f"advantages.{tag}", labels, experiment.critics[labels.critic])


def _check_training_data(key: str, critic: ProgressCriticConfig, experiment: Experiment) -> None:
    for name in critic.datasets:
        if experiment.datasets[name].type == "rollout" and not critic.train_on_rollouts:
            remedy = "remove it here, or set train_on_rollouts: true"
            raise config_error(key, f"'{name}' has type rollout, and only in expert data later is better; {remedy}")


def member_source(member: str) -> tuple[Path, int | None]:
    """Return folder and index of an entry of ``members``: ``PATH``, or ``PATH:index`` for one member of an ensemble."""
    indexed = re.fullmatch(r"(.+):(\d+)", member)
    return (Path(indexed[1]), int(indexed[2])) if indexed else (Path(member), None)


def _check_members(key: str, critic: ProgressCriticConfig) -> None:
    """Members that are merged instead of trained are there."""
    if critic.members is None:
        return
    if critic.ensemble_size != len(critic.members):
        raise config_error(f"{key}.ensemble_size", f"{critic.ensemble_size}, but there are {len(critic.members)} members; give that number")
    for member in critic.members:
        folder, _ = member_source(member)
        if not (folder / "config.json").is_file():
            raise config_error(f"{key}.members", f"{folder} has no config.json; give the folder of a trained member or ensemble")
        _check_member(key, critic, folder)


def _check_member(key: str, critic: ProgressCriticConfig, folder: Path) -> None:
    """A member is what the experiment says of it, as far as its folder states it."""
    found = read_config(str(folder), f"{key}.members")
    stated = {name: found[name] for name in ("k", "cameras", "image_size") if name in found}
    stated |= {"num_bins": found["architecture"].get("num_bins")} if isinstance(found.get("architecture"), dict) else {}
    stated |= {"length_scale_enabled": found["length_scale"] is not None} if "length_scale" in found else {}
    meant = {name: getattr(critic.model if name in ("image_size", "num_bins") else critic, name) for name in stated}
    for name, value in stated.items():
        if value != meant[name]:
            raise config_error(f"{key}.members", f"{folder}: {name} is {value}, the experiment says {meant[name]}; write it as it is there")


def check_mode(key: str, labels: SteamAdvantagesConfig, types: set[str]) -> None:
    """Each mode has what it needs and nothing that it would ignore."""
    threshold = labels.label_mode == "threshold"
    unused = ("rollout_quantile", "expert_quantile") if threshold else ("positive_threshold",)
    for name in unused:
        if getattr(labels, name) is not None:
            other = "quantile" if threshold else "threshold"
            raise config_error(f"{key}.{name}", f"is not used with label_mode {labels.label_mode}; remove it, or set label_mode: {other}")
    if threshold and labels.positive_threshold is None:
        raise config_error(f"{key}.positive_threshold", "label_mode threshold needs it; give the score above which a frame is positive")
    if not threshold:
        _check_pools(key, labels, types)


def _check_pools(key: str, labels: SteamAdvantagesConfig, types: set[str]) -> None:
    """Every pool of frames has its share, every share a pool."""
    if "rollout" in types and labels.rollout_quantile is None:
        raise config_error(f"{key}.rollout_quantile", "label_mode quantile needs it; give the share of the rollouts' frames to be positive")
    if "rollout" not in types and labels.expert_quantile is None:
        raise config_error(f"{key}.expert_quantile", "without rollouts every frame is positive; give the share, or add a rollout dataset")
    for kind, name in (("rollout", "rollout_quantile"), ("sft", "expert_quantile")):
        if kind not in types and getattr(labels, name) is not None:
            raise config_error(f"{key}.{name}", f"no dataset of the tag has type {kind}; remove it, or add one")


def _check_scale(key: str, labels: SteamAdvantagesConfig, critic: ProgressCriticConfig) -> None:
    """The threshold can be reached, and the baseline lies within the critic's look-ahead."""
    if labels.baseline_lookahead is not None and not labels.subtract_baseline:
        raise config_error(f"{key}.baseline_lookahead", "is only used with a baseline; remove it, or set subtract_baseline: true")
    if labels.baseline_lookahead is not None and labels.baseline_lookahead > critic.k:
        raise config_error(f"{key}.baseline_lookahead", f"{labels.baseline_lookahead} is more than k {critic.k} of '{labels.critic}'")
    bins, low, high = critic.model.num_bins, -1.0, 1.0
    if labels.subtract_baseline:
        baseline = ((labels.baseline_lookahead or critic.k) + critic.k - 1) * bins // (2 * critic.k)  # its bin, as labels.scores has it
        low, high = -2 * baseline / bins, 2 * (bins - 1 - baseline) / bins
    if labels.positive_threshold is not None and not low <= labels.positive_threshold <= high:
        raise config_error(f"{key}.positive_threshold", f"{labels.positive_threshold} is no score: these lie between {low:g} and {high:g}")
