"""Camera videos, decoded in order: each file once, however many episodes it holds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.dataset.columns import some
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.layout import Dataset, VideoSpan
from recap_steam.errors import UserError

REMEDY = "restore the file from its source"


def require_videos(dataset: Dataset, episodes: Episodes, cameras: Sequence[str], indices: Sequence[int] | None = None) -> None:
    """Check that every video file of the video cameras among ``cameras`` exists, of the episodes ``indices`` (None: of all).

    Raises:
        UserError: naming the missing files.
    """
    videos = [camera for camera in cameras if dataset.camera_dtype(camera) == "video"]
    paths = {dataset.video_span(index, camera).path for camera in videos for index in indices or episodes.episode_index.tolist()}
    missing = sorted(str(path) for path in paths if not path.is_file())
    if missing:
        raise UserError(f"dataset {dataset.name} has no video file {some(missing)}; {REMEDY}")


def read_video(dataset: Dataset, episodes: Episodes, camera: str) -> Iterator[np.ndarray]:
    """All frames of a video camera, (H, W, 3) uint8 RGB, in row order.

    Every episode must have exactly the frames of the index: a frame's place is checked by its timestamp (v3.0 says where in a file an
    episode begins and ends), so a short, long or shifted video is an error and never a silent shift of images against actions.

    Raises:
        UserError: unreadable or wrong file; the message names it and the episode.
    """
    reader = None
    for index, length in zip(episodes.episode_index.tolist(), episodes.length.tolist(), strict=True):
        span = dataset.video_span(index, camera)
        if reader is None or not reader.reaches(span):
            reader = _FileReader(span.path, dataset.fps)
        yield from reader.episode(index, length, span)
        if span.to_s is None:
            reader.expect_end()


class _FileReader:
    """One pass over a video file."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self._fps = fps
        self._frames = self._decode()
        self._place = str(path)  # file and episode, to open messages with
        self._next = 0  # number of the frame that comes next, counted from the start of the file

    def reaches(self, span: VideoSpan) -> bool:
        """Whether ``span`` lies ahead in this file."""
        return span.path == self.path and round(span.from_s * self._fps) >= self._next

    def episode(self, index: int, length: int, span: VideoSpan) -> Iterator[np.ndarray]:
        """The ``length`` frames of an episode; frames of other episodes before it are skipped."""
        self._place = f"{self.path}: episode {index}"
        first = round(span.from_s * self._fps)
        if span.to_s is not None and round(span.to_s * self._fps) - first != length:
            recorded = round(span.to_s * self._fps) - first
            raise UserError(f"{self._place} has {length} frames, its video span {recorded}; correct meta/episodes")
        for number in range(self._next, first + length):
            frame = next(self._frames, None)
            if frame is None:
                raise UserError(f"{self._place}: the video ends {first + length - number} frames before the episode does; {REMEDY}")
            self._next = number + 1
            if number >= first:
                yield frame.to_ndarray(format="rgb24")

    def expect_end(self) -> None:
        """A file of one episode holds no further frame."""
        if next(self._frames, None) is not None:
            raise UserError(f"{self._place}: the video has more frames than the episode; {REMEDY}")

    def _decode(self) -> Iterator[Any]:
        import av  # here, because stages without images should start fast

        try:
            with av.open(str(self.path)) as container:
                stream = container.streams.video[0]
                stream.thread_type = "AUTO"
                first = None
                for number, frame in enumerate(container.decode(stream)):
                    first = frame.time if first is None else first
                    if abs((frame.time - first) * self._fps - number) > 0.5:
                        raise UserError(
                            f"{self._place}: frame {number} is at {frame.time - first:.3f} s, expected {number / self._fps:.3f} s at "
                            f"{self._fps:g} frames/s; a frame is missing or the frame rate is another: {REMEDY}"
                        )
                    yield frame
        except (av.FFmpegError, IndexError) as error:
            raise UserError(f"{self._place}: not a readable video ({type(error).__name__}); {REMEDY}") from None
