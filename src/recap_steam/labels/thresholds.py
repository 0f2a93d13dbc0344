"""Which advantages count as positive : the quantile over a pool of frames, the labels, and the rates that came out."""

import dataclasses

import numpy as np

from recap_steam.dataset.episodes import Episodes
from recap_steam.errors import UserError

OUTCOMES = ("failure", "success")
Thresholds = dict[str, float]  # {pool: threshold} for pools all and rollout; by task text or dataset name for per_task and per_dataset


@dataclasses.dataclass(frozen=True)
class ScoredFrames:
    """The frames of one dataset with their advantages; arrays are (F,) in row order.

    Attributes:
        type: ``sft`` or ``rollout``.
        advantage: float64.
        prompt_codes: int, index into ``tasks``.
        success: bool, the outcome of the frame's episode.
        intervention: bool, a human or expert corrected the policy here.
        judged: bool, the critic could judge the frame. An advantage can always be computed, a score needs a full look-ahead.
    """

    name: str
    type: str
    advantage: np.ndarray
    prompt_codes: np.ndarray
    tasks: list[str]
    success: np.ndarray
    intervention: np.ndarray
    judged: np.ndarray


def scored_frames(episodes: Episodes, dataset_type: str, advantage: np.ndarray, judged: np.ndarray) -> ScoredFrames:
    """Return the frames of a dataset as the thresholds see them."""
    return ScoredFrames(
        name=episodes.dataset,
        type=dataset_type,
        advantage=advantage,
        prompt_codes=episodes.prompt_codes(),
        tasks=episodes.tasks,
        success=episodes.row_success(),
        intervention=episodes.interventions(),
        judged=judged,
    )


def pool_thresholds(datasets: list[ScoredFrames], pool: str, positive_quantile: float) -> Thresholds:
    """Return the advantage that a frame must reach to be positive: the (1 - positive_quantile) quantile, linearly interpolated.

    Args:
        pool: ``all`` frames (RLinf), those of ``rollout`` datasets, or one threshold ``per_task`` or ``per_dataset``.

    Raises:
        UserError: the pool is empty.
    """
    if pool == "rollout":
        datasets = [frames for frames in datasets if frames.type == "rollout"]
        if not datasets:
            raise UserError("pool 'rollout' is empty: none of the datasets has type rollout; add one, or set pool to all")
    if pool in ("all", "rollout"):
        groups = {pool: np.concatenate([frames.advantage for frames in datasets])}
    else:
        groups = _by_task(datasets) if pool == "per_task" else {frames.name: frames.advantage for frames in datasets}
    return {name: quantile_threshold(advantages, positive_quantile) for name, advantages in groups.items()}


def reaches_threshold(frames: ScoredFrames, thresholds: Thresholds, pool: str) -> np.ndarray:
    """Return (F,) bool: ``advantage >= threshold``. Ties count as positive, as in RLinf, so the share can exceed the quantile."""
    if pool == "per_task":
        return frames.advantage >= np.array([thresholds[task] for task in frames.tasks])[frames.prompt_codes]
    return frames.advantage >= thresholds[frames.name if pool == "per_dataset" else pool]


def positive_labels(frames: ScoredFrames, thresholds: Thresholds, pool: str, intervention_positive: bool) -> np.ndarray:
    """Return (F,) bool labels: frames that reach the threshold, every frame of an ``sft`` dataset and, by option, corrections."""
    if frames.type == "sft":
        return np.ones(len(frames.advantage), bool)
    reached = reaches_threshold(frames, thresholds, pool)
    return reached | frames.intervention if intervention_positive else reached


def positive_counts(frames: ScoredFrames, reached: np.ndarray, labels: np.ndarray) -> list[dict]:
    """Return per outcome that occurs: frames, frames that reached the threshold (F,), positive frames (labels (F,)) and their share."""
    rows = []
    for code, outcome in enumerate(OUTCOMES):
        of_outcome = frames.success == bool(code)
        total, positive = int(of_outcome.sum()), int(labels[of_outcome].sum())
        if total:
            above = int(reached[of_outcome].sum())
            row = {"dataset": frames.name, "type": frames.type, "outcome": outcome, "num_frames": total}
            rows.append(row | {"num_above_threshold": above, "num_positive": positive, "positive_rate": positive / total})
    return rows


def quantile_threshold(advantages: np.ndarray, positive_quantile: float) -> float:
    """Return the (1 - positive_quantile) quantile of a pool, linearly interpolated."""
    return float(np.percentile(advantages, (1.0 - positive_quantile) * 100.0, method="linear"))


def _by_task(datasets: list[ScoredFrames]) -> dict[str, np.ndarray]:
    """Return the advantages of every task that has frames, by task text, over all datasets."""
    parts: dict[str, list[np.ndarray]] = {}
    for frames in datasets:
        order = np.argsort(frames.prompt_codes, kind="stable")
        bounds = np.cumsum(np.bincount(frames.prompt_codes, minlength=len(frames.tasks)))
        for task, advantages in zip(frames.tasks, np.split(frames.advantage[order], bounds[:-1]), strict=True):
            if len(advantages):
                parts.setdefault(task, []).append(advantages)
    return {task: np.concatenate(pieces) for task, pieces in sorted(parts.items())}
