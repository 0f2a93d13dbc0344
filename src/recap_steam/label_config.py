"""Labels as an experiment describes them, by the kind of critic that judges the frames, and which episodes are shown with theirs."""

import dataclasses


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
class DiagnosticsConfig:
    """Which episodes are shown frame by frame."""

    num_episodes: int
    seed: int
