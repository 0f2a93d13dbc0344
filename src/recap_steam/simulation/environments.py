"""Simulated tasks behind the few methods that rollouts need, whatever the simulator."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from recap_steam.errors import UserError
from recap_steam.simulation_config import EnvironmentConfig, LiberoConfig


class Environment(Protocol):
    """One task instance; ``reset`` it before anything else."""

    config: EnvironmentConfig

    def reset(self, seed: int) -> None:
        """Put the task into the initial state that belongs to ``seed``, whatever happened before."""

    def state(self) -> np.ndarray:
        """What the robot senses of itself, float32 by ``config.robot.state_names``."""

    def render(self) -> dict[str, np.ndarray]:
        """By camera key, a picture (S, S, 3) uint8, as datasets of this simulator have it."""

    def step(self, action: np.ndarray) -> bool:
        """Hold ``action``, in [-1, 1], for action_repeat simulator steps or until success; return whether the task succeeded."""

    def expert_action(self) -> np.ndarray:
        """The scripted expert's action; only where ``config.has_expert``."""


@contextlib.contextmanager
def make_environments(config: EnvironmentConfig, count: int) -> Iterator[list[Environment]]:
    """``count`` environments of one task, which are closed at the end.

    Raises:
        UserError: the simulator has no such task or camera, or is not installed.
    """
    if isinstance(config, LiberoConfig):
        from recap_steam.simulation.libero import libero_environments as environments  # needs the extra
    else:
        from recap_steam.simulation.metaworld import metaworld_environments as environments
    with environments(config, count) as made:
        yield made


def frames_per_second(config: EnvironmentConfig) -> int:
    """Recorded frames per second of simulated time."""
    hz = config.robot.hz
    if hz % config.action_repeat:
        raise UserError(f"environment {config.task_name}: action_repeat {config.action_repeat} must divide {hz} (frame rates are integers)")
    return hz // config.action_repeat
