"""One arm of a paired evaluation: a policy at one guidance scale on seeded initial states that all arms share."""

import dataclasses
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam import rates
from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.lineage import METADATA_KEY, Lineage, code_digest
from recap_steam.simulation.controllers import open_controller, policy_inputs
from recap_steam.simulation.environments import frames_per_second
from recap_steam.simulation.rollout import Episode, roll_out, with_progress
from recap_steam.simulation.statistics import successes_per_hour

STAGE = "evaluate_policy"
SCHEMA = pa.schema([("episode", pa.int64()), ("seed", pa.int64()), ("success", pa.bool_()), ("num_frames", pa.int64())])


def evaluate_stage(
    experiment: Experiment, evaluation: str, policy: str, policy_dir: Path | None, guidance_scale: float | None, output: Path
) -> None:
    """Write one row per episode to ``output``; row i of every arm starts from the same state and meets the same denoising noise.

    Args:
        policy_dir: folder of the policy; None for the scripted expert.
        guidance_scale: of an advantage-conditioned policy; None for plain imitation.
    """
    config = experiment.evaluations[evaluation]
    environment = experiment.environments[config.environment]
    fps = frames_per_second(environment)
    with open_controller(policy, policy_dir, environment, guidance_scale, config.through_server) as controller:
        began = time.monotonic()
        rollouts = roll_out(environment, controller, seed=config.seed, num_episodes=config.num_episodes)
        episodes = list(with_progress(rollouts, config.num_episodes, environment.lockstep))
        seconds = time.monotonic() - began
    lineage = Lineage(
        stage=STAGE,
        tag=evaluation,
        dataset_fingerprint=None,
        parameters={
            "environment": dataclasses.asdict(environment),
            "policy": policy,
            "cfgrl_guidance_scale": guidance_scale,
            "num_episodes": config.num_episodes,
            "seed": config.seed,
            "through_server": config.through_server,
        },
        inputs=policy_inputs(policy_dir),
        statistics=_statistics(episodes, fps),
        code=code_digest(__name__),
    )
    _write(output, episodes, lineage)
    if not config.through_server:  # which answers one observation at a time, from wherever it computes
        rates.leave(
            STAGE,
            lambda: rates.rollout_work(environment, rates.trained_model(policy_dir), guidance_scale),
            "frame",
            lineage.statistics["frames"],
            seconds,
            controller.device,
        )


def _statistics(episodes: list[Episode], fps: int) -> dict:
    successes, frames = sum(episode.success for episode in episodes), sum(episode.num_frames for episode in episodes)
    return {"successes": successes, "frames": frames, "fps": fps, "successes_per_hour": successes_per_hour(successes, frames, fps)}


def _write(output: Path, episodes: list[Episode], lineage: Lineage) -> None:
    columns = {name: np.array([getattr(episode, name) for episode in episodes]) for name in SCHEMA.names}
    table = pa.table(columns, schema=SCHEMA.with_metadata({METADATA_KEY: lineage.to_json()}))
    with atomic_output(output) as temporary:
        pq.write_table(table, temporary)
