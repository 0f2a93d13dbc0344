"""Rollouts to a LeRobot v3.0 dataset, written by lerobot's own writer.

Images are stored as PNG in Parquet (dtype ``image``): at 64 pixels this takes 4 ms and 4 kB a frame, loses nothing and is read back
without a video decoder.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recap_steam import rates
from recap_steam.config import Experiment
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, code_digest
from recap_steam.simulation.controllers import load_controller, policy_inputs
from recap_steam.simulation.environments import frames_per_second
from recap_steam.simulation.rollout import Episode, roll_out, with_progress
from recap_steam.simulation_config import CollectConfig, EnvironmentConfig

STAGE = "collect_dataset"
MARKER = Path("meta/collection.json")  # our lineage record; only a folder that has it is ever replaced


def collect_stage(experiment: Experiment, dataset: str, policy_dir: Path | None, output: Path) -> None:
    """Collect ``dataset`` as its ``collect`` section says; the whole tree is built beside and renamed when complete.

    Besides observation and action, every frame has ``is_success`` (bool, the outcome of its episode) and ``intervene_flag`` (bool, the
    expert had taken over). The recorded action is the executed one. The content is a function of the configuration and the policy.

    Args:
        policy_dir: folder of the policy; None for the scripted expert.
        output: ``<path>/meta/info.json`` of the dataset.

    Raises:
        UserError: no ``collect`` section, or the folder holds a dataset that this stage did not make.
    """
    collect = experiment.datasets[dataset].collect
    if collect is None:
        raise UserError(f"datasets.{dataset}: has no section `collect`, so it cannot be collected; is {output} in place?")
    environment = experiment.environments[collect.environment]
    with _replaced_tree(output.parents[1].resolve()) as root:
        guidance_scale = _guidance_scale(collect, policy_dir)
        controller = load_controller(collect.policy, policy_dir, environment, guidance_scale)
        began = time.monotonic()
        writer = _create(root, dataset, environment)
        episodes = roll_out(
            environment, controller, seed=collect.seed, num_episodes=collect.num_episodes, collect=collect, record_images=True
        )
        totals = Counter()
        for episode in with_progress(episodes, collect.num_episodes, environment.lockstep):
            _write(writer, episode, environment)
            totals.update(episodes=1, frames=episode.num_frames, successes=int(episode.success))
            totals.update(interventions=int(episode.interventions.any()), intervention_frames=int(episode.interventions.sum()))
        _finalize(writer, root)
        (root / MARKER).write_text(_lineage(dataset, collect, environment, policy_dir, dict(totals)).to_json() + "\n")
        seconds = time.monotonic() - began
    rates.leave(
        STAGE,
        lambda: rates.rollout_work(environment, rates.trained_model(policy_dir), guidance_scale),
        "frame",
        totals["frames"],
        seconds,
        controller.device,
    )


def _guidance_scale(collect: CollectConfig, policy_dir: Path | None) -> float | None:
    """The configured guidance where the policy has an indicator; None for a plain one and for the expert."""
    if policy_dir is None:
        return None
    from recap_steam.policy.folder import load_serving

    return collect.cfgrl_guidance_scale if load_serving(policy_dir).conditional else None


def _lineage(dataset: str, collect: CollectConfig, environment: EnvironmentConfig, policy_dir: Path | None, statistics: dict) -> Lineage:
    return Lineage(
        stage=STAGE,
        tag=dataset,
        dataset_fingerprint=None,
        parameters={"collect": dataclasses.asdict(collect), "environment": dataclasses.asdict(environment)},
        inputs=policy_inputs(policy_dir),
        statistics=statistics,
        code=code_digest(__name__),
    )


def _create(root: Path, dataset: str, environment: EnvironmentConfig):
    import datasets
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    datasets.disable_progress_bars()  # one bar per episode
    size, robot = environment.image_size, environment.robot
    picture = {"dtype": "image", "shape": (size, size, 3), "names": ["height", "width", "channels"]}
    features = {
        **dict.fromkeys(environment.camera_keys, picture),
        "observation.state": {"dtype": "float32", "shape": (len(robot.state_names),), "names": list(robot.state_names)},
        "action": {"dtype": "float32", "shape": (len(robot.action_names),), "names": list(robot.action_names)},
        "is_success": {"dtype": "bool", "shape": (1,), "names": None},
        "intervene_flag": {"dtype": "bool", "shape": (1,), "names": None},
    }
    fps = frames_per_second(environment)
    return LeRobotDataset.create(
        f"local/{dataset}", fps, features, root=root, robot_type=robot.robot_type, use_videos=False, video_backend="pyav"
    )


def _write(writer, episode: Episode, environment: EnvironmentConfig) -> None:
    for frame in range(episode.num_frames):
        writer.add_frame(
            {
                **{camera: pictures[frame] for camera, pictures in episode.images.items()},
                "observation.state": episode.states[frame],
                "action": episode.actions[frame],
                "is_success": np.array([episode.success]),
                "intervene_flag": episode.interventions[frame : frame + 1],
                "task": environment.prompt,
            }
        )
    writer.save_episode()


def _finalize(writer, root: Path) -> None:
    writer.finalize()
    shutil.rmtree(root / "images")  # lerobot's empty staging folder
    stats = root / "meta/stats.json"  # lerobot orders its keys by a set, anew in every process
    stats.write_text(json.dumps(json.loads(stats.read_text()), indent=4, sort_keys=True) + "\n")


@contextlib.contextmanager
def _replaced_tree(root: Path) -> Iterator[Path]:
    """Yield a path beside ``root`` that does not exist; what is made there takes the place of ``root`` when the block ends well."""
    _check_ours(root)
    workshop = root.with_name(f".{root.name}.partial")
    workshop.mkdir(parents=True, exist_ok=True)
    lock = os.open(workshop, os.O_RDONLY)
    try:
        _lock(lock, root)
        tree = workshop / root.name
        shutil.rmtree(tree, ignore_errors=True)  # left behind by a killed process
        try:
            yield tree
            shutil.rmtree(root, ignore_errors=True)
            os.rename(tree, root)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
    finally:
        os.close(lock)


def _check_ours(root: Path) -> None:
    occupied = root.is_file() or any(path.is_file() for path in root.rglob("*"))  # Snakemake makes the empty folder of its output
    if occupied and not (root / MARKER).is_file():
        raise UserError(
            f"{root}: holds files that this stage did not make (no {MARKER}); give the dataset another path, or remove `collect` to use it"
        )


def _lock(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{root}: another process is collecting this dataset; wait for it to end and run again") from None
