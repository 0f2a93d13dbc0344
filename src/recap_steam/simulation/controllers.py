"""What chooses actions in a rollout: the simulator's scripted expert or a trained policy."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from recap_steam.config import EXPERT
from recap_steam.errors import UserError
from recap_steam.lineage import digest_file
from recap_steam.rates import CPU
from recap_steam.simulation_config import EnvironmentConfig

if TYPE_CHECKING:
    from recap_steam.simulation.rollout import Run


class Controller(Protocol):
    """Plans the next actions of many runs at once."""

    sees: bool  # whether it needs pictures to plan
    device: str  # what it computes on, by name

    def plan(self, runs: "list[Run]") -> np.ndarray:
        """Next actions (len(runs), n, action_dim); all n are executed before the next call."""


class Expert:
    """The simulator's scripted expert, asked anew at every frame."""

    sees = False
    device = CPU

    def plan(self, runs: "list[Run]") -> np.ndarray:
        return np.stack([run.environment.expert_action() for run in runs])[:, None]


class LearnedPolicy:
    """A trained policy at one guidance scale (None: plain imitation).

    The denoising noise comes from each run's own generator, so that arms of an evaluation meet the same noise.
    """

    sees = True

    def __init__(self, runner, config: EnvironmentConfig, guidance_scale: float | None, device: str):
        self._runner, self._prompt, self._guidance_scale = runner, config.prompt, guidance_scale
        self.device = device

    def plan(self, runs: "list[Run]") -> np.ndarray:
        images = {camera: np.stack([run.images[camera] for run in runs]) for camera in self._runner.cameras}
        states = np.stack([run.environment.state() for run in runs])
        noise = np.stack([run.rng.standard_normal(self._runner.noise_shape, np.float32) for run in runs])
        return self._runner.act(images, states, [self._prompt] * len(runs), self._guidance_scale, noise)


def load_controller(policy: str, policy_dir: Path | None, config: EnvironmentConfig, guidance_scale: float | None) -> Controller:
    """The controller named ``policy``: ``expert`` or a trained policy in ``policy_dir``.

    Raises:
        UserError: the policy does not fit the environment's cameras, state or action.
    """
    if policy == EXPERT:
        return Expert()
    if policy_dir is None:
        raise UserError(f"policy {policy}: its folder is needed (--policy-dir); only '{EXPERT}' has none")
    from recap_steam import devices  # these import torch and lerobot, which the expert does without
    from recap_steam.policy.runner import PolicyRunner

    runner = PolicyRunner.load(policy_dir)
    check_fit(f"{policy_dir}: policy {policy}", runner.cameras, runner.state_dim, runner.action_dim, config)
    return LearnedPolicy(runner, config, guidance_scale, devices.name())


@contextlib.contextmanager
def open_controller(
    policy: str, policy_dir: Path | None, config: EnvironmentConfig, guidance_scale: float | None, through_server: bool
) -> Iterator[Controller]:
    """As ``load_controller``, or the policy behind a server that is started here and ends with the block."""
    if policy_dir is None or not through_server:
        yield load_controller(policy, policy_dir, config, guidance_scale)
        return
    from recap_steam.simulation.served import policy_server, served_policy

    with policy_server(policy_dir, guidance_scale) as port, served_policy(port, config) as controller:
        yield controller


def check_fit(policy: str, cameras: list[str], state_dim: int, action_dim: int, config: EnvironmentConfig) -> None:
    """Raise UserError unless a policy takes what the environment shows and gives what it takes."""
    needed = {
        "cameras": (sorted(config.camera_keys), sorted(cameras)),
        "state dimensions": (len(config.robot.state_names), state_dim),
        "action dimensions": (len(config.robot.action_names), action_dim),
    }
    for what, (has, wants) in needed.items():
        if has != wants:
            raise UserError(f"{policy} was trained with {what} {wants}, environment {config.task_name} has {has}; change either")


def policy_inputs(policy_dir: Path | None) -> dict[str, str]:
    """The lineage's inputs of a rollout: the policy's weights; nothing for the expert."""
    return {} if policy_dir is None else {"policy": digest_file(policy_dir / "model.safetensors")}
