"""The episodes of one dataset as NumPy arrays: narrow, because a dataset may have ten million frames."""

import dataclasses
import functools
import hashlib

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Episodes:
    """Sorted by episode index. A *row* is a frame's position when frames are sorted by (episode_index, frame_index).

    What varies inside an episode is kept as runs: ``task_start`` are the rows where a run of one task begins (every episode begins
    one), ``intervention_span`` the rows [start, stop) of corrections.

    Attributes:
        dataset: name of the dataset.
        episode_index: (E,) int64, ascending, not necessarily contiguous.
        length: (E,) int64 frames.
        success: (E,) bool.
        digest: E hex strings; see ``fingerprint.py``.
        tasks: distinct task texts, sorted.
        task_start: (R,) int64 rows, ascending.
        task_code: (R,) int32 into ``tasks``.
        intervention_span: (K, 2) int64 rows.
    """

    dataset: str
    episode_index: np.ndarray
    length: np.ndarray
    success: np.ndarray
    digest: list[str]
    tasks: list[str]
    task_start: np.ndarray
    task_code: np.ndarray
    intervention_span: np.ndarray

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """(E+1,) int64: episode e has the rows offsets[e] to offsets[e+1] - 1."""
        return np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)

    @property
    def num_frames(self) -> int:
        return int(self.offsets[-1])

    @functools.cached_property
    def fingerprint(self) -> str:
        """Digest (hex) over the ordered episode indices and digests: the identity of the dataset's content."""
        lines = "".join(f"{index} {digest}\n" for index, digest in zip(self.episode_index, self.digest, strict=True))
        return hashlib.sha256(lines.encode()).hexdigest()

    def frame_keys(self, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """``episode_index`` and ``frame_index`` of the rows [start, stop), two int64 arrays; by default of all (F,)."""
        stop = self.num_frames if stop is None else min(stop, self.num_frames)
        first, last = np.searchsorted(self.offsets, start, "right") - 1, np.searchsorted(self.offsets, stop, "left")
        counts = np.minimum(self.offsets[first + 1 : last + 1], stop) - np.maximum(self.offsets[first:last], start)
        episode = np.repeat(self.episode_index[first:last], counts)
        return episode, np.arange(start, stop) - np.repeat(self.offsets[first:last], counts)

    def locate(self, episode_index: np.ndarray, frame_index: np.ndarray) -> np.ndarray:
        """Rows (n,) int64 of frames given by key; -1 for a frame that the dataset does not have."""
        position = np.minimum(np.searchsorted(self.episode_index, episode_index), len(self.episode_index) - 1)
        known = (self.episode_index[position] == episode_index) & (frame_index >= 0) & (frame_index < self.length[position])
        return np.where(known, self.offsets[position] + frame_index, -1)

    def prompt_codes(self) -> np.ndarray:
        """Task of every frame, (F,) int32 into ``tasks``."""
        return np.repeat(self.task_code, np.diff(self.task_start, append=self.num_frames))

    def interventions(self) -> np.ndarray:
        """(F,) bool: frames in which a human or an expert corrected the policy."""
        mask = np.zeros(self.num_frames, dtype=bool)
        for start, stop in self.intervention_span:
            mask[start:stop] = True
        return mask

    def row_success(self) -> np.ndarray:
        """(F,) bool: the outcome of each frame's episode."""
        return np.repeat(self.success, self.length)
