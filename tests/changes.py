"""Experiments that differ from another one in a few keys."""

import copy
from typing import Any


def with_changes(experiment: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``experiment`` with values set by dotted key; missing sections are made."""
    experiment = copy.deepcopy(experiment)
    for key, value in changes.items():
        *parents, leaf = key.split(".")
        section = experiment
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = copy.deepcopy(value)
    return experiment
