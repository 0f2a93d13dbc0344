"""Environments, and what is done in them: collecting datasets, evaluating policies."""

import dataclasses

LEVEL = 0.05  # of an evaluation's report, two-sided; divided by the number of comparisons (Bonferroni)


@dataclasses.dataclass(frozen=True)
class Robot:
    """The robot of a simulator.

    Attributes:
        robot_type: its name in LeRobot datasets.
        state_names, action_names: what each number of a state and of an action is.
        hz: simulator steps per second.
    """

    robot_type: str
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    hz: int


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """What environments of every simulator have.

    The classes of the simulators add ``robot``; ``lockstep``, how many environments of it a process runs at once; and ``has_expert``,
    whether there is a scripted one.
    """

    simulator: str
    prompt: str
    image_size: int
    action_repeat: int
    max_episode_steps: int

    @property
    def task_name(self) -> str:
        """What the simulator calls the task."""
        raise NotImplementedError

    @property
    def camera_keys(self) -> list[str]:
        """Keys under which its pictures are recorded and shown to policies."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class MetaWorldConfig(EnvironmentConfig):
    task: str
    camera_name: str

    # Hand displacement in centimetres per simulator step, and gripper: -1 opens, 1 closes. State: metres; opening from 0 to 1.
    robot = Robot("sawyer", ("hand_x", "hand_y", "hand_z", "gripper"), ("dx", "dy", "dz", "gripper"), hz=80)
    lockstep = 25  # 20 MB each; more save nothing: a policy call is a tenth of the time already
    has_expert = True

    @property
    def task_name(self) -> str:
        return self.task

    @property
    def camera_keys(self) -> list[str]:
        return [f"observation.images.{self.camera_name}"]


@dataclasses.dataclass(frozen=True)
class LiberoConfig(EnvironmentConfig):
    suite: str
    task_id: int
    cameras: dict[str, str]
    assets: str | None

    # As in LeRobot datasets of LIBERO. State: metres, axis-angle, fingers in metres. Action: displacement of the hand, -1 opens, 1 closes.
    robot = Robot(
        "panda",
        ("x", "y", "z", "axis_angle1", "axis_angle2", "axis_angle3", "gripper_left", "gripper_right"),
        ("x", "y", "z", "axis_angle1", "axis_angle2", "axis_angle3", "gripper"),
        hz=20,
    )
    lockstep = 1  # robosuite draws into the GL context that the process made last, so two would draw into each other's
    has_expert = False

    @property
    def task_name(self) -> str:
        return f"{self.suite} task {self.task_id}"

    @property
    def camera_keys(self) -> list[str]:
        return list(self.cameras)


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    environment: str
    policy: str
    cfgrl_guidance_scale: float
    num_episodes: int
    seed: int
    action_noise: float
    noise_hold: int
    intervention_probability: float
    intervention_after: int


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    environment: str
    policies: list[str]
    cfgrl_guidance_scale: list[float]
    num_episodes: int
    seed: int
    through_server: bool
    stop_below: float | None
    devices: int
    video_critic: str | None
