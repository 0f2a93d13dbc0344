"""What a policy trains on, as arrays: one sample per selected frame, with the rest of its episode as the source of its action chunk."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.dataset.vectors import read_vectors
from recap_steam.errors import UserError
from recap_steam.policy.labels import policy_labels


@dataclasses.dataclass(frozen=True)
class Selection:
    """One dataset of a policy and which of its F frames are samples: ``rows`` (n,) int64, ascending."""

    dataset: Dataset
    episodes: Episodes
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class Source:
    """One dataset of a policy: its frames in row order (episode, frame), all F of them, and which are samples.

    Attributes:
        selected: (n,) int64 rows that are samples, ascending.
        states: (F, d_s) float32; actions: (F, d_a) float32; both in environment units.
        labels: (F,) bool advantage labels; None for imitation and for held-out datasets.
    """

    name: str
    episodes: Episodes
    selected: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    labels: np.ndarray | None

    def tasks(self) -> list[str]:
        """The task text of each sample."""
        return [self.episodes.tasks[code] for code in self.episodes.prompt_codes()[self.selected]]

    def chunks(self, samples: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Actions from ``samples`` (n,) on: (n, length, d_a) float32, and is_pad (n, length), where the episode's last one is repeated."""
        first = self.selected[samples]
        offsets = self.episodes.offsets
        last = offsets[np.searchsorted(offsets, first, side="right"), None] - 1
        rows = first[:, None] + np.arange(length)
        return self.actions[np.minimum(rows, last)], rows > last


def load_sources(experiment: Experiment, tag: str, episodes_dir: Path) -> list[Source]:
    """Read the training datasets of policy ``tag``, with labels if it is conditioned on them.

    Raises:
        UserError: vectors of different width, a missing or foreign advantages sidecar, or no frame left to train on.
    """
    policy = experiment.policies[tag]
    selections = select(experiment, tag, policy.datasets, episodes_dir)
    labels = [policy_labels(experiment, policy, selection.episodes, selection.rows) for selection in selections]
    return _same_robot(tag, [_read(*part) for part in zip(selections, labels, strict=True)])


def load_held_out(experiment: Experiment, tag: str, episodes_dir: Path, like: Source) -> list[Source]:
    """Read the held-out datasets of policy ``tag``, which need no labels. Their frames pass the policy's own filter.

    Raises:
        UserError: vectors of another width than those of the training dataset ``like``, or no frame left.
    """
    selections = select(experiment, tag, experiment.policies[tag].eval_datasets, episodes_dir)
    return _same_robot(tag, [like, *(_read(selection, None) for selection in selections)])[1:]


def select(experiment: Experiment, tag: str, names: list[str], episodes_dir: Path) -> list[Selection]:
    """Find the samples of policy ``tag`` in the datasets ``names``.

    Raises:
        UserError: a dataset without any.
    """
    selections = []
    for name in names:
        dataset = open_dataset(name, experiment.datasets[name].path)
        episodes = load_episodes(episodes_dir / f"{name}.parquet", dataset)
        frame_filter = experiment.policies[tag].frame_filter
        rows = select_rows(frame_filter, episodes)
        if not len(rows):
            raise UserError(f"datasets.{name}: no frame passes frame_filter {frame_filter}; remove the dataset from the policy")
        selections.append(Selection(dataset, episodes, rows))
    return selections


def select_rows(frame_filter: str, episodes: Episodes) -> np.ndarray:
    """(n,) int64 rows that may start an action chunk: all, or corrections and the frames of episodes that succeeded without one.

    What a policy did before it had to be corrected is no success of its own.
    """
    if frame_filter == "all":
        return np.arange(episodes.num_frames)
    corrections = episodes.interventions()
    corrected = np.repeat(np.logical_or.reduceat(corrections, episodes.offsets[:-1]), episodes.length)
    return np.flatnonzero(corrections | (episodes.row_success() & ~corrected))


def _read(selection: Selection, labels: np.ndarray | None) -> Source:
    dataset, episodes = selection.dataset, selection.episodes
    states, actions = (read_vectors(dataset, episodes, column) for column in (dataset.state_key, dataset.action_key))
    return Source(dataset.name, episodes, selection.rows, states, actions, labels)


def _same_robot(tag: str, sources: list[Source]) -> list[Source]:
    for column in ("states", "actions"):
        check_widths(tag, column, {source.name: getattr(source, column).shape[1] for source in sources})
    return sources


def check_widths(tag: str, column: str, widths: dict[str, int]) -> None:
    """Raise UserError where datasets of policy ``tag`` have vectors of different width."""
    if len(set(widths.values())) > 1:
        raise UserError(f"policies.{tag}.datasets: {column} differ in dimensions ({widths}); a policy needs datasets of one robot")
