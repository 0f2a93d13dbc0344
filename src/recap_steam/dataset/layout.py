"""Where a LeRobot dataset keeps things: formats v2.0, v2.1 and v3.0, read as they are, never converted or changed."""

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

from recap_steam.dataset.reader import read_table
from recap_steam.errors import UserError

VERSIONS = ("v2.0", "v2.1", "v3.0")  # v2.0 differs from v2.1 in its statistics only, which are not read


@dataclasses.dataclass(frozen=True)
class VideoSpan:
    """Where one episode's frames of one camera are: a part of a video file, in seconds. ``to_s`` None: up to the end."""

    path: Path
    from_s: float
    to_s: float | None


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One LeRobot dataset on disk.

    Attributes:
        name: its name in the experiment.
        root: its folder.
        version: ``v2.0``, ``v2.1`` or ``v3.0``.
        fps: frames per second.
        features: ``features`` of meta/info.json.
        info: all of meta/info.json.
    """

    name: str
    root: Path
    version: str
    fps: float
    features: dict[str, dict]
    info: dict[str, Any]

    @functools.cached_property
    def cameras(self) -> tuple[str, ...]:
        """Camera keys in the order of meta/info.json."""
        return tuple(key for key, feature in self.features.items() if feature["dtype"] in ("video", "image"))

    @functools.cached_property
    def tasks(self) -> dict[int, str]:
        """Task text by task index, from meta/tasks.jsonl (v2.0, v2.1) or meta/tasks.parquet (v3.0).

        Raises:
            UserError: the file is missing or malformed. There is no default prompt.
        """
        return _tasks_parquet(self.root / "meta/tasks.parquet") if self.version == "v3.0" else _tasks_jsonl(self.root / "meta/tasks.jsonl")

    @functools.cached_property
    def action_key(self) -> str:
        """Name of the action column: ``action``, or ``actions`` as some datasets have it."""
        return self._one_of("action", "actions")

    @functools.cached_property
    def state_key(self) -> str:
        """Name of the state column: ``observation.state``, or ``state`` as some datasets have it."""
        return self._one_of("observation.state", "state")

    def _one_of(self, *names: str) -> str:
        key = next((name for name in names if name in self.features), None)
        if key is None:
            raise UserError(f"{self.info_path}: no feature '{names[0]}'; declare that column under 'features'")
        return key

    @property
    def info_path(self) -> Path:
        return self.root / "meta/info.json"

    def data_files(self) -> list[Path]:
        """All Parquet files under the data folder, sorted by path.

        Raises:
            UserError: there is none.
        """
        folder = self.root / Path(self.info.get("data_path", "data")).parts[0]
        files = sorted(os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names if name.endswith(".parquet"))
        if not files:
            raise UserError(f"{folder}: no Parquet file; the dataset {self.name} is empty: check its path, or download or collect it again")
        return [Path(file) for file in files]

    def camera_dtype(self, camera: str) -> str:
        """``video`` or ``image``.

        Raises:
            UserError: no such camera.
        """
        if camera not in self.cameras:
            raise UserError(f"{self.info_path}: no camera '{camera}' in dataset {self.name}; it has: {', '.join(self.cameras) or 'none'}")
        return self.features[camera]["dtype"]

    def video_span(self, episode_index: int, camera: str) -> VideoSpan:
        """Where the episode's frames of ``camera`` are. The file need not exist.

        Raises:
            UserError: the metadata does not say.
        """
        template = self.info.get("video_path")
        if not template:
            raise UserError(f"{self.info_path}: no 'video_path', but camera '{camera}' is a video; restore it")
        if self.version != "v3.0":
            chunk = episode_index // self.info.get("chunks_size", 1000)
            path = template.format(episode_chunk=chunk, video_key=camera, episode_index=episode_index)
            return VideoSpan(self.root / path, 0.0, None)
        span = self._recorded_spans.get((episode_index, camera))
        if span is None:
            folder = self.root / "meta/episodes"
            raise UserError(f"{folder}: episode {episode_index} has no entry for camera '{camera}'; restore meta/episodes")
        chunk, file, from_s, to_s = span
        return VideoSpan(self.root / template.format(video_key=camera, chunk_index=chunk, file_index=file), from_s, to_s)

    @functools.cached_property
    def _recorded_spans(self) -> dict[tuple[int, str], tuple[int, int, float, float]]:
        """Chunk, file, start and end by (episode, camera), from meta/episodes of a v3.0 dataset."""
        spans = {}
        videos = [camera for camera in self.cameras if self.camera_dtype(camera) == "video"]
        fields = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        for path in self._episode_files():
            table = read_table(path, ["episode_index", *(f"videos/{camera}/{field}" for camera in videos for field in fields)])
            for camera in videos:
                columns = [table[f"videos/{camera}/{field}"].to_pylist() for field in fields]
                spans |= {(row[0], camera): row[1:] for row in zip(table["episode_index"].to_pylist(), *columns, strict=True)}
        return spans

    def _episode_files(self) -> list[Path]:
        return sorted((self.root / "meta/episodes").rglob("*.parquet"))

    def recorded_lengths(self) -> dict[int, int]:
        """Frames by episode as meta/episodes says; empty if the dataset has no such file."""
        if self.version == "v3.0":
            tables = [read_table(path, ["episode_index", "length"]) for path in self._episode_files()]
            return {index: n for t in tables for index, n in zip(t["episode_index"].to_pylist(), t["length"].to_pylist(), strict=True)}
        path = self.root / "meta/episodes.jsonl"
        return {line["episode_index"]: line["length"] for line in _json_lines(path, ("episode_index", "length"))} if path.exists() else {}


def open_dataset(name: str, path: Path | str) -> Dataset:
    """Open the LeRobot dataset in folder ``path`` under the experiment's name ``name``.

    Raises:
        UserError: no dataset there, or a format other than ``VERSIONS``.
    """
    root = Path(path)
    info_path = root / "meta/info.json"
    try:
        info = json.loads(info_path.read_text())
        version, fps, features = info["codebase_version"], float(info["fps"]), info["features"]
        _ = [feature["dtype"] for feature in features.values()]
    except FileNotFoundError:
        raise UserError(f"{info_path}: not found; dataset {name} is not a LeRobot dataset: check datasets.{name}.path") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{info_path}: malformed ({type(error).__name__}: {error}); restore the file") from None
    if version not in VERSIONS:
        raise UserError(f"{info_path}: codebase_version {version} is not supported; convert the dataset to {VERSIONS[-1]} with lerobot")
    return Dataset(name, root, version, fps, features, info)


def _json_lines(path: Path, keys: tuple[str, ...]) -> list[dict]:
    """Objects of a JSON-lines file; blank lines are skipped."""
    lines = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):  # as bytes: str knows more line ends than JSON
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            _ = [line[key] for key in keys]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}: line {number} is not a JSON object with the keys {', '.join(keys)}; restore the file") from None
        lines.append(line)
    return lines


def _tasks_jsonl(path: Path) -> dict[int, str]:
    if not path.exists():
        raise UserError(f"{path}: not found, so task texts are unknown; restore it (there is no default prompt)")
    return {int(line["task_index"]): str(line["task"]) for line in _json_lines(path, ("task_index", "task"))}


def _tasks_parquet(path: Path) -> dict[int, str]:
    """The text is a column ``task`` or the pandas index, which Arrow calls ``task`` or ``__index_level_0__``."""
    if not path.exists():
        raise UserError(f"{path}: not found, so task texts are unknown; restore it (there is no default prompt)")
    table = read_table(path, ["task_index"], optional=["task", "__index_level_0__"])
    text = next((table[name] for name in ("task", "__index_level_0__") if name in table.column_names), None)
    if text is None or text.null_count:
        raise UserError(f"{path}: no task text (column 'task' or the pandas index); restore the file")
    return dict(zip(table["task_index"].to_pylist(), map(str, text.to_pylist()), strict=True))
