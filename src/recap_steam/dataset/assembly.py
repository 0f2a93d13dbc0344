"""Episodes put together from whatever pieces the files hold: any order of rows, any split over files."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from recap_steam.dataset.fingerprint import EpisodeDigest
from recap_steam.errors import UserError


@dataclasses.dataclass
class Batch:
    """Columns of some rows of a file, (n,) each, sorted by key once ``sort`` was called.

    ``success`` and ``intervention`` are None where the dataset has no such column; ``task`` holds what ``task_text`` explains.
    """

    path: Path
    episode: np.ndarray
    frame: np.ndarray
    action: np.ndarray
    task: np.ndarray
    success: np.ndarray | None
    intervention: np.ndarray | None

    def sort(self) -> "Batch":
        """Rows by (episode, frame). Costs nothing where they are sorted already, as is usual."""
        step = np.diff(self.episode)
        if ((step > 0) | ((step == 0) & (np.diff(self.frame) >= 0))).all():
            return self
        order = np.lexsort((self.frame, self.episode))
        columns = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "path"}
        return Batch(self.path, **{name: None if column is None else column[order] for name, column in columns.items()})

    def fragments(self) -> list[tuple[int, int]]:
        """Row ranges [start, stop) of one episode with consecutive frames."""
        starts = np.flatnonzero((np.diff(self.episode) != 0) | (np.diff(self.frame) != 1)) + 1
        bounds = [0, *starts.tolist(), len(self.episode)]
        return list(itertools.pairwise(bounds))


@dataclasses.dataclass
class Fragment:
    """Consecutive frames of one episode, reduced to what the episode needs of them."""

    path: Path
    start: int
    stop: int
    action: np.ndarray
    tasks: list[tuple[int, str]]  # (first frame, text)
    num_true: int
    last_is_true: bool
    interventions: list[list[int]]  # [first frame, frame after the last]


class EpisodeBuilder:
    """One episode while it is read. Fragments that come early wait; the others are digested at once, so memory stays small."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.num_frames = 0
        self.num_true = 0
        self.last_is_true = False
        self.tasks: list[tuple[int, str]] = []
        self.interventions: list[list[int]] = []
        self.digest = EpisodeDigest()
        self.path: Path | None = None
        self._waiting: dict[int, Fragment] = {}

    def add(self, fragment: Fragment) -> None:
        """Add a fragment.

        Raises:
            UserError: a frame that the episode already has, or a negative one.
        """
        if fragment.start < self.num_frames or fragment.start in self._waiting:
            problem = "is negative" if fragment.start < 0 else "appears twice"
            raise UserError(
                f"{fragment.path}: episode {self.index}, frame {fragment.start} {problem}; remove the copy or repair the dataset"
            )
        self.path = fragment.path
        if fragment.start > self.num_frames:
            fragment.action = fragment.action.copy()  # a view would keep the whole batch alive
            self._waiting[fragment.start] = fragment
            return
        self._append(fragment)
        while self._waiting and self.num_frames in self._waiting:
            self._append(self._waiting.pop(self.num_frames))

    def finish(self) -> None:
        """Check that no frame is missing before the last one.

        Raises:
            UserError: naming the first missing or doubled frame.
        """
        if not self._waiting:
            return
        first = min(self._waiting)
        if first < self.num_frames:
            raise UserError(f"{self._waiting[first].path}: episode {self.index}, frame {first} appears twice; remove the copy")
        raise UserError(f"{self.path}: episode {self.index}, frame {self.num_frames} is missing; restore it or drop the episode")

    def _append(self, fragment: Fragment) -> None:
        self.num_frames = fragment.stop
        self.num_true += fragment.num_true
        self.last_is_true = fragment.last_is_true
        tasks = fragment.tasks
        self.tasks += tasks[1:] if self.tasks and self.tasks[-1][1] == tasks[0][1] else tasks
        spans = fragment.interventions
        if self.interventions and spans and self.interventions[-1][1] == spans[0][0]:
            self.interventions[-1][1] = spans.pop(0)[1]
        self.interventions += spans
        self.digest.add_actions(fragment.action)


class Assembler:
    """All episodes of a dataset while its files are read.

    Args:
        task_text: text of a value of ``Batch.task``, or None if it is unknown.
    """

    def __init__(self, task_text: Callable[[object], str | None]) -> None:
        self.episodes: dict[int, EpisodeBuilder] = {}
        self._task_text = task_text

    def add(self, batch: Batch) -> None:
        """Add rows in any order."""
        batch = batch.sort()
        for start, stop in batch.fragments():
            index = int(batch.episode[start])
            builder = self.episodes.get(index) or self.episodes.setdefault(index, EpisodeBuilder(index))
            builder.add(self._fragment(batch, slice(start, stop)))

    def _fragment(self, batch: Batch, rows: slice) -> Fragment:
        first = int(batch.frame[rows.start])
        success = None if batch.success is None else batch.success[rows]
        return Fragment(
            path=batch.path,
            start=first,
            stop=first + rows.stop - rows.start,
            action=batch.action[rows],
            tasks=self._tasks(batch, rows, first),
            num_true=0 if success is None else int(np.count_nonzero(success)),
            last_is_true=success is not None and bool(success[-1]),
            interventions=[] if batch.intervention is None else _spans(batch.intervention[rows], first),
        )

    def _tasks(self, batch: Batch, rows: slice, first: int) -> list[tuple[int, str]]:
        values = batch.task[rows]
        runs = []
        for start in [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()]:
            text = self._task_text(values[start])
            if text is None:
                where = f"{batch.path}: episode {batch.episode[rows.start]}, frame {first + start}"
                raise UserError(f"{where}: task_index {values[start]} is not in the task file under meta/; add its text there")
            runs.append((first + start, text))
        return runs


def _spans(mask: np.ndarray, first: int) -> list[list[int]]:
    """Frame ranges [start, stop) where ``mask`` is true."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)) + first
    return edges.reshape(-1, 2).tolist()
