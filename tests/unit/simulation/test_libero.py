"""What of LIBERO needs no LIBERO; the simulator itself is in tests/e2e/test_libero.py."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.processor.env_processor import LiberoProcessorStep

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.simulation.environments import frames_per_second, make_environments
from recap_steam.simulation.libero import axis_angle
from recap_steam.simulation_config import LiberoConfig

REPOSITORY = Path(__file__).parents[3]


def config(**changes) -> LiberoConfig:
    task = {"simulator": "libero", "suite": "libero_10", "task_id": 0, "prompt": "put both in the basket"}
    return load_experiment({"experiment": "x", "environments": {"task0": task | changes}}).environments["task0"]


def test_orientations_are_lerobots_axis_angles() -> None:
    """Beyond half a turn, too, where the shortest rotation would be another vector; no rotation is zero."""
    quaternions = np.random.default_rng(0).normal(size=(200, 4))
    quaternions = np.concatenate([quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True), [[0, 0, 0, 1.0]]])
    assert (quaternions[:, 3] < 0).any()
    parts = {"eef": {"pos": torch.zeros(201, 3), "quat": torch.from_numpy(quaternions)}, "gripper": {"qpos": torch.zeros(201, 2)}}
    state = LiberoProcessorStep().observation({"observation.robot_state": parts})["observation.state"]
    np.testing.assert_allclose(np.stack([axis_angle(q) for q in quaternions]), state[:, 3:6].numpy(), atol=1e-4)


def test_defaults_are_those_of_libero() -> None:
    """20 control steps a second, two cameras by pi0.5's names, 520 steps for the long tasks."""
    assert frames_per_second(config()) == 20 and config().max_episode_steps == 520
    assert config().cameras == {
        "observation.images.base_0_rgb": "agentview",
        "observation.images.left_wrist_0_rgb": "robot0_eye_in_hand",
    }
    assert (len(config().robot.state_names), len(config().robot.action_names)) == (8, 7)
    with pytest.raises(UserError, match="environment libero_10 task 0: action_repeat 3 must divide 20"):
        frames_per_second(config(action_repeat=3))


@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="LIBERO is installed")
def test_without_the_extra_one_line_says_what_to_run() -> None:
    with pytest.raises(UserError) as caught, make_environments(config(), 1):
        pass
    assert str(caught.value) == "environment: LIBERO is not installed; run make LOCK=envs/libero.txt environment"
    assert (REPOSITORY / "envs/libero.in").is_file()
