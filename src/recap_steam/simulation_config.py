"""Environments, and what is done in them: collecting datasets, evaluating policies."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    simulator: str
    task: str
    prompt: str
    camera_name: str
    image_size: int
    action_repeat: int
    max_episode_steps: int


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
    stop_below: float | None
    devices: int
    video_critic: str | None
