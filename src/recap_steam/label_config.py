"""Returns and labels as an experiment describes them: computed, by the kind of critic that judges the frames, or imported; and which
episodes are shown with their labels."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ReturnsConfig:
    gamma: float
    failure_reward: float


@dataclasses.dataclass(frozen=True)
class AdvantagesConfig:
    """Labels by the advantages of a value critic."""

    critic: str
    datasets: list[str]
    advantage_lookahead_step: int
    discount_next_value: bool
    positive_quantile: float
    pool: str
    intervention_positive: bool


@dataclasses.dataclass(frozen=True)
class SteamAdvantagesConfig:
    """Labels by the scores of an ensemble of progress critics."""

    critic: str
    datasets: list[str]
    label_mode: str
    positive_threshold: float | None
    rollout_quantile: float | None
    expert_quantile: float | None
    subtract_baseline: bool
    baseline_lookahead: int | None
    intervention_positive: bool


@dataclasses.dataclass(frozen=True)
class ImportConfig:
    """Where numbers are that another tool made: in its sidecar of a tag, or in a column of the dataset; the other is None."""

    sidecar: str | None
    column: str | None


@dataclasses.dataclass(frozen=True)
class ImportedReturnsConfig:
    """Returns that another tool made, discounted by ``gamma``."""

    imported: ImportConfig
    datasets: list[str]
    gamma: float


@dataclasses.dataclass(frozen=True)
class ImportedAdvantagesConfig:
    """Labels that another tool made; no critic of this experiment judged the frames."""

    imported: ImportConfig
    datasets: list[str]


@dataclasses.dataclass(frozen=True)
class DiagnosticsConfig:
    """Which episodes are shown frame by frame."""

    num_episodes: int
    seed: int
