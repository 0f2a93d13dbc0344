"""What a policy trains on, as arrays: one sample per selected frame, with the rest of its episode as the source of its action chunk."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam.config import Experiment, PolicyConfig
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.dataset.vectors import read_vectors
from recap_steam.errors import UserError
from recap_steam.sidecar import read_sidecar, sidecar_path

STATE = "observation.state"


@dataclasses.dataclass(frozen=True)
class Source:
    """One dataset of a policy: its frames in row order (episode, frame), all F of them, and which are samples.

    Attributes:
        selected: (n,) int64 rows that are samples, ascending.
        states: (F, d_s) float32; actions: (F, d_a) float32; both in environment units.
        labels: (F,) bool advantage labels; None for imitation.
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


def load_sources(experiment: Experiment, tag: str, episodes_dir: Path, with_labels: bool) -> list[Source]:
    """Read the datasets of policy ``tag``.

    Raises:
        UserError: vectors of different width, a missing or foreign advantages sidecar, or no frame left to train on.
    """
    policy = experiment.policies[tag]
    sources = []
    for name in policy.datasets:
        dataset = open_dataset(name, experiment.datasets[name].path)
        episodes = load_episodes(episodes_dir / f"{name}.parquet", dataset)
        labels = _labels(experiment, policy, name, episodes) if with_labels else None
        sources.append(_load_source(dataset, episodes, policy.frame_filter, labels))
    for column in ("states", "actions"):
        widths = {source.name: getattr(source, column).shape[1] for source in sources}
        if len(set(widths.values())) > 1:
            raise UserError(f"policies.{tag}.datasets: {column} differ in dimensions ({widths}); a policy needs datasets of one robot")
    return sources


def _load_source(dataset: Dataset, episodes: Episodes, frame_filter: str, labels: np.ndarray | None) -> Source:
    selected = select_rows(frame_filter, episodes)
    if not len(selected):
        raise UserError(f"datasets.{dataset.name}: no frame passes frame_filter {frame_filter}; remove the dataset from the policy")
    states, actions = (read_vectors(dataset, episodes, column) for column in (STATE, dataset.action_key))
    return Source(dataset.name, episodes, selected, states, actions, labels)


def _labels(experiment: Experiment, policy: PolicyConfig, name: str, episodes: Episodes) -> np.ndarray | None:
    if policy.advantage_tag is None:
        return None
    path = sidecar_path(experiment.datasets[name], name, f"advantages_{policy.advantage_tag}")
    labels = experiment.advantages[policy.advantage_tag]
    returns = experiment.returns[experiment.critics[labels.critic].returns_tag]
    parameters = dataclasses.asdict(labels) | dataclasses.asdict(returns)
    sidecar = read_sidecar(path, "advantages", episodes, columns=["advantage"], tag=policy.advantage_tag, parameters=parameters)
    return sidecar.columns["advantage"]


def select_rows(frame_filter: str, episodes: Episodes) -> np.ndarray:
    """(n,) int64 rows that may start an action chunk: all, or corrections and the frames of episodes that succeeded without one.

    What a policy did before it had to be corrected is no success of its own.
    """
    if frame_filter == "all":
        return np.arange(episodes.num_frames)
    corrections = episodes.interventions()
    corrected = np.repeat(np.logical_or.reduceat(corrections, episodes.offsets[:-1]), episodes.length)
    return np.flatnonzero(corrections | (episodes.row_success() & ~corrected))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Action chunks of all samples of several sources.

    Attributes:
        actions: (F, d) float32, all frames of all sources, one after the other.
        start: (n,) int64 frame of each sample in ``actions``; end: (n,) int64 one past its episode's last frame.
    """

    actions: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, sources: list[Source], actions: np.ndarray) -> "Chunks":
        starts, ends, offset = [], [], 0
        for source in sources:
            episode_ends = np.repeat(source.episodes.offsets[1:], source.episodes.length)
            starts.append(offset + source.selected)
            ends.append(offset + episode_ends[source.selected])
            offset += source.episodes.num_frames
        return cls(actions, np.concatenate(starts), np.concatenate(ends))

    def take(self, samples: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Chunks of ``samples`` (n,): actions (n, length, d) float32 and is_pad (n, length), where the episode's last one is repeated."""
        frames = self.start[samples, None] + np.arange(length)
        last = self.end[samples, None] - 1
        return self.actions[np.minimum(frames, last)], frames > last
