"""LIBERO-10 task 0 by a small random policy through its server, where LIBERO is installed (envs/libero.txt); minutes of one core."""

import contextlib
import importlib.util
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.simulation.environments import make_environments
from recap_steam.simulation.evaluate import evaluate_stage
from tests.policies import save_small_policy

if importlib.util.find_spec("libero") is None:
    pytest.skip("LIBERO is not installed: make LOCK=envs/libero.txt environment", allow_module_level=True)

CAMERAS = ("observation.images.base_0_rgb", "observation.images.left_wrist_0_rgb")
PROMPT = "put both the alphabet soup and the tomato sauce in the basket"
TASK = {"simulator": "libero", "suite": "libero_10", "task_id": 0, "prompt": PROMPT, "image_size": 64, "max_episode_steps": 6}


def experiment(**changes):
    evaluation = {"environment": "task0", "policies": ["p"], "num_episodes": 2, "seed": 3, "through_server": True}
    return load_experiment({"experiment": "x", "environments": {"task0": TASK | changes}, "evaluations": {"paired": evaluation}})


def test_two_short_episodes_through_the_server(tmp_path: Path) -> None:
    policy_dir = save_small_policy(tmp_path / "policy", CAMERAS, 8, 7)
    evaluate_stage(experiment(), "paired", "p", policy_dir, 1.0, None, tmp_path / "arm.parquet")
    rows = pq.read_table(tmp_path / "arm.parquet").to_pylist()
    assert [(row["episode"], row["seed"], row["success"], row["num_frames"]) for row in rows] == [(0, 3, False, 6), (1, 4, False, 6)]


def test_observations_are_those_of_lerobots_own_environment() -> None:
    """State after its processor, and which way up pictures are; and a seed gives one of the 50 recorded states, whatever happened before.

    One environment after the other: they share a GL context.
    """
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 7)).astype(np.float32)
    with make_environments(experiment().environments["task0"], 1) as [environment]:
        environment.reset(4)
        other = environment.state()
        environment.reset(53)
        ours = [(environment.state(), environment.render())]
        for action in actions:
            assert not environment.step(action)
            ours.append((environment.state(), environment.render()))
    theirs = lerobot_shows(initial_state=3, actions=actions)
    assert not np.allclose(other, ours[0][0])
    for (state, pictures), expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(state, expected["observation.state"][0].numpy(), atol=1e-6)
        for key, name in zip(CAMERAS, ("image", "image2"), strict=True):
            shown = expected[f"observation.images.{name}"][0].permute(1, 2, 0).numpy()
            differences = [np.abs(pictures[key].astype(int) - view).mean() for view in (shown, shown[::-1, ::-1])]
            assert differences[0] < differences[1] / 3  # the right way up; they are not equal pixel by pixel


def lerobot_shows(initial_state: int, actions: np.ndarray) -> list[dict]:
    """What lerobot's environment and processor make of the task after a reset and after each action."""
    import torch
    from lerobot.envs.libero import LiberoEnv
    from lerobot.processor.env_processor import LiberoProcessorStep
    from libero.libero import benchmark

    suite, size = benchmark.get_benchmark_dict()["libero_10"](), {"observation_width": 64, "observation_height": 64}
    with contextlib.closing(LiberoEnv(suite, 0, "libero_10", obs_type="pixels_agent_pos", episode_index=initial_state, **size)) as theirs:
        observations = [theirs.reset(seed=0)[0], *(theirs.step(action)[0] for action in actions)]
    shown = []
    for seen in observations:
        pictures = {f"observation.images.{name}": torch.tensor(p.copy()).permute(2, 0, 1)[None] for name, p in seen["pixels"].items()}
        sensed = {part: seen["robot_state"][part] for part in ("eef", "gripper")}
        robot = {part: {name: torch.tensor(value)[None] for name, value in values.items()} for part, values in sensed.items()}
        shown.append(LiberoProcessorStep().observation({**pictures, "observation.robot_state": robot}))
    return shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_id": 10}, "task_id 10, but libero_10 has tasks 0 to 9"),
        ({"cameras": {CAMERAS[0]: "agentviev"}}, "LIBERO has no camera 'agentviev'; it has frontview, "),
        ({"assets": "nowhere"}, "nowhere: no folder 'scenes', so these are not LIBERO's assets"),
    ],
)
def test_mistakes_are_one_line(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message), make_environments(experiment(**changes).environments["task0"], 1):
        pass
