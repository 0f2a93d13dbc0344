"""One arm of a paired evaluation: a policy at one guidance scale on seeded initial states that all arms share."""

import dataclasses
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam import devices, rates
from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.lineage import METADATA_KEY, Lineage, code_digest, digest_file
from recap_steam.simulation.controllers import open_controller, policy_inputs
from recap_steam.simulation.environments import frames_per_second
from recap_steam.simulation.rollout import Episode, roll_out, with_progress
from recap_steam.simulation.statistics import successes_per_hour
from recap_steam.simulation.stopping import until_decided
from recap_steam.simulation_config import EnvironmentConfig

STAGE = "evaluate_policy"
LOOK = 25  # episodes after which an arm may stop
SCHEMA = pa.schema(
    [
        ("episode", pa.int64()),
        ("seed", pa.int64()),
        ("success", pa.bool_()),
        ("num_frames", pa.int64()),
        ("seconds", pa.float64()),  # of simulated time
        ("task", pa.string()),  # as the policy was told
    ]
)


def evaluate_stage(
    experiment: Experiment,
    evaluation: str,
    policy: str,
    policy_dir: Path | None,
    guidance_scale: float | None,
    reference: Path | None,
    output: Path,
) -> None:
    """Write one row per episode to ``output``; row i of every arm starts from the same state and meets the same denoising noise. Any number
    of processes gives the same rows.

    Args:
        policy_dir: folder of the policy; None for the scripted expert.
        guidance_scale: of an advantage-conditioned policy; None for plain imitation.
        reference: rows of the first arm where this one shall stop as soon as it is told apart from it; None: all episodes.
    """
    config = experiment.evaluations[evaluation]
    environment = experiment.environments[config.environment]
    with devices.distributed(), open_controller(policy, policy_dir, environment, guidance_scale, config.through_server) as controller:
        began = time.monotonic()
        share = devices.rank(), devices.world_size()
        mine = roll_out(environment, controller, seed=config.seed, num_episodes=config.num_episodes, share=share)
        rollouts = _of_all(mine, config.num_episodes, environment.lockstep)
        if reference is not None:
            rollouts = until_decided(rollouts, reference, config.stop_below, LOOK)
        episodes = list(with_progress(rollouts, config.num_episodes, environment.lockstep) if devices.is_main() else rollouts)
        if not devices.is_main():
            return
        if len(episodes) < config.num_episodes:
            print(f"stopped after {len(episodes)} of {config.num_episodes} episodes: told apart from the first arm", flush=True)
        lineage = _lineage(experiment, evaluation, policy, policy_dir, guidance_scale, reference, episodes)
        _write(output, episodes, environment, lineage)
        if not config.through_server:  # which answers one observation at a time, from wherever it computes
            rates.leave(
                STAGE,
                lambda: rates.rollout_work(environment, rates.trained_model(policy_dir), guidance_scale),
                "frame",
                lineage.statistics["frames"],
                time.monotonic() - began,
                controller.device,
                devices.world_size(),
            )


def _of_all(mine: Iterator[Episode], num_episodes: int, batch: int) -> Iterator[Episode]:
    """The episodes of all processes in order, in each of them, of which every one has each time the next ``batch``."""
    for _ in range(0, num_episodes, batch * devices.world_size()):
        for episodes in devices.gather(list(itertools.islice(mine, batch))):
            yield from episodes


def _lineage(
    experiment: Experiment,
    evaluation: str,
    policy: str,
    policy_dir: Path | None,
    guidance_scale: float | None,
    reference: Path | None,
    episodes: list[Episode],
) -> Lineage:
    config = experiment.evaluations[evaluation]
    environment = experiment.environments[config.environment]
    return Lineage(
        stage=STAGE,
        tag=evaluation,
        dataset_fingerprint=None,
        parameters={
            "environment": dataclasses.asdict(environment),
            "policy": policy,
            "cfgrl_guidance_scale": guidance_scale,
            "num_episodes": config.num_episodes,
            "seed": config.seed,
            "stop_below": config.stop_below if reference else None,
            "through_server": config.through_server,
        },
        inputs=policy_inputs(policy_dir) | ({"reference": digest_file(reference)} if reference else {}),
        statistics=_statistics(episodes, frames_per_second(environment)),
        code=code_digest(__name__),
    )


def _statistics(episodes: list[Episode], fps: int) -> dict:
    successes, frames = sum(episode.success for episode in episodes), sum(episode.num_frames for episode in episodes)
    return {"successes": successes, "frames": frames, "fps": fps, "successes_per_hour": successes_per_hour(successes, frames, fps)}


def _write(output: Path, episodes: list[Episode], environment: EnvironmentConfig, lineage: Lineage) -> None:
    columns = {name: np.array([getattr(episode, name) for episode in episodes]) for name in ("episode", "seed", "success", "num_frames")}
    columns |= {"seconds": columns["num_frames"] / frames_per_second(environment), "task": [environment.prompt] * len(episodes)}
    table = pa.table(columns, schema=SCHEMA.with_metadata({METADATA_KEY: lineage.to_json()}))
    with atomic_output(output) as temporary:
        pq.write_table(table, temporary)
