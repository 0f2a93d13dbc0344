"""How the frames of one dataset were judged under one label tag: by advantages of a value critic, or by scores of an ensemble."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.labels.fragment import is_steam, read_fragment
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.scores import EXPERT, exceeds_threshold, scores_above, threshold_of
from recap_steam.labels.thresholds import reaches_threshold, scored_frames
from recap_steam.lineage import digest_file
from recap_steam.report.groups import frame_groups
from recap_steam.sidecar import read_sidecar, sidecar_path


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One dataset of F frames under one label tag.

    Attributes:
        title: tag and dataset.
        quantity: what labels are drawn from, with its unit.
        score: (F,) float64, what is compared with the threshold.
        threshold: (F,) float64.
        thresholds: those that occur here, by what they are called.
        reached: (F,) bool, positive by the threshold.
        positive: (F,) bool labels; where one is positive though its score is not above the threshold, another rule made it so.
        groups: disjoint (F,) bool masks by what is known of the frames.
    """

    title: str
    quantity: str
    score: np.ndarray
    threshold: np.ndarray
    thresholds: dict[str, float]
    reached: np.ndarray
    positive: np.ndarray
    groups: dict[str, np.ndarray]
    episodes: Episodes

    def by_episode(self, frames: np.ndarray) -> np.ndarray:
        """(E,) mean over the frames of each episode of a quantity (F,)."""
        return np.add.reduceat(frames.astype(np.float64), self.episodes.offsets[:-1]) / self.episodes.length


@dataclasses.dataclass(frozen=True)
class ValueJudgement(Judgement):
    """By a value critic: (F,) float64 ``value`` and ``target``, the return that it should be, both in returns divided by |return_min|."""

    value: np.ndarray
    target: np.ndarray


@dataclasses.dataclass(frozen=True)
class EnsembleJudgement(Judgement):
    """By M progress critics: (F, M) float64 ``members``, each one's score, the least of which is the ensemble's."""

    members: np.ndarray

    @functools.cached_property
    def mean(self) -> np.ndarray:
        return self.members.mean(1)

    @functools.cached_property
    def variance(self) -> np.ndarray:
        """(F,) of the population."""
        return self.members.var(1)


@dataclasses.dataclass(frozen=True)
class Labels:
    """A judgement with the dataset, the threshold file and the sidecar that it was read from; (F,) int64 ``look_ahead``, in frames."""

    judgement: Judgement
    source: Dataset
    fragment: dict[str, Any]
    path: Path
    look_ahead: np.ndarray


def load_labels(experiment: Experiment, dataset: str, tag: str, episodes_path: Path | str, threshold_path: Path | str) -> Labels:
    """Read the labels ``tag`` of ``dataset`` and what they came from.

    Raises:
        UserError: labels, threshold file and, by an ensemble, scores do not belong together or to the dataset as it is now.
    """
    config = experiment.datasets[dataset]
    source = open_dataset(dataset, config.path)
    episodes, fragment = load_episodes(episodes_path, source), read_fragment(threshold_path)
    path = sidecar_path(config, dataset, f"advantages_{tag}")
    judged = _by_scores if is_steam(fragment) else _by_values
    judgement, look_ahead = judged(experiment, f"{tag}, {dataset}", path, episodes, fragment, {"threshold": digest_file(threshold_path)})
    return Labels(judgement, source, fragment, path, look_ahead)


def _by_values(
    experiment: Experiment, title: str, path: Path, episodes: Episodes, fragment: dict[str, Any], inputs: dict[str, str]
) -> tuple[ValueJudgement, np.ndarray]:
    names = ["advantage_continuous", "advantage", "value_current", "return", "num_valid_rewards"]
    columns = read_sidecar(path, "advantages", episodes, names, inputs=inputs).columns
    kind, pool, thresholds = experiment.datasets[episodes.dataset].type, fragment["pool"], fragment["thresholds"]
    frames = scored_frames(episodes, kind, columns["advantage_continuous"], np.ones(episodes.num_frames, bool))
    names = episodes.tasks if pool == "per_task" else [episodes.dataset if pool == "per_dataset" else pool]
    threshold = np.array([thresholds[name] for name in names])[episodes.prompt_codes() if pool == "per_task" else 0]
    scale = ReturnNormalizer(fragment["return_min"])
    judgement = ValueJudgement(
        title=title,
        quantity="advantage, normalised return",
        score=columns["advantage_continuous"],
        threshold=np.broadcast_to(threshold, episodes.num_frames),
        thresholds={f"threshold, {name}" if len(names) > 1 else "threshold": thresholds[name] for name in names},
        reached=reaches_threshold(frames, thresholds, pool),
        positive=columns["advantage"],
        groups=frame_groups(kind, episodes),
        episodes=episodes,
        value=columns["value_current"],
        target=scale.normalize(columns["return"], episodes.prompt_codes(), episodes.tasks),
    )
    return judgement, columns["num_valid_rewards"]


def _by_scores(
    experiment: Experiment, title: str, path: Path, episodes: Episodes, fragment: dict[str, Any], inputs: dict[str, str]
) -> tuple[EnsembleJudgement, np.ndarray]:
    """Members on the scale of the labels: with a baseline, each is a step above it."""
    config = experiment.datasets[episodes.dataset]
    column = "member_values" if fragment["baseline_bin"] is None else "member_expected_bins"
    source = sidecar_path(config, episodes.dataset, f"scores_{fragment['critic']}")
    scores = read_sidecar(source, "scores", episodes, [column, "look_ahead"], inputs={"critic": fragment["critic_digest"]}).columns
    inputs = inputs | {f"scores/{episodes.dataset}": digest_file(source)}
    labels = read_sidecar(path, "advantages", episodes, ["advantage", "advantage_continuous"], inputs=inputs).columns
    members = scores[column]
    if fragment["baseline_bin"] is not None:
        above = (scores_above(fragment["baseline_bin"], member[:, None], fragment["num_bins"]) for member in members.T)
        members = np.stack(list(above), axis=1)
    frames = scored_frames(episodes, config.type, labels["advantage_continuous"], scores["look_ahead"] > 0)
    threshold = threshold_of(config.type, fragment["thresholds"])
    every_one = config.type == "sft" and EXPERT not in fragment["thresholds"]
    judgement = EnsembleJudgement(
        title=title,
        quantity="worst-of-N score",
        score=labels["advantage_continuous"],
        threshold=np.full(episodes.num_frames, threshold),
        thresholds={"threshold of rollouts (here all are positive)" if every_one else "threshold": threshold},
        reached=exceeds_threshold(frames, fragment["thresholds"]),
        positive=labels["advantage"],
        groups=frame_groups(config.type, episodes),
        episodes=episodes,
        members=members,
    )
    return judgement, scores["look_ahead"]
