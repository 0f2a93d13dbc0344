"""Rollouts of many environments in lockstep, one batched policy call per chunk of actions.

Everything random about an episode (its noise, whether it is corrected, the policy's denoising noise) is drawn from
``default_rng([seed, episode])`` and its initial state from ``seed + episode``, so that no draw depends on the neighbours in the batch.
(A policy's matrix products may still round differently in a batch of another size.)
"""

import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np

from recap_steam.simulation.controllers import Controller
from recap_steam.simulation.environments import Environment, make_environments
from recap_steam.simulation_config import CollectConfig, EnvironmentConfig


@dataclasses.dataclass(frozen=True)
class Episode:
    """A finished episode of T frames; frame t is what was observed before action t was executed."""

    episode: int
    seed: int
    success: bool
    images: dict[str, np.ndarray] | None  # by camera key, (T, S, S, 3) uint8, where recorded
    states: np.ndarray  # (T, state_dim) float32
    actions: np.ndarray  # (T, action_dim) float32 in [-1, 1], as executed
    interventions: np.ndarray  # (T,) bool, the expert had taken over

    @property
    def num_frames(self) -> int:
        return len(self.actions)


class Run:
    """An episode under way."""

    def __init__(self, environment: Environment, seed: int, episode: int, collect: CollectConfig | None):
        self.environment, self.collect = environment, collect
        self.episode, self.seed = episode, seed + episode
        self.rng = np.random.default_rng([seed, episode])
        self.corrected = collect is not None and self.rng.random() < collect.intervention_probability
        self.images: dict[str, np.ndarray] = {}  # by camera key, of the frame that was looked at last
        self.success = False
        self._plan = self._noise = None
        self._recorded, self._states, self._actions, self._interventions = [], [], [], []
        environment.reset(self.seed)

    @property
    def frame(self) -> int:
        return len(self._actions)

    @property
    def done(self) -> bool:
        return self.success or self.frame == self.environment.config.max_episode_steps

    @property
    def expert_took_over(self) -> bool:
        """A corrected episode counts as stuck when intervention_after frames have passed without success."""
        return self.corrected and self.frame >= self.collect.intervention_after

    @property
    def needs_plan(self) -> bool:
        return not self.expert_took_over and (self._plan is None or not len(self._plan))

    def follow(self, plan: np.ndarray) -> None:
        """Take over ``plan`` (n, action_dim), the controller's next actions."""
        self._plan = plan

    def advance(self) -> None:
        """Execute one frame and record it; a correction is the expert's clean action, without exploration noise."""
        intervention = self.expert_took_over
        action = self.environment.expert_action() if intervention else self._explore()
        self._recorded.append(self.images)
        self._states.append(self.environment.state())
        self._actions.append(action)
        self._interventions.append(intervention)
        self.success = self.environment.step(action)

    def finish(self, with_images: bool) -> Episode:
        images = None
        if with_images:
            images = {key: np.stack([frame[key] for frame in self._recorded]) for key in self.environment.config.camera_keys}
        arrays = np.stack(self._states), np.stack(self._actions), np.array(self._interventions)
        return Episode(self.episode, self.seed, self.success, images, *arrays)

    def _explore(self) -> np.ndarray:
        action, self._plan = self._plan[0], self._plan[1:]
        if self.collect is not None and self.frame % self.collect.noise_hold == 0:
            self._noise = self.collect.action_noise * self.rng.standard_normal(len(self.environment.config.robot.action_names))
        noise = 0.0 if self._noise is None else self._noise
        return np.clip(action + noise, -1.0, 1.0).astype(np.float32)


def roll_out(
    config: EnvironmentConfig,
    controller: Controller,
    *,
    seed: int,
    num_episodes: int,
    collect: CollectConfig | None = None,
    record_images: bool = False,
    batch_size: int | None = None,
    share: tuple[int, int] = (0, 1),
    watch: Callable[[Run], None] | None = None,
) -> Iterator[Episode]:
    """Episodes 0 to num_episodes - 1 in order, each ended by success or after max_episode_steps frames.

    ``share`` (r, n): of batches, only every n-th one from the r-th on. Batches hold the same episodes whatever n is.

    ``collect`` gives exploration and corrections (None: neither). Pictures are rendered where the controller plans, and at every frame
    if they are recorded or watched: ``watch`` is called with every run at every frame, when its picture is there and before it acts.
    ``batch_size`` episodes run at once; None: as many as the simulator makes cheap.
    """
    batch_size = batch_size or config.lockstep
    with make_environments(config, min(batch_size, num_episodes)) as environments:
        for start in range(share[0] * batch_size, num_episodes, share[1] * batch_size):
            episodes = range(start, min(start + batch_size, num_episodes))
            runs = [Run(environment, seed, episode, collect) for environment, episode in zip(environments, episodes, strict=False)]
            while active := [run for run in runs if not run.done]:
                _advance_all(active, controller, record_images, watch)
            yield from (run.finish(record_images) for run in runs)


def _advance_all(runs: list[Run], controller: Controller, record_images: bool, watch: Callable[[Run], None] | None) -> None:
    planning = [run for run in runs if run.needs_plan]
    for run in runs if record_images or watch else planning if controller.sees else ():
        run.images = run.environment.render()
    for run in runs if watch else ():
        watch(run)
    if planning:
        for run, plan in zip(planning, controller.plan(planning), strict=True):
            run.follow(plan)
    for run in runs:
        run.advance()


def with_progress(episodes: Iterator[Episode], total: int, every: int) -> Iterator[Episode]:
    """Pass ``episodes`` on, printing a line when ``every`` more of them are done."""
    start, done, frames, successes = time.monotonic(), 0, 0, 0
    for episode in episodes:
        done, frames, successes = done + 1, frames + episode.num_frames, successes + episode.success
        if done % every == 0 or done == total:
            rate = frames / (time.monotonic() - start)
            print(f"{done}/{total} episodes, {successes} successes, {frames} frames, {rate:.0f} frames/s", flush=True)
        yield episode
