"""LIBERO-10 task 0 by a small random policy through its server, where LIBERO is installed (envs/libero.txt); minutes of one core."""

import contextlib
import importlib.util
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.dataset.frames import FrameCache, build_frame_cache
from recap_steam.dataset.indexing import index_dataset
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.simulation.collect import collect_stage
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
    collect = {"environment": "task0", "policy": "p", "num_episodes": 2, "seed": 49, "action_noise": 0.1}
    sections = {
        "environments": {"task0": TASK | changes},
        "datasets": {"rollouts": {"path": "data/rollouts", "type": "rollout", "collect": collect}},
        "evaluations": {"paired": evaluation},
    }
    return load_experiment({"experiment": "x"} | sections)


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory) -> Path:
    return save_small_policy(tmp_path_factory.mktemp("policy"), CAMERAS, 8, 7, PROMPT)


def test_two_short_episodes_through_the_server(policy_dir: Path, tmp_path: Path) -> None:
    evaluate_stage(experiment(), "paired", "p", policy_dir, 1.0, None, tmp_path / "arm.parquet")
    rows = pq.read_table(tmp_path / "arm.parquet").to_pylist()
    assert [(row["episode"], row["seed"], row["success"], row["num_frames"]) for row in rows] == [(0, 3, False, 6), (1, 4, False, 6)]


def test_a_policy_collects_a_dataset_that_is_read_like_any_other(policy_dir: Path, tmp_path: Path) -> None:
    """From the last recorded state and from one that is drawn; its first picture is the one that the policy saw there."""
    root = tmp_path / "rollouts"
    collect_stage(experiment(), "rollouts", policy_dir, root / "meta/info.json")
    dataset = open_dataset("rollouts", root)
    episodes, notes = index_dataset(dataset, "rollout")
    assert (episodes.length.tolist(), episodes.success.tolist(), notes) == ([6, 6], [False, False], [])
    build_frame_cache(dataset, episodes, list(CAMERAS), 64, tmp_path / "frames.arrow")
    cache = FrameCache.open(tmp_path / "frames.arrow", episodes)
    states = np.stack(pq.read_table(root / "data")["observation.state"].to_pylist())
    with make_environments(experiment().environments["task0"], 1) as [environment]:
        for seed, first in ((49, 0), (50, 6)):
            environment.reset(seed)
            np.testing.assert_array_equal(environment.state(), states[first].astype(np.float32))
            for key, picture in environment.render().items():
                np.testing.assert_array_equal(picture, cache.images(key, np.array([first]))[0])


def test_seeds_beyond_the_recorded_states_draw_states_of_their_own() -> None:
    """The same one whatever happened before; objects and hand lie elsewhere, but not far from where they lie in recorded states."""
    found = {}
    with make_environments(experiment().environments["task0"], 1) as [environment]:
        for seed in (50, 0, 51, 50):
            environment.reset(seed)
            seen = np.concatenate([environment.state(), *(picture.ravel() for picture in environment.render().values())])
            np.testing.assert_array_equal(found.setdefault(seed, seen), seen)
    for one, other in ((0, 50), (50, 51)):
        hands = found[one][:3], found[other][:3]
        assert 1e-4 < np.abs(hands[0] - hands[1]).max() < 0.1
        assert 0.5 < np.abs(found[one][8:] - found[other][8:]).mean() < 20


def test_observations_are_those_of_lerobots_own_environment() -> None:
    """States after its processor and pictures, bit by bit, in a recorded state and in motion, whatever happened before.

    One environment after the other: they share a GL context.
    """
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 7)).astype(np.float32)
    with make_environments(experiment().environments["task0"], 1) as [environment]:
        environment.reset(4)
        other = environment.state()
        environment.reset(3)
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
            np.testing.assert_array_equal(pictures[key], shown)


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
