"""One episode under one label tag: what the critic said and what became of it, over time. Summaries and videos draw the same two panels."""

import dataclasses

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from recap_steam.report.judgement import EnsembleJudgement, ValueJudgement
from recap_steam.report.style import BLACK, BLUE, GREEN, GREY, SKY


@dataclasses.dataclass(frozen=True)
class EpisodeCurves:
    """One episode of T frames.

    Attributes:
        title: tag, dataset, episode and outcome.
        task: text of its first frame.
        fps: frames per second.
        quantity: what labels are drawn from, with its unit.
        lines: what the critic said, by name: (T,) value and return, or the mean score of the members.
        unit: of ``lines``.
        band: (2, T) least and greatest member, or None.
        score, threshold: (T,).
        reached, positive, intervention: (T,) bool.
        limits: of ``score`` and of ``lines``, over the whole dataset, so that its episodes can be compared.
    """

    title: str
    task: str
    fps: float
    quantity: str
    lines: dict[str, np.ndarray]
    unit: str
    band: np.ndarray | None
    score: np.ndarray
    threshold: np.ndarray
    reached: np.ndarray
    positive: np.ndarray
    intervention: np.ndarray
    limits: dict[str, tuple[float, float]]


def episode_curves(judgement: ValueJudgement | EnsembleJudgement, fps: float, position: int) -> EpisodeCurves:
    """The curves of the episode at ``position``."""
    episodes = judgement.episodes
    rows = slice(int(episodes.offsets[position]), int(episodes.offsets[position + 1]))
    outcome = "success" if episodes.success[position] else "failure"
    lines, unit, members = _said(judgement)
    said = np.concatenate([*lines.values(), *([members.min(1), members.max(1)] if members is not None else [])])
    return EpisodeCurves(
        title=f"{judgement.title}: episode {episodes.episode_index[position]}, {outcome}",
        task=episodes.tasks[episodes.prompt_codes()[rows.start]],
        fps=fps,
        quantity=judgement.quantity,
        lines={name: line[rows] for name, line in lines.items()},
        unit=unit,
        band=None if members is None else np.stack([members[rows].min(1), members[rows].max(1)]),
        score=judgement.score[rows],
        threshold=judgement.threshold[rows],
        reached=judgement.reached[rows],
        positive=judgement.positive[rows],
        intervention=episodes.interventions()[rows],
        limits={"score": _limits(np.concatenate([judgement.score, judgement.threshold])), "lines": _limits(said)},
    )


def _said(judgement: ValueJudgement | EnsembleJudgement) -> tuple[dict[str, np.ndarray], str, np.ndarray | None]:
    """Lines of all frames by name, their unit, and the members of an ensemble."""
    if isinstance(judgement, EnsembleJudgement):
        return {"mean of the members": judgement.mean}, "score", judgement.members
    return {"value": judgement.value, "return": judgement.target}, "normalised return", None


def _limits(values: np.ndarray) -> tuple[float, float]:
    margin = max(0.06 * np.ptp(values), 1e-3)
    return float(values.min() - margin), float(values.max() + margin)


def draw_curves(upper: Axes, lower: Axes, curves: EpisodeCurves) -> None:
    """What the critic said into ``upper``, what labels are drawn from into ``lower``, both over the frames of the episode."""
    steps = np.arange(len(curves.score))
    hatched = {"facecolor": "#F3F4F5", "edgecolor": "#C9CDD2", "hatch": "///"}
    _span(upper, curves.intervention, "intervention", **hatched)
    if curves.band is not None:
        upper.fill_between(steps, *curves.band, color=SKY, alpha=0.4, linewidth=0, label="least to greatest member")
    styles = ({"color": BLUE, "linewidth": 1.8}, {"color": GREY, "linewidth": 1.4, "linestyle": "--"})
    for style, (name, line) in zip(styles, curves.lines.items(), strict=False):
        upper.plot(steps, line, label=name, **style)
    upper.set(ylabel=curves.unit, ylim=curves.limits["lines"])
    upper.tick_params(labelbottom=False)
    _span(lower, curves.intervention, None, **hatched)
    _span(lower, curves.reached, "above the threshold", color=GREEN, alpha=0.25)
    lower.plot(steps, curves.score, color=BLACK, linewidth=1.4, marker="." if len(steps) < 80 else None, markersize=4)
    lower.plot(steps, curves.threshold, color=GREY, linestyle="--", linewidth=1.2, label="threshold")
    _span(lower, curves.positive, "labelled positive", ymax=0.05, color=BLACK, zorder=3)
    lower.set(ylabel=curves.quantity.replace(", ", ",\n"), ylim=curves.limits["score"])
    lower.set_xlabel(f"frame of the episode ({curves.fps:g} a second)")
    for axis in (upper, lower):
        axis.set_xlim(-0.5, len(steps) - 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(loc="lower left", bbox_to_anchor=(0, 0.97), ncols=4, fontsize=8, borderaxespad=0, columnspacing=1.2)


def _span(axis: Axes, mask: np.ndarray, label: str | None, ymax: float = 1.0, **style: object) -> None:
    """Fill runs of frames, up to the share ``ymax`` of the height."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    for number, (start, stop) in enumerate(edges.reshape(-1, 2)):
        axis.axvspan(start - 0.5, stop - 0.5, 0, ymax, **{"linewidth": 0, "zorder": 0.5} | style, label=label if number == 0 else None)
