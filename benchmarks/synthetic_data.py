"""Data that benchmarks run on: LeRobot datasets as large as asked for, with noise as images or none, and values of an imaginary critic."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from recap_steam.dataset.episodes import Episodes
from recap_steam.labels.inputs import critic_digest, ensemble_digest
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.lineage import Lineage
from recap_steam.sidecar import write_sidecar
from recap_steam.sidecar_schemas import SCHEMAS

TASK = "put both the alphabet soup and the tomato sauce in the basket"
FAILURE_REWARD = -300.0
ACTION_DIM, STATE_DIM = 7, 8


def episode_lengths(num_episodes: int, num_frames: int) -> np.ndarray:
    """Return (num_episodes,) int64 lengths around the mean that add up to ``num_frames``."""
    lengths = np.random.default_rng(0).integers(int(0.6 * num_frames / num_episodes), int(1.4 * num_frames / num_episodes), num_episodes)
    missing = num_frames - int(lengths.sum())
    lengths += missing // num_episodes
    lengths[: missing % num_episodes] += 1
    return lengths


def make_v21(root: Path, lengths: np.ndarray) -> None:
    """Write a v2.1 dataset: one Parquet file per episode, every second one a success."""
    _write_info(root, "v2.1", "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", lengths)
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": TASK}) + "\n")
    starts = np.cumsum(lengths) - lengths
    for episode, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        path = root / f"data/chunk-{episode // 1000:03d}/episode_{episode:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_frames(np.array([episode]), np.array([length]), start), path)


def make_v30(root: Path, lengths: np.ndarray, num_files: int, cameras: Sequence[str] = (), image_size: int = 224) -> None:
    """Write a v3.0 dataset: ``num_files`` large Parquet files, every second episode a success; images of ``cameras`` are noise."""
    images = {camera: ("image", [image_size, image_size, 3]) for camera in cameras}
    _write_info(root, "v3.0", "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", lengths, images)
    pq.write_table(pa.table({"task_index": [0], "task": [TASK]}), root / "meta/tasks.parquet")
    (root / "data/chunk-000").mkdir(parents=True)
    starts = np.cumsum(lengths) - lengths
    for number, episodes in enumerate(np.array_split(np.arange(len(lengths)), num_files)):
        table = _frames(episodes, lengths[episodes], starts[episodes[0]])
        for camera in cameras:
            table = table.append_column(camera, _images(len(table), image_size))
        pq.write_table(table, root / f"data/chunk-000/file-{number:03d}.parquet", row_group_size=100_000)


def make_critic(folder: Path, tag: str, return_min: float) -> None:
    """Write what the label stages read of a critic's folder."""
    folder.mkdir(parents=True)
    ReturnNormalizer(return_min).save(folder)
    parameters = {"returns": {"gamma": 1.0, "failure_reward": FAILURE_REWARD}}
    (folder / "lineage.json").write_text(Lineage("train_critic", tag, None, parameters, {}, {}, "").to_json())


def make_values(path: Path, tag: str, critic_dir: Path, episodes: Episodes) -> None:
    """Write a values sidecar with random values of the given critic."""
    rng = np.random.default_rng(1)
    value = -rng.random(episodes.num_frames, np.float32)
    columns = {"value": value, "value_std": np.full_like(value, 0.1), "value_entropy": np.full_like(value, 2.0)}
    lineage = Lineage("compute_values", tag, episodes.fingerprint, {}, {"critic": critic_digest(critic_dir)}, {}, "")
    write_sidecar(path, "values", columns, episodes, lineage)


def make_ensemble(folder: Path, tag: str) -> None:
    """Write what the label stages read of the folder of an ensemble of progress critics."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "lineage.json").write_text(Lineage("merge_ensemble", tag, None, {}, {}, {}, "").to_json())


def make_scores(path: Path, tag: str, critic_dir: Path, episodes: Episodes, *, members: int, **parameters: object) -> None:
    """Write a scores sidecar with random scores of the given ensemble."""
    rng, frames = np.random.default_rng(2), episodes.num_frames
    kinds = {field.name: field.type for field in SCHEMAS["scores"]}
    columns = {
        name: rng.uniform(-1, 1, (frames, members) if pa.types.is_list(kind) else frames) for name, kind in list(kinds.items())[2:-1]
    }
    columns |= {"ensemble_signed_score": columns["member_values"].min(1), "look_ahead": np.full(frames, 10)}
    made = {"ensemble_size": members, "length_scale": None, **parameters}
    lineage = Lineage("compute_scores", tag, episodes.fingerprint, made, {"critic": ensemble_digest(critic_dir)}, {}, "")
    write_sidecar(path, "scores", columns, episodes, lineage)


def _frames(episodes: np.ndarray, lengths: np.ndarray, first_index: int) -> pa.Table:
    rng = np.random.default_rng(int(episodes[0]))
    n = int(lengths.sum())
    frame_index = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns = {
        name: _vectors(rng.standard_normal((n, dim), np.float32))
        for name, dim in (("observation.state", STATE_DIM), ("action", ACTION_DIM))
    }
    return pa.table(
        columns
        | {
            "timestamp": (frame_index / 10).astype(np.float32),
            "frame_index": frame_index,
            "episode_index": np.repeat(episodes, lengths),
            "index": first_index + np.arange(n),
            "task_index": np.zeros(n, np.int64),
            "is_success": np.repeat(episodes % 2 == 0, lengths),
        }
    )


def _images(n: int, size: int) -> pa.Array:
    rng, encoded = np.random.default_rng(n), []
    for _ in range(n):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (size, size, 3), np.uint8)).save(buffer, "png", compress_level=1)
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    return pa.array(encoded, pa.struct({"bytes": pa.binary(), "path": pa.string()}))


def _vectors(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def _write_info(
    root: Path, version: str, data_path: str, lengths: np.ndarray, images: dict[str, tuple[str, list[int]]] | None = None
) -> None:
    (root / "meta").mkdir(parents=True)
    shapes = {
        "observation.state": ("float32", [STATE_DIM]),
        "action": ("float32", [ACTION_DIM]),
        "timestamp": ("float32", [1]),
        "is_success": ("bool", [1]),
        **(images or {}),
    }
    shapes |= dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), ("int64", [1]))
    info = {
        "codebase_version": version,
        "robot_type": "panda",
        "total_episodes": len(lengths),
        "total_frames": int(lengths.sum()),
        "total_tasks": 1,
        "chunks_size": 1000,
        "fps": 10,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": data_path,
        "features": {name: {"dtype": dtype, "shape": shape, "names": None} for name, (dtype, shape) in shapes.items()},
    }
    (root / "meta/info.json").write_text(json.dumps(info))
