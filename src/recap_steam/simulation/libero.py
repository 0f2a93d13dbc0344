"""LIBERO tasks, as lerobot's ``LiberoEnv`` runs them, but rendered only where somebody looks: that is most of the time of a step.

An initial state is one of those that LIBERO records for every task, number ``seed`` modulo their number, after ten steps at rest in which
objects settle. Pictures are turned by 180 degrees, as LeRobot datasets of LIBERO have them and openpi's and lerobot's policies expect them.
"""

import contextlib
from collections.abc import Iterator

import numpy as np

from recap_steam.errors import UserError
from recap_steam.simulation.libero_package import Libero, import_libero
from recap_steam.simulation_config import LiberoConfig

REST = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)  # no motion, gripper open
SETTLING_STEPS = 10  # of objects that hang in the air or touch in a recorded state


class LiberoEnvironment:
    """One task instance; ``reset`` it before anything else. ``step`` takes an action (7,) in [-1, 1]."""

    def __init__(self, config: LiberoConfig, libero: Libero):
        self.config = config
        bddl_file, self._initial_states = _task(config, libero)
        self._env = libero.environment(
            bddl_file_name=bddl_file,
            use_camera_obs=False,  # pictures are rendered by `render` only
            camera_names=list(config.cameras.values()),
            camera_heights=config.image_size,
            camera_widths=config.image_size,
            control_freq=config.robot.hz,
            ignore_done=True,  # ours is the only limit
        )
        self._observation: dict[str, np.ndarray] = {}
        known = list(self._env.sim.model.camera_names)
        if unknown := [name for name in config.cameras.values() if name not in known]:
            self.close()
            raise UserError(f"environment {config.task_name}: LIBERO has no camera '{unknown[0]}'; it has {', '.join(known)}")

    def reset(self, seed: int) -> None:
        """Put the task into the initial state that belongs to ``seed``, whatever happened before."""
        self._env.seed(seed)
        self._env.reset()
        self._env.set_init_state(self._initial_states[seed % len(self._initial_states)])
        for _ in range(SETTLING_STEPS):
            self._observation, *_ = self._env.step(REST)

    def state(self) -> np.ndarray:
        """Proprioception (8,) float32: hand position in metres, orientation as axis-angle, both fingers in metres."""
        seen = self._observation
        return np.concatenate([seen["robot0_eef_pos"], axis_angle(seen["robot0_eef_quat"]), seen["robot0_gripper_qpos"]], dtype=np.float32)

    def render(self) -> dict[str, np.ndarray]:
        """By camera key, (S, S, 3) uint8, turned by 180 degrees against LIBERO's own observations."""
        size = self.config.image_size
        pictures = {key: self._env.sim.render(width=size, height=size, camera_name=name) for key, name in self.config.cameras.items()}
        return {key: np.ascontiguousarray(picture[::-1, ::-1]) for key, picture in pictures.items()}

    def step(self, action: np.ndarray) -> bool:
        """Hold ``action`` for action_repeat simulator steps or until success; return whether the task succeeded."""
        for _ in range(self.config.action_repeat):
            self._observation, *_ = self._env.step(action)
            if self._env.check_success():
                return True
        return False

    def expert_action(self) -> np.ndarray:
        """Always raises: the experiment's check asks for no expert where there is none."""
        raise UserError("environment: LIBERO has no scripted expert; let a policy act")

    def close(self) -> None:
        self._env.close()


@contextlib.contextmanager
def libero_environments(config: LiberoConfig, count: int) -> Iterator[list[LiberoEnvironment]]:
    """``count`` environments of one task, closed at the end. Pictures are right only if there is one in the process (``lockstep``)."""
    libero = import_libero(config.assets)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(LiberoEnvironment(config, libero))) for _ in range(count)]


def axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """(3,) float64: axis times angle in radians of a unit quaternion (x, y, z, w). No rotation is zero."""
    w = np.clip(quaternion[3], -1.0, 1.0)
    sine = np.sqrt(1.0 - w * w)
    return np.zeros(3) if sine < 1e-10 else quaternion[:3] * (2.0 * np.arccos(w) / sine)


def _task(config: LiberoConfig, libero: Libero) -> tuple[str, np.ndarray]:
    """The task's file, and its recorded initial states (n, d)."""
    suite = libero.benchmark.get_benchmark_dict()[config.suite]()
    if config.task_id >= suite.n_tasks:
        raise UserError(f"environment: task_id {config.task_id}, but {config.suite} has tasks 0 to {suite.n_tasks - 1}")
    return suite.get_task_bddl_file_path(config.task_id), suite.get_task_init_states(config.task_id)
