"""The threshold file of one label tag, ``thresholds/{tag}.yaml``: what made the labels, and which share they came to."""

from pathlib import Path
from typing import Any

import yaml

from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.lineage import Lineage

RECAP_KEYS = (
    "tag",
    "thresholds",  # {pool: threshold}, or by task text or dataset name
    "pool",
    "positive_quantile",
    "advantage_lookahead_step",  # N
    "discount_next_value",
    "intervention_positive",
    "gamma",
    "failure_reward",  # null with imported returns
    "returns_tag",
    "critic",
    "critic_digest",
    "return_min",  # the critic's scale: a number, or by task text
    "return_max",  # largest return of the labelled datasets
)
STEAM_KEYS = (
    "tag",
    "thresholds",  # {pool: threshold}, of rollout and expert frames
    "positive_threshold",  # that of rollouts; without rollouts that of expert frames
    "label_mode",
    "rollout_quantile",
    "expert_quantile",
    "subtract_baseline",
    "baseline_lookahead",
    "baseline_bin",  # b_ref; null without baseline
    "intervention_positive",
    "k",
    "num_bins",
    "ensemble_size",
    "length_scale",  # of the critics; null where strides count in frames
    "critic",
    "critic_digest",
)
COUNTS = (
    "total_samples",
    "num_positive",
    "datasets",  # [{name, type, num_frames}]
    "positive_counts",  # realised, by dataset and outcome
    "lineage",
)


def is_steam(fragment: dict[str, Any]) -> bool:
    """Whether the labels come from scores."""
    return "label_mode" in fragment


def _keys(fragment: dict[str, Any]) -> tuple[str, ...]:
    return (*(STEAM_KEYS if is_steam(fragment) else RECAP_KEYS), *COUNTS)


def write_fragment(path: Path, fragment: dict[str, Any], lineage: Lineage) -> None:
    """Write a fragment with the keys of its method and ``COUNTS``, whole or not at all."""
    fragment = fragment | {"lineage": lineage.to_json()}
    content = {key: fragment[key] for key in _keys(fragment)}
    with atomic_output(path) as temporary:
        temporary.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))


def read_fragment(path: Path) -> dict[str, Any]:
    """Read a fragment; its ``lineage`` is returned as ``Lineage``.

    Raises:
        UserError: missing or malformed.
    """
    try:
        fragment = yaml.safe_load(Path(path).read_text())
        missing = [key for key in _keys(fragment) if key not in fragment]
    except FileNotFoundError:
        raise UserError(f"{path}: not found; run the rule compute_threshold") from None
    except (yaml.YAMLError, TypeError, UnicodeDecodeError):
        raise UserError(f"{path}: not a threshold file; delete it and run the rule compute_threshold") from None
    if missing:
        raise UserError(f"{path}: no key '{missing[0]}'; delete it and run the rule compute_threshold")
    return fragment | {"lineage": Lineage.from_json(fragment["lineage"], path=path)}
