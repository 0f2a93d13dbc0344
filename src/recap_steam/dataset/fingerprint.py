"""Episode digests: what a dataset says, independent of how its files are laid out and in which order its rows come."""

import hashlib
import json
from typing import Any

import numpy as np


class EpisodeDigest:
    """Digest of one episode, fed with its actions in frame order.

    It covers what labels depend on, and the actions: the number of frames (their indices are 0 to T-1, which the index checks), the
    task text and the corrections by frame, the outcome, and the action bytes with their dtype and width. States and images are left
    out: their identity is that of the normalisation statistics and of the frame cache, which are made from them.
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._layout: tuple[str, int] | None = None

    def add_actions(self, actions: np.ndarray) -> None:
        """Add (n, d) actions of the frames that follow."""
        self._layout = (actions.dtype.str, actions.shape[1])
        self._hash.update(np.ascontiguousarray(actions))

    def finish(self, num_frames: int, tasks: list[tuple[int, str]], success: bool, interventions: list[list[int]]) -> str:
        """Digest (32 hex digits); ``tasks`` are (first frame, text), ``interventions`` [first frame, frame after the last]."""
        facts: list[Any] = [num_frames, tasks, success, interventions, self._layout]
        self._hash.update(json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode())
        return self._hash.hexdigest()
