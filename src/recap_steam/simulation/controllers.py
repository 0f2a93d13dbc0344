"""What chooses actions in a rollout: the simulator's scripted expert or a trained policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from recap_steam.config import EXPERT
from recap_steam.errors import UserError
from recap_steam.lineage import digest_file
from recap_steam.rates import CPU
from recap_steam.simulation.environments import ACTION_NAMES, STATE_NAMES, camera_key
from recap_steam.simulation_config import EnvironmentConfig

if TYPE_CHECKING:
    from recap_steam.simulation.rollout import Run


class Controller(Protocol):
    """Plans the next actions of many runs at once."""

    sees: bool  # whether it needs a picture to plan
    device: str  # what it computes on, by name

    def plan(self, runs: "list[Run]") -> np.ndarray:
        """Next actions (len(runs), n, 4); all n are executed before the next call."""


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
        self._camera, self.device = camera_key(config), device

    def plan(self, runs: "list[Run]") -> np.ndarray:
        images = {self._camera: np.stack([run.image for run in runs])}
        states = np.stack([run.environment.state() for run in runs])
        noise = np.stack([run.rng.standard_normal(self._runner.noise_shape, np.float32) for run in runs])
        return self._runner.act(images, states, [self._prompt] * len(runs), self._guidance_scale, noise)


def load_controller(policy: str, policy_dir: Path | None, config: EnvironmentConfig, guidance_scale: float | None) -> Controller:
    """The controller named ``policy``: ``expert`` or a trained policy in ``policy_dir``.

    Raises:
        UserError: the policy does not fit the environment's camera, state or action.
    """
    if policy == EXPERT:
        return Expert()
    if policy_dir is None:
        raise UserError(f"policy {policy}: its folder is needed (--policy-dir); only '{EXPERT}' has none")
    from recap_steam import devices  # these import torch and lerobot, which the expert does without
    from recap_steam.policy.runner import PolicyRunner

    runner = PolicyRunner.load(policy_dir)
    needed = {
        "cameras": ([camera_key(config)], list(runner.cameras)),
        "state dimensions": (len(STATE_NAMES), runner.state_dim),
        "action dimensions": (len(ACTION_NAMES), runner.action_dim),
    }
    for what, (has, wants) in needed.items():
        if has != wants:
            raise UserError(
                f"{policy_dir}: policy {policy} was trained with {what} {wants}, environment {config.task} has {has}; change either"
            )
    return LearnedPolicy(runner, config, guidance_scale, devices.name())


def policy_inputs(policy_dir: Path | None) -> dict[str, str]:
    """The lineage's inputs of a rollout: the policy's weights; nothing for the expert."""
    return {} if policy_dir is None else {"policy": digest_file(policy_dir / "model.safetensors")}
