"""Meta-World v3 tasks.

Meta-World's ``reset(seed)`` ignores the seed; here the seed draws the task's random vector (object and goal positions), so an initial
state is a function of the seed alone.
"""

import contextlib
import difflib
import warnings
from collections.abc import Iterator

import numpy as np

from recap_steam.errors import UserError
from recap_steam.simulation.rendering import Renderer, import_mujoco
from recap_steam.simulation_config import MetaWorldConfig

# Meta-World's corner2 stands so far away that the object covers a few pixels; lerobot and the visual-control literature move it here.
NEAR_CORNER2 = (0.75, 0.075, 0.7)


class MetaWorldEnvironment:
    """One task instance; ``reset`` it before anything else.

    The observation has no object position: the task must be seen. ``step`` takes an action (4,) in [-1, 1].
    """

    def __init__(self, config: MetaWorldConfig, renderer: Renderer | None = None):
        env_class, policy_class = _task_classes(config.task)
        self.config = config
        self._env = env_class()
        self._env.max_path_length = config.max_episode_steps * config.action_repeat + 1  # ours is the only limit
        _show_goal(self._env)
        self._expert = policy_class()
        self._camera = _find_camera(self._env.model, config)
        self._renderer = renderer
        self._observation = None

    @property
    def model(self):
        """MuJoCo's model, from which a shared renderer is made."""
        return self._env.model

    def reset(self, seed: int) -> None:
        """Put the task into the initial state that belongs to ``seed``, whatever happened before."""
        self._env.seed(seed)
        self._env.seeded_rand_vec, self._env._freeze_rand_vec = True, False
        self._env.reset()  # draws the random vector by the task's own rule
        self._env._freeze_rand_vec = True
        self._observation, _ = self._env.reset()  # settles the hand with the objects where they now belong
        import_mujoco().mj_forward(self._env.model, self._env.data)

    def state(self) -> np.ndarray:
        """Proprioception (4,) float32: hand position in metres, gripper opening."""
        return self._observation[:4].astype(np.float32)

    def render(self) -> dict[str, np.ndarray]:
        """The camera's picture by its key, (S, S, 3) uint8, upright."""
        picture = self._renderer.render(self._env.model, self._env.data, self._camera)
        camera_up = self._env.data.cam_xmat[self._camera].reshape(3, 3)[2, 1]
        upright = picture[::-1, ::-1] if camera_up < 0 else picture  # most of Meta-World's cameras hang upside down
        return dict.fromkeys(self.config.camera_keys, np.ascontiguousarray(upright))

    def step(self, action: np.ndarray) -> bool:
        """Hold ``action`` for action_repeat simulator steps or until success; return whether the task succeeded."""
        for _ in range(self.config.action_repeat):
            self._observation, _, _, _, info = self._env.step(action)
            if info["success"]:
                return True
        return False

    def expert_action(self) -> np.ndarray:
        """Action (4,) float32 of Meta-World's scripted expert, which sees the whole simulator state."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Constant(s) may be too high": clipped below
            action = self._expert.get_action(self._observation)
        return np.clip(action, -1.0, 1.0).astype(np.float32)


@contextlib.contextmanager
def metaworld_environments(config: MetaWorldConfig, count: int) -> Iterator[list[MetaWorldEnvironment]]:
    """``count`` environments of one task that share a renderer, which is closed at the end."""
    first = MetaWorldEnvironment(config)
    renderer = Renderer(first.model, config.image_size)
    try:
        yield [MetaWorldEnvironment(config, renderer) for _ in range(count)]
    finally:
        renderer.close()


def _task_classes(task: str) -> tuple[type, type]:
    import_mujoco()
    from metaworld.env_dict import ENV_CLS_MAP
    from metaworld.policies import ENV_POLICY_MAP

    if task not in ENV_CLS_MAP:
        close = difflib.get_close_matches(task, ENV_CLS_MAP, n=3, cutoff=0.4) or sorted(ENV_CLS_MAP)[:3]
        raise UserError(f"environment: Meta-World has no task '{task}'; close matches: {', '.join(close)}")
    return ENV_CLS_MAP[task], ENV_POLICY_MAP[task]


def _show_goal(env) -> None:
    """What ``set_task`` does for a goal-observable task: the scripted expert needs the goal, `state` never contains it."""
    env._set_task_called, env._partially_observable = True, False
    del env.sawyer_observation_space  # cached bounds, to which observations are clipped; those of a hidden goal are zero


def _find_camera(model, config: MetaWorldConfig) -> int:
    names = [model.camera(number).name for number in range(model.ncam)]
    if config.camera_name not in names:
        raise UserError(f"environment {config.task}: no camera '{config.camera_name}'; it has {', '.join(names)}")
    camera = names.index(config.camera_name)
    if config.camera_name == "corner2":
        model.cam_pos[camera] = NEAR_CORNER2
    return camera
