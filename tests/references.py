"""Whole experiments with broken references, and what users read of them: shared by the tests of every check."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.references import check_references
from tests.changes import with_changes

EXPERIMENT = yaml.safe_load((Path(__file__).parent / "data/experiment.yaml").read_text())
CAMERA = "observation.images.corner2"
GIVEN = {"path": "given", "type": "rollout"}  # a dataset that was there before
SCORES, STEAM = "advantages.steam_q30", "critics.progress"


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The experiment with values set by dotted key."""
    return with_changes(EXPERIMENT, changes)


def check(changes: dict[str, Any]) -> None:
    """What every run does before anything else."""
    check_references(load_experiment(changed(changes)))


def assert_refused(changes: dict[str, Any], message: str) -> None:
    with refused(message):
        check(changes)


@contextlib.contextmanager
def refused(message: str) -> Iterator[None]:
    """A mistake in the experiment file is one line, which names the key and says ``message``, with the remedy."""
    with pytest.raises(UserError) as caught:
        yield
    text = str(caught.value)
    assert text.startswith("config: ")
    assert "\n" not in text
    assert message in text
