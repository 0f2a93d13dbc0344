"""Frames of single episodes, found by seeking: for figures and videos of a few episodes of a large dataset."""

from collections.abc import Iterator, Sequence

import numpy as np

from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.layout import Dataset
from recap_steam.dataset.reader import read_episode
from recap_steam.dataset.stills import decode_still
from recap_steam.dataset.video import REMEDY, require_videos
from recap_steam.errors import UserError


def read_clip(dataset: Dataset, episodes: Episodes, position: int, camera: str, steps: Sequence[int] | None = None) -> Iterator[np.ndarray]:
    """Frames of one episode of a camera, (H, W, 3) uint8 RGB, at the dataset's own resolution.

    Args:
        position: of the episode in ``episodes``.
        steps: numbers of the frames in the episode, ascending; None: all.

    Raises:
        UserError: missing or unreadable file, or a frame that it does not have; the message names file and episode.
    """
    wanted = list(range(int(episodes.length[position])) if steps is None else steps)
    read = {"video": _video_clip, "image": _still_clip}[dataset.camera_dtype(camera)]
    yield from read(dataset, episodes, position, camera, wanted)


def _still_clip(dataset: Dataset, episodes: Episodes, position: int, camera: str, wanted: list[int]) -> Iterator[np.ndarray]:
    index, found = int(episodes.episode_index[position]), {}
    for path in dataset.data_files():
        table = read_episode(path, index, ["frame_index", camera])
        found |= {step: (path, item) for step, item in zip(table["frame_index"].to_pylist(), table[camera].to_pylist(), strict=True)}
        if len(found) == episodes.length[position]:
            break
    for step in wanted:
        path, item = found.get(step, (dataset.root, None))
        yield decode_still(dataset, episodes, camera, int(episodes.offsets[position]) + step, path, item)


def _video_clip(dataset: Dataset, episodes: Episodes, position: int, camera: str, wanted: list[int]) -> Iterator[np.ndarray]:
    import av

    index = int(episodes.episode_index[position])
    require_videos(dataset, episodes, [camera], [index])
    span = dataset.video_span(index, camera)
    first = round(span.from_s * dataset.fps)
    try:
        with av.open(str(span.path)) as container:
            yield from _frames(container, dataset.fps, [first + step for step in wanted], f"{span.path}: episode {index}")
    except (av.FFmpegError, IndexError) as error:
        raise UserError(f"{span.path}: episode {index}: not a readable video ({type(error).__name__}); {REMEDY}") from None


def _frames(container, fps: float, numbers: list[int], place: str) -> Iterator[np.ndarray]:
    """Frames by number in the file. Where the next one is more than a second ahead, it is sought; else decoding goes on."""
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    origin, decoded, at = (stream.start_time or 0) * stream.time_base, None, -1
    for number in numbers:
        if decoded is None or number > at + fps:
            container.seek(round((number / fps + float(origin)) / float(stream.time_base)), stream=stream)
            decoded = container.decode(stream)
        for frame in decoded:
            at = round((frame.time - float(origin)) * fps)
            if at >= number:
                break
        if at != number:
            raise UserError(f"{place}: the video has no frame {number}; {REMEDY}")
        yield frame.to_ndarray(format="rgb24")
