"""Datasets from the hub: fetched at one commit, counted, and only then put where the experiment looks for them.

The only place that reaches the hub, and only where the target ``download`` asks for it.
"""

import dataclasses
import json
import os
import shutil
from pathlib import Path

from recap_steam.config import DatasetConfig, DownloadConfig, Experiment
from recap_steam.dataset.indexing import index_dataset
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.errors import UserError
from recap_steam.files import atomic_output


def fetch_snapshot(config: DownloadConfig, folder: Path) -> None:
    """Fetch the repository's folder into ``folder``; files that are complete there are not fetched again.

    Raises:
        UserError: the hub cannot be reached, or has no such revision.
    """
    import httpx
    from huggingface_hub import HfApi, snapshot_download

    patterns = [f"{config.folder}/**"] if config.folder else None
    try:
        HfApi().dataset_info(config.repo_id, revision=config.revision)  # snapshot_download takes what is there if the hub is out of reach
        snapshot_download(config.repo_id, repo_type="dataset", revision=config.revision, allow_patterns=patterns, local_dir=folder)
    except (httpx.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        remedy = "check repo_id, revision and the network, and run again: what is complete is kept"
        raise UserError(f"datasets hub: {config.repo_id} at {config.revision} could not be fetched ({reason}); {remedy}") from error


def download_stage(experiment: Experiment, name: str, output: Path) -> None:
    """Download dataset ``name`` to its path, unless it is there already; count it in either case; write what was found to ``output``.

    It is fetched to ``<path>.partial`` and renamed when it has passed. A folder that is there already is only counted, never changed.

    Raises:
        UserError: nothing says what to download, it could not be fetched, or it is not what the experiment says.
    """
    config = experiment.datasets[name]
    if config.download is None:
        raise UserError(f"config: datasets.{name}: has no section `download`; add it, or put the dataset to {config.path}")
    if (Path(config.path) / "meta/info.json").is_file():
        counts = verify(name, Path(config.path), config)
    else:
        partial = partial_folder(config)
        partial.mkdir(parents=True, exist_ok=True)
        fetch_snapshot(config.download, partial)
        counts = accept(name, config)
    with atomic_output(output) as temporary:
        temporary.write_text(json.dumps({**dataclasses.asdict(config.download), **counts}, indent=1, sort_keys=True) + "\n")
    print(f"{name}: {counts['episodes']} episodes, {counts['successes']} successes, {counts['frames']} frames in {config.path}")


def partial_folder(config: DatasetConfig) -> Path:
    """Where the repository's files lie until they have been counted."""
    path = Path(os.path.normpath(config.path))
    return path.with_name(f"{path.name}.partial")


def accept(name: str, config: DatasetConfig) -> dict[str, int]:
    """Verify what lies in the partial folder and move it to the dataset's path; return what ``verify`` does.

    Raises:
        UserError: as ``verify``, or the path holds other files.
    """
    partial, target = partial_folder(config), Path(os.path.normpath(config.path))
    fetched = partial / (config.download.folder or ".")
    counts = verify(name, fetched, config)
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # the hub's notes on what is complete
    try:
        os.replace(fetched, target)  # an empty folder gives way
    except OSError as error:
        raise UserError(f"{target}: cannot be put there from {fetched} ({error.strerror}); move what is there away, run again") from error
    shutil.rmtree(partial, ignore_errors=True)
    return counts


def verify(name: str, root: Path, config: DatasetConfig) -> dict[str, int]:
    """Read every frame's columns of the dataset in ``root``; return its episodes, successes and frames.

    Raises:
        UserError: it is damaged, a video is missing, or there are more or fewer episodes or successes than the experiment says.
    """
    dataset = open_dataset(name, root)
    episodes, notes = index_dataset(dataset, config.type)
    for note in notes:
        print(f"note: {note}")
    _check_videos(dataset, episodes.episode_index.tolist())
    found = {"num_episodes": len(episodes.length), "num_successes": int(episodes.success.sum())}
    for key, number in found.items():
        expected = getattr(config.download, key)
        if expected is not None and number != expected:
            what = key.removeprefix("num_")
            said = f"datasets.{name}.download says {expected}"
            raise UserError(f"{root}: {number} {what}, but {said}; delete it and fetch it again, or correct {key}")
    return {"episodes": found["num_episodes"], "successes": found["num_successes"], "frames": episodes.num_frames}


def _check_videos(dataset: Dataset, episodes: list[int]) -> None:
    """Every episode's video of every camera is there and not empty; whether it can be decoded shows when frames are cached."""
    for camera in (camera for camera in dataset.cameras if dataset.camera_dtype(camera) == "video"):
        for episode in episodes:
            path = dataset.video_span(episode, camera).path
            if not path.is_file() or not path.stat().st_size:
                raise UserError(f"{path}: the video of episode {episode} is missing or empty; delete what is there of it and run again")
