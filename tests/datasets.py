"""Small real LeRobot datasets for tests, written with PyArrow (and PyAV for video) in the layouts that lerobot itself writes.

    root = write_v21(tmp_path / "rollouts", [5, 4, 7], success=[True, False, True])      # one file per episode
    root = write_v30(tmp_path / "demos", [5, 4], tasks=["open the drawer", "close it"])  # all episodes in one file
    dataset, episodes = index(root)                                                      # what stages get: (Dataset, Episodes)

Keyword arguments of both writers:
    success          outcome by episode, repeated over its frames; None: no ``is_success`` column (as in demonstrations)
    tasks            task texts; episode i has task i modulo their number
    cameras          camera keys, for example ``("observation.images.front",)``; none by default
    camera_dtype     ``image`` (PNG in Parquet, the quick one) or ``video`` (mp4)
    size             (height, width) of the images
    interventions    list of (episode position, first frame, frame after the last): sets ``intervene_flag``
    episode_indices  indices of the episodes, by default 0, 1, 2, ...
    state_dim, action_dim, fps, seed
    columns          function (table, episode position) -> table, to change or break an episode's columns before they are written

``image(episode, frame, camera, size)`` is what the writers draw: every frame differs from every other, and codecs keep the difference.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam.dataset.episodes import Episodes, index_dataset
from recap_steam.dataset.layout import Dataset, open_dataset

V21_DATA = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V21_VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
V30_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
V30_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


def index(root: Path, dataset_type: str = "rollout", name: str | None = None) -> tuple[Dataset, Episodes]:
    """Open and index a dataset, as a stage would."""
    dataset = open_dataset(name or root.name, root)
    return dataset, index_dataset(dataset, dataset_type)[0]


def image(episode: int, frame: int, camera: int = 0, size: tuple[int, int] = (32, 32)) -> np.ndarray:
    """(H, W, 3) uint8: red tells the frame (10 per frame), green the episode (40 per episode), blue the camera (60 per camera)."""
    picture = np.zeros((*size, 3), dtype=np.uint8)
    picture[...] = (20 + frame * 10) % 250, (20 + episode * 40) % 250, (20 + camera * 60) % 250
    return picture


def write_v21(root: Path, lengths: Sequence[int], **options) -> Path:
    """Write a v2.1 dataset with episodes of the given numbers of frames; see the head of this file."""
    made = _Maker(root, "v2.1", lengths, **options)
    made.write_meta(V21_DATA, V21_VIDEO)
    for position, index in enumerate(made.indices):
        _write(root / V21_DATA.format(episode_chunk=index // 1000, episode_index=index), made.table(position))
        for camera in made.video_cameras:
            path = root / V21_VIDEO.format(episode_chunk=index // 1000, episode_index=index, video_key=camera)
            write_video(path, made.images(position, camera), made.fps)
    rows = [{"episode_index": e, "tasks": [made.task(i)], "length": made.lengths[i]} for i, e in enumerate(made.indices)]
    _write_lines(root / "meta/episodes.jsonl", rows)
    _write_lines(root / "meta/tasks.jsonl", [{"task_index": i, "task": text} for i, text in enumerate(made.tasks)])
    return root


def write_v30(root: Path, lengths: Sequence[int], **options) -> Path:
    """Write a v3.0 dataset (one Parquet file, one mp4 per camera) with episodes of the given numbers of frames."""
    made = _Maker(root, "v3.0", lengths, **options)
    made.write_meta(V30_DATA, V30_VIDEO)
    _write(root / V30_DATA.format(chunk_index=0, file_index=0), pa.concat_tables([made.table(i) for i in range(len(lengths))]))
    stops = np.cumsum(lengths)
    episodes = {
        "episode_index": made.indices,
        "tasks": [[made.task(i)] for i in range(len(lengths))],
        "length": made.lengths,
        "data/chunk_index": [0] * len(lengths),
        "data/file_index": [0] * len(lengths),
        "dataset_from_index": stops - made.lengths,
        "dataset_to_index": stops,
    }
    for camera in made.video_cameras:
        pictures = np.concatenate([made.images(i, camera) for i in range(len(lengths))])
        write_video(root / V30_VIDEO.format(video_key=camera, chunk_index=0, file_index=0), pictures, made.fps)
        episodes[f"videos/{camera}/chunk_index"] = [0] * len(lengths)
        episodes[f"videos/{camera}/file_index"] = [0] * len(lengths)
        episodes[f"videos/{camera}/from_timestamp"] = (stops - made.lengths) / made.fps
        episodes[f"videos/{camera}/to_timestamp"] = stops / made.fps
    _write(root / "meta/episodes/chunk-000/file-000.parquet", pa.table(episodes))
    # lerobot keeps the text in the pandas index, which Arrow shows as a column of this name
    _write(root / "meta/tasks.parquet", pa.table({"task_index": range(len(made.tasks)), "__index_level_0__": made.tasks}))
    return root


def write_video(path: Path, images: np.ndarray, fps: int, codec: str = "libx264") -> None:
    """Write (n, H, W, 3) uint8 images as an mp4 (``libx264``: H.264, ``libsvtav1``: AV1); H and W must be even."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            codec, rate=fps, options={"crf": "10", "g": "2", "preset": "ultrafast" if codec == "libx264" else "12"}
        )
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for picture in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    # As root, SVT-AV1 makes the calling thread a real-time one, and so all programs that it starts: they would starve each other.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class _Maker:
    """Draws the content that both layouts share."""

    def __init__(
        self,
        root: Path,
        version: str,
        lengths: Sequence[int],
        *,
        success: Sequence[bool] | None = None,
        tasks: Sequence[str] = ("open the drawer",),
        cameras: Sequence[str] = (),
        camera_dtype: str = "image",
        size: tuple[int, int] = (32, 32),
        interventions: Sequence[tuple[int, int, int]] | None = None,
        episode_indices: Sequence[int] | None = None,
        state_dim: int = 3,
        action_dim: int = 2,
        fps: int = 10,
        seed: int = 0,
        columns: Callable[[pa.Table, int], pa.Table] | None = None,
    ) -> None:
        self.root, self.version, self.lengths, self.success, self.tasks = root, version, list(lengths), success, list(tasks)
        self.cameras, self.camera_dtype, self.size, self.interventions = tuple(cameras), camera_dtype, size, interventions
        self.indices = list(range(len(lengths)) if episode_indices is None else episode_indices)
        self.state_dim, self.action_dim, self.fps, self.seed, self.columns = state_dim, action_dim, fps, seed, columns

    @property
    def video_cameras(self) -> tuple[str, ...]:
        return self.cameras if self.camera_dtype == "video" else ()

    def task(self, position: int) -> str:
        return self.tasks[position % len(self.tasks)]

    def images(self, position: int, camera: str) -> np.ndarray:
        number = self.cameras.index(camera)
        return np.stack([image(position, frame, number, self.size) for frame in range(self.lengths[position])])

    def table(self, position: int) -> pa.Table:
        n, rng = self.lengths[position], np.random.default_rng([self.seed, position])
        first = sum(self.lengths[:position])
        columns = {
            "observation.state": _vectors(rng.normal(size=(n, self.state_dim))),
            "action": _vectors(rng.normal(size=(n, self.action_dim))),
            "timestamp": np.arange(n, dtype=np.float32) / self.fps,
            "frame_index": np.arange(n),
            "episode_index": np.full(n, self.indices[position]),
            "index": np.arange(first, first + n),
            "task_index": np.full(n, position % len(self.tasks)),
        }
        if self.success is not None:
            columns["is_success"] = np.full(n, bool(self.success[position]))
        if self.interventions is not None:
            columns["intervene_flag"] = np.zeros(n, dtype=bool)
            for episode, start, stop in self.interventions:
                columns["intervene_flag"][start:stop] |= episode == position
        if self.camera_dtype == "image":
            columns |= {camera: png_array(self.images(position, camera)) for camera in self.cameras}
        table = pa.table(columns)
        return table if self.columns is None else self.columns(table, position)

    def write_meta(self, data_path: str, video_path: str) -> None:
        names = ["height", "width", "channels"]
        features = {camera: {"dtype": self.camera_dtype, "shape": [*self.size, 3], "names": names} for camera in self.cameras}
        features |= {"observation.state": _feature("float32", self.state_dim), "action": _feature("float32", self.action_dim)}
        features["timestamp"] = _feature("float32")
        features |= {key: _feature("int64") for key in ("frame_index", "episode_index", "index", "task_index")}
        features |= {"is_success": _feature("bool")} if self.success is not None else {}
        features |= {"intervene_flag": _feature("bool")} if self.interventions is not None else {}
        info = {
            "codebase_version": self.version,
            "robot_type": "test",
            "total_episodes": len(self.lengths),
            "total_frames": sum(self.lengths),
            "total_tasks": len(self.tasks),
            "chunks_size": 1000,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.lengths)}"},
            "data_path": data_path,
            "video_path": video_path if self.video_cameras else None,
            "features": features,
        }
        (self.root / "meta").mkdir(parents=True, exist_ok=True)
        (self.root / "meta/info.json").write_text(json.dumps(info, indent=1))


def _feature(dtype: str, width: int = 1) -> dict:
    return {"dtype": dtype, "shape": [width], "names": None}


def _vectors(values: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), values.shape[1])


def png_array(images: np.ndarray) -> pa.StructArray:
    """(n, H, W, 3) uint8 images as lerobot's column of encoded ones."""
    from PIL import Image

    encoded = []
    for number, picture in enumerate(images):
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": f"frame_{number:06d}.png"})
    return pa.array(encoded, pa.struct({"bytes": pa.binary(), "path": pa.string()}))


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
