"""How good a value critic is on held-out frames. NumPy and SciPy only.

Names: ``loss`` cross-entropy in nats; ``mae`` of the expected value, on the critic's scale; ``cat_acc_best`` and ``cat_acc_neighbor``
as RLinf's: the most likely atom is the heavier one, or any, of the target's two-hot atoms; ``spearman`` rank correlation with ties
averaged, over all frames at once. ``success_auc``: area under the ROC curve of the value as a detector of successful episodes, among frames
in the same tenth of their episode's time, so that remaining time alone cannot explain it. A number that does not exist is NaN.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
from scipy.stats import rankdata, spearmanr

from recap_steam.critics.value_head import Support

TENTHS = 10


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a critic says about n frames, all (n,): expected value, most likely atom, cross-entropy of the frame's target."""

    value: np.ndarray
    best_bin: np.ndarray
    loss: np.ndarray


@dataclasses.dataclass(frozen=True)
class JudgedFrames:
    """What is true of n frames, all (n,).

    Attributes:
        target: float64, normalised return.
        success: bool, outcome of the frame's episode.
        task: str, the frame's task text.
        time: float64 in [0, 1), share of the episode that has passed.
    """

    target: np.ndarray
    success: np.ndarray
    task: np.ndarray
    time: np.ndarray


def grouped_metrics(frames: JudgedFrames, predictions: Predictions, support: Support) -> dict[str, float]:
    """``value_metrics`` of all frames; of each outcome (suffix ``/outcome=...``) and, if there are several, of each task
    (``/task=...``); and ``success_auc`` with each tenth of episode time (``/time=0`` to ``/time=9``), of which it is the mean."""
    metrics = value_metrics(frames.target, predictions, support)
    for suffix, hit in _groups(frames):
        columns = (getattr(predictions, field.name)[hit] for field in dataclasses.fields(predictions))
        found = value_metrics(frames.target[hit], Predictions(*columns), support)
        metrics |= {f"{name}/{suffix}": value for name, value in found.items()}
    tenth = np.minimum((frames.time * TENTHS).astype(int), TENTHS - 1)
    areas = [success_auc(frames.success[tenth == k], predictions.value[tenth == k]) for k in range(TENTHS)]
    metrics["success_auc"] = _mean(np.array([area for area in areas if np.isfinite(area)]))
    return metrics | {f"success_auc/time={k}": area for k, area in enumerate(areas)}


def value_metrics(targets: np.ndarray, predictions: Predictions, support: Support) -> dict[str, float]:
    """Metrics of ``predictions`` against normalised returns ``targets`` (n,); all NaN if n is 0."""
    lower, weight = support.two_hot(targets)
    heavier = lower + (weight > 0.5)
    near = ((predictions.best_bin == lower) & (weight < 1)) | ((predictions.best_bin == lower + 1) & (weight > 0))
    return {
        "loss": _mean(predictions.loss),
        "mae": _mean(np.abs(predictions.value - targets)),
        "cat_acc_best": _mean(predictions.best_bin == heavier),
        "cat_acc_neighbor": _mean(near),
        "spearman": spearman(targets, predictions.value),
    }


def calibration(targets: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Mean prediction and mean target in each tenth of the predictions ``values`` (n,), in ascending order."""
    parts = np.array_split(np.argsort(values, kind="stable"), TENTHS)
    sides = {"value": values, "return": targets}
    return {f"calibration_{name}/decile={k}": _mean(side[part]) for name, side in sides.items() for k, part in enumerate(parts)}


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation with ties averaged; NaN where one side is constant or there are fewer than two frames."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def success_auc(success: np.ndarray, values: np.ndarray) -> float:
    """Probability that a frame of a success has a higher value than one of a failure, ties counting half; NaN without both."""
    positive, negative = int(success.sum()), int((~success).sum())
    if not positive or not negative:
        return float("nan")
    above = rankdata(values)[success].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def _groups(frames: JudgedFrames) -> Iterator[tuple[str, np.ndarray]]:
    yield "outcome=success", frames.success
    yield "outcome=failure", ~frames.success
    tasks = np.unique(frames.task)
    if len(tasks) > 1:
        yield from ((f"task={task}", frames.task == task) for task in tasks)


def _mean(numbers: np.ndarray) -> float:
    return float(np.mean(numbers)) if len(numbers) else float("nan")
