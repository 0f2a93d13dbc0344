"""LIBERO tasks, as lerobot's ``LiberoEnv`` runs them, but rendered only where somebody looks: that is most of the time of a step.

The first seeds, 0 to 49, are the initial states that LIBERO records for every task and that everybody evaluates on; every other seed draws
an own one as LIBERO drew those: a placement of the objects by the task's rules, and a little noise on the arm's joints. So no two seeds
share an initial state. Then come ten steps at rest, as everywhere, in which most objects settle.

Pictures are turned by 180 degrees, as LeRobot datasets of LIBERO have them and openpi's and lerobot's policies expect them. They show the
moment of LIBERO's own observations, which is 4 ms before the end of a step of 50 ms: robosuite samples within the step, not after it.
"""

import contextlib
from collections.abc import Iterator

import numpy as np

from recap_steam.errors import UserError
from recap_steam.simulation.libero_package import Libero, import_libero
from recap_steam.simulation_config import LiberoConfig

REST = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)  # no motion, gripper open
SETTLING_STEPS = 10  # of objects that hang in the air or touch in an initial state
JOINT_NOISE = 0.02  # radians, the standard deviation of robosuite's initial poses, which the recorded ones have, too
DRAWN = ("geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")  # what a picture shows


class LiberoEnvironment:
    """One task instance; ``reset`` it before anything else. ``step`` takes an action (7,) in [-1, 1]."""

    def __init__(self, config: LiberoConfig, libero: Libero):
        self.config = config
        bddl_file, self._recorded_states = _task(config, libero)
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
        self._sampled: dict[str, np.ndarray] = {}  # by its name in DRAWN, all poses when robosuite last sampled an observation
        self._env.env.modify_observable("robot0_eef_pos", "filter", self._sample)  # a filter may observe, and outlives resets
        known = list(self._env.sim.model.camera_names)
        if unknown := [name for name in config.cameras.values() if name not in known]:
            self.close()
            raise UserError(f"environment {config.task_name}: LIBERO has no camera '{unknown[0]}'; it has {', '.join(known)}")

    def reset(self, seed: int) -> None:
        """Put the task into the initial state that belongs to ``seed``, whatever happened before."""
        self._env.seed(seed)
        self._env.reset()
        self._env.set_init_state(self._recorded_states[seed] if seed < len(self._recorded_states) else self._draw(seed))
        for _ in range(SETTLING_STEPS):
            self._observation, *_ = self._env.step(REST)

    def state(self) -> np.ndarray:
        """Proprioception (8,) float32: hand position in metres, orientation as axis-angle, both fingers in metres."""
        seen = self._observation
        return np.concatenate([seen["robot0_eef_pos"], axis_angle(seen["robot0_eef_quat"]), seen["robot0_gripper_qpos"]], dtype=np.float32)

    def render(self) -> dict[str, np.ndarray]:
        """By camera key, (S, S, 3) uint8, turned by 180 degrees against LIBERO's own observations."""
        sim, size = self._env.sim, self.config.image_size
        with self._as_sampled():
            pictures = {key: sim.render(width=size, height=size, camera_name=name) for key, name in self.config.cameras.items()}
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

    def _draw(self, seed: int) -> np.ndarray:
        """The state (d,) after a reset, whose objects are placed by ``seed``, with noise on the arm's joints."""
        state, joints = self._env.get_sim_state(), self._env.robots[0]._ref_joint_pos_indexes
        state[1 + np.asarray(joints)] += np.random.default_rng(seed).normal(0, JOINT_NOISE, len(joints))  # 1: time comes first
        return state

    def _sample(self, position: np.ndarray) -> np.ndarray:
        """robosuite samples an observation, of which ``position`` is a part: keep what a picture would show now."""
        self._sampled = self._poses()
        return position

    def _poses(self) -> dict[str, np.ndarray]:
        return {name: getattr(self._env.sim.data, name).copy() for name in DRAWN}

    @contextlib.contextmanager
    def _as_sampled(self) -> Iterator[None]:
        """Within, all poses are those of the observation; afterwards, those that the simulation computed last."""
        latest = self._poses()
        self._put(self._sampled)
        yield
        self._put(latest)

    def _put(self, poses: dict[str, np.ndarray]) -> None:
        for name, values in poses.items():
            getattr(self._env.sim.data, name)[:] = values


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
