"""What the labels of every tag are made of: rates over the time of an episode, forced labels, how firm a threshold is, agreement."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from recap_steam.dataset.episodes import Episodes
from recap_steam.label_config import AdvantagesConfig, ImportedAdvantagesConfig, SteamAdvantagesConfig
from recap_steam.labels.scores import EXPERT, ROLLOUT
from recap_steam.report.label_statistics import Members, agreement, threshold_interval
from recap_steam.report.results import Results

Labels = AdvantagesConfig | SteamAdvantagesConfig | ImportedAdvantagesConfig
TENTHS = 10  # of an episode's time


@dataclasses.dataclass(frozen=True)
class LabelledDataset:
    """The frames of one dataset under one tag: (F,) ``positive`` bool, ``score`` float64 and ``judged`` bool; (F,) ``episode`` position.

    ``num_above``: frames that their score made positive; the other positive ones were forced to be.
    """

    name: str
    type: str
    episodes: Episodes
    positive: np.ndarray
    score: np.ndarray
    judged: np.ndarray
    num_above: int

    @functools.cached_property
    def episode(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.episodes.length)), self.episodes.length)

    @functools.cached_property
    def tenth(self) -> np.ndarray:
        """(F,) int: the tenth of its episode that a frame lies in."""
        step = np.arange(len(self.positive)) - self.episodes.offsets[self.episode]
        return TENTHS * step // self.episodes.length[self.episode]

    @functools.cached_property
    def intervention(self) -> np.ndarray:
        return self.episodes.interventions()

    def outcomes(self) -> dict[str, np.ndarray]:
        """(F,) bool masks by what came of the episodes, where there are any."""
        if self.type == "sft":
            return {"demonstration": np.ones(len(self.positive), bool)}
        success = self.episodes.row_success()
        return {name: mask for name, mask in (("success", success), ("failure", ~success)) if mask.any()}

    def rates(self, mask: np.ndarray) -> np.ndarray:
        """(TENTHS,) share of positive frames among those of ``mask`` in each tenth; NaN where there is none."""
        frames = np.bincount(self.tenth[mask], minlength=TENTHS)
        positive = np.bincount(self.tenth[mask & self.positive], minlength=TENTHS)
        return np.divide(positive, frames, out=np.full(TENTHS, np.nan), where=frames > 0)


@dataclasses.dataclass(frozen=True)
class LabelReport:
    """One tag. ``thresholds`` by pool, task text or dataset name; ``intervals``: their 95 % intervals, where they are quantiles."""

    tag: str
    config: Labels
    datasets: list[LabelledDataset]
    thresholds: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    @property
    def imported(self) -> bool:
        """Whether another tool made the labels: then they are all there is, and stand for scores."""
        return isinstance(self.config, ImportedAdvantagesConfig)

    @property
    def asked(self) -> float | None:
        """The share of positive rollout frames that was asked for; None where a threshold was given, or nothing is known."""
        config = self.config
        if self.imported:
            return None
        return config.rollout_quantile if isinstance(config, SteamAdvantagesConfig) else config.positive_quantile

    def rollouts(self) -> list[LabelledDataset]:
        return [dataset for dataset in self.datasets if dataset.type == "rollout"]


def label_reports(results: Results) -> list[LabelReport]:
    """Of every tag that has labels, in the order of the experiment."""
    return [report for tag in results.experiment.advantages if (report := _label_report(results, tag)).datasets]


def _label_report(results: Results, tag: str) -> LabelReport:
    config = results.experiment.advantages[tag]
    datasets = [dataset for name in config.datasets if (dataset := _labelled(results, tag, name)) is not None]
    thresholds = results.thresholds(tag)
    intervals = {}
    for pool, share, members in _pools(config, datasets):
        if pool in thresholds and any(len(score) for score, _ in members):
            intervals[pool] = threshold_interval(members, share)
    return LabelReport(tag, config, datasets, thresholds, intervals)


def _labelled(results: Results, tag: str, name: str) -> LabelledDataset | None:
    config, episodes = results.experiment.advantages[tag], results.episodes(name)
    column = "advantage" if isinstance(config, ImportedAdvantagesConfig) else "advantage_continuous"
    labels = results.sidecar(name, "advantages", tag, sorted({"advantage", column}))
    if labels is None:
        return None
    positive, score = labels.columns["advantage"], labels.columns[column].astype(np.float64)
    judged, scores = np.ones(len(positive), bool), None
    if isinstance(config, SteamAdvantagesConfig):
        scores = results.sidecar(name, "scores", config.critic, ["look_ahead"])
    if scores is not None:
        judged = scores.columns["look_ahead"] > 0
    counts = [row for row in results.positive_counts(tag) if row["dataset"] == name]
    above = sum(row["num_above_threshold"] for row in counts) if counts else int(positive.sum())
    return LabelledDataset(name, results.experiment.datasets[name].type, episodes, positive, score, judged, above)


def _pools(config: Labels, datasets: list[LabelledDataset]) -> Iterator[tuple[str, float, Members]]:
    """(name, share of positives, frames) of every pool whose quantile is a threshold; none of imported labels."""
    if isinstance(config, ImportedAdvantagesConfig):
        return

    def members(chosen: Callable[[LabelledDataset], np.ndarray]) -> Members:
        return [(dataset.score[mask], dataset.episode[mask]) for dataset in datasets if (mask := chosen(dataset) & dataset.judged).any()]

    if isinstance(config, SteamAdvantagesConfig):
        if config.label_mode == "quantile":
            for pool, kind, share in ((ROLLOUT, "rollout", config.rollout_quantile), (EXPERT, "sft", config.expert_quantile)):
                if share is not None:
                    yield pool, share, members(lambda dataset, kind=kind: np.full(len(dataset.score), dataset.type == kind))
    elif config.pool in ("all", "rollout"):
        yield config.pool, config.positive_quantile, members(lambda d: np.full(len(d.score), d.type == "rollout" or config.pool == "all"))
    elif config.pool == "per_dataset":
        for name in (dataset.name for dataset in datasets):
            yield name, config.positive_quantile, members(lambda dataset, name=name: np.full(len(dataset.score), dataset.name == name))
    else:
        for task in sorted({task for dataset in datasets for task in dataset.episodes.tasks}):
            yield task, config.positive_quantile, members(lambda dataset, task=task: _of_task(dataset.episodes, task))


def _of_task(episodes: Episodes, task: str) -> np.ndarray:
    """(F,) bool: the frames of a task."""
    return episodes.prompt_codes() == (episodes.tasks.index(task) if task in episodes.tasks else -1)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Two tags on the ``frames`` whose labels neither forces: share of equal labels, and Cohen's kappa (NaN where it has no meaning)."""

    first: str
    second: str
    frames: int
    equal: float
    kappa: float


def agreements(reports: list[LabelReport]) -> list[Agreement]:
    """Of every pair of tags that label the same rollouts, without the interventions there."""
    return [found for pair in itertools.combinations(reports, 2) if (found := _agreement(*pair)) is not None]


def _agreement(first: LabelReport, second: LabelReport) -> Agreement | None:
    others = {dataset.name: dataset for dataset in second.rollouts()}
    pairs = [(dataset, others[dataset.name]) for dataset in first.rollouts() if dataset.name in others]
    if not pairs:
        return None
    one, two = (np.concatenate([pair[side].positive[~pair[side].intervention] for pair in pairs]) for side in (0, 1))
    return Agreement(first.tag, second.tag, len(one), *agreement(one, two)) if len(one) else None
