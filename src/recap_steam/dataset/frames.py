"""The frame cache: every image decoded once, at the model's resolution, in one memory-mapped Arrow file that all stages share."""

import functools
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam import rates
from recap_steam.background import ahead
from recap_steam.config import Experiment
from recap_steam.dataset.columns import some
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.dataset.resize import resize_with_pad
from recap_steam.dataset.stills import read_stills
from recap_steam.dataset.video import read_video, require_videos
from recap_steam.errors import UserError, rerun
from recap_steam.files import atomic_output
from recap_steam.lineage import METADATA_KEY, Lineage, check_lineage, code_digest

STAGE = "cache_frames"
REMEDY = rerun("cache_frames")
DIGEST_KEY = b"sha256"
BATCH_ROWS = 256  # frames per record batch: row r is in batch r // 256
AHEAD = 16  # frames of a camera that are decoded while others are written


def frames_stage(
    experiment: Experiment, name: str, episodes_path: Path | str, cameras: Sequence[str], image_size: int, output: Path | str
) -> None:
    """Rule cache_frames: decode the cameras of the experiment's dataset ``name`` into ``output``."""
    dataset = open_dataset(name, experiment.datasets[name].path)
    episodes, began = load_episodes(episodes_path, dataset), time.monotonic()
    build_frame_cache(dataset, episodes, cameras, image_size, output)
    images = episodes.num_frames * len(cameras)
    rates.leave(STAGE, lambda: rates.cache_work(image_size), "image", images, time.monotonic() - began)


def build_frame_cache(dataset: Dataset, episodes: Episodes, cameras: Sequence[str], image_size: int, output: Path | str) -> None:
    """Decode ``cameras`` of every frame, resize to ``image_size`` pixels squared and write them in row order.

    The file is an Arrow IPC file with one column per camera of fixed-size binary (image_size x image_size x 3 bytes, RGB). Its last
    record batch carries a digest of all images: the dataset's fingerprint does not cover them.

    Raises:
        UserError: unknown camera; missing or unreadable video or image; full disk.
    """
    require_videos(dataset, episodes, cameras)
    streams = [ahead(_images(dataset, episodes, camera, image_size), AHEAD) for camera in cameras]  # side by side
    parameters = {"cameras": list(cameras), "image_size": image_size}
    statistics = {"num_frames": episodes.num_frames}
    lineage = Lineage(STAGE, dataset.name, episodes.fingerprint, parameters, {}, statistics, code_digest(__name__))
    schema = pa.schema([(camera, pa.binary(image_size * image_size * 3)) for camera in cameras], metadata={METADATA_KEY: lineage.to_json()})
    digest = hashlib.sha256()
    with atomic_output(output) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in _with_progress(range(0, episodes.num_frames, BATCH_ROWS), episodes.num_frames, f"{dataset.name} frames"):
            rows = min(BATCH_ROWS, episodes.num_frames - start)
            columns = [_column(stream, rows, image_size) for stream in streams]
            for column in columns:
                digest.update(column.buffers()[1])
            last = {DIGEST_KEY: digest.hexdigest()} if start + rows == episodes.num_frames else None
            writer.write_batch(pa.record_batch(columns, schema=schema), custom_metadata=last)
        for stream in streams:
            next(stream, None)  # lets the reader check that the last video ends with its episode


def _images(dataset: Dataset, episodes: Episodes, camera: str, image_size: int) -> Iterator[np.ndarray]:
    read = {"video": read_video, "image": read_stills}[dataset.camera_dtype(camera)]
    for image in read(dataset, episodes, camera):
        yield resize_with_pad(image, image_size)


def _column(stream: Iterator[np.ndarray], rows: int, image_size: int) -> pa.Array:
    images = np.empty((rows, image_size, image_size, 3), dtype=np.uint8)
    for row in range(rows):
        images[row] = next(stream)
    return pa.Array.from_buffers(pa.binary(image_size * image_size * 3), rows, [None, pa.py_buffer(images)])


def progress_bar(total: int, title: str, disable: bool = False):
    """tqdm over ``total`` frames: a bar on a terminal, a line every half minute in a log."""
    from tqdm import tqdm

    return tqdm(total=total, desc=title, unit="frame", mininterval=0.5 if sys.stderr.isatty() else 30, disable=disable)


def _with_progress(starts: range, total: int, title: str) -> Iterator[int]:
    with progress_bar(total, title) as bar:
        for start in starts:
            yield start
            bar.update(min(BATCH_ROWS, total - start))


class FrameCache:
    """Frames of one dataset by row number. Nothing is read before it is asked for; open it with ``FrameCache.open``.

    ``digest`` (hex) is of the images: the input that whoever reads them states in a lineage record.
    """

    def __init__(self, path: Path, reader: pa.ipc.RecordBatchFileReader, lineage: Lineage, digest: str) -> None:
        self.path = path
        self.digest = digest
        self.cameras: list[str] = lineage.parameters["cameras"]
        self.image_size: int = lineage.parameters["image_size"]
        self.num_frames: int = lineage.statistics["num_frames"]
        self._reader = reader
        self._batch = functools.cache(self._map_batch)

    @classmethod
    def open(cls, path: Path | str, episodes: Episodes, **expected_parameters: object) -> "FrameCache":
        """Memory-map the cache in ``path``, which must be of the very dataset version that ``episodes`` indexes.

        Args:
            path: the cache.
            episodes: index of the dataset as it is now.
            expected_parameters: ``cameras`` or ``image_size`` that the consumer relies on.

        Raises:
            UserError: missing or unreadable file, or a cache of something else.
        """
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            lineage = Lineage.from_json((reader.schema.metadata or {})[METADATA_KEY], path=path)
            last = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
            digest = (last.custom_metadata or {})[DIGEST_KEY].decode()
        except FileNotFoundError:
            raise UserError(f"{path}: not found; {REMEDY}") from None
        except (pa.ArrowException, OSError, KeyError) as error:
            raise UserError(f"{path}: not a readable frame cache ({type(error).__name__}); {REMEDY}") from None
        expected = {"stage": STAGE, "dataset_fingerprint": episodes.fingerprint, "parameters": expected_parameters}
        check_lineage(lineage, path=path, remedy=REMEDY, **expected)
        return cls(Path(path), reader, lineage, digest)

    def images(self, camera: str, rows: np.ndarray) -> np.ndarray:
        """Frames of ``camera`` in any order: rows (n,) int -> (n, S, S, 3) uint8 RGB, a copy.

        Raises:
            UserError: the cache has no such camera.
            IndexError: a row outside the dataset.
        """
        if camera not in self.cameras:
            raise UserError(f"{self.path}: no camera '{camera}', it has: {some(self.cameras)}; {REMEDY}")
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < self.num_frames):
            raise IndexError(f"{self.path}: rows {rows.min()} to {rows.max()} of {self.num_frames}")
        images = np.empty((len(rows), self.image_size, self.image_size, 3), dtype=np.uint8)
        column = self.cameras.index(camera)
        for place, row in enumerate(rows.tolist()):
            batch, offset = divmod(row, BATCH_ROWS)
            images[place] = self._batch(batch)[column][offset]
        return images

    def _map_batch(self, number: int) -> list[np.ndarray]:
        """The images of one record batch by camera, views into the file."""
        batch = self._reader.get_batch(number)
        shape = (len(batch), self.image_size, self.image_size, 3)
        return [np.frombuffer(column.buffers()[1], dtype=np.uint8, count=np.prod(shape)).reshape(shape) for column in batch.columns]
