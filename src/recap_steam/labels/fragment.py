"""The threshold file of one label tag, ``thresholds/{tag}.yaml``: what made the labels, and which share they came to."""

from pathlib import Path
from typing import Any

import yaml

from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.lineage import Lineage

KEYS = (
    "tag",
    "thresholds",  # {pool: threshold}, or by task text or dataset name
    "pool",
    "positive_quantile",
    "advantage_lookahead_step",  # N
    "discount_next_value",
    "intervention_positive",
    "gamma",
    "failure_reward",
    "returns_tag",
    "critic",
    "critic_digest",
    "return_min",  # the critic's scale: a number, or by task text
    "return_max",  # largest return of the labelled datasets
    "datasets",  # [{name, type, num_frames}]
    "positive_counts",  # realised, by dataset and outcome
    "lineage",
)


def write_fragment(path: Path, fragment: dict[str, Any], lineage: Lineage) -> None:
    """Write a fragment with the keys ``KEYS``, whole or not at all."""
    fragment = fragment | {"lineage": lineage.to_json()}
    with atomic_output(path) as temporary:
        temporary.write_text(yaml.safe_dump({key: fragment[key] for key in KEYS}, sort_keys=False, allow_unicode=True, width=1000))


def read_fragment(path: Path) -> dict[str, Any]:
    """Read a fragment; its ``lineage`` is returned as ``Lineage``.

    Raises:
        UserError: missing or malformed.
    """
    try:
        fragment = yaml.safe_load(Path(path).read_text())
        missing = [key for key in KEYS if key not in fragment]
    except FileNotFoundError:
        raise UserError(f"{path}: not found; run the rule compute_threshold") from None
    except (yaml.YAMLError, TypeError, UnicodeDecodeError):
        raise UserError(f"{path}: not a threshold file; delete it and run the rule compute_threshold") from None
    if missing:
        raise UserError(f"{path}: no key '{missing[0]}'; delete it and run the rule compute_threshold")
    return fragment | {"lineage": Lineage.from_json(fragment["lineage"], path=path)}
