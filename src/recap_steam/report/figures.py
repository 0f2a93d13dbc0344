"""Figures of evaluations and labels. Every axis is labelled with its unit."""

import dataclasses
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from recap_steam.report.style import BLACK, BLUE, GREY, GROUP_LINES, GROUPS, SKY, as_written, draw_nothing, new_figure, save, styled


@dataclasses.dataclass(frozen=True)
class ArmPoint:
    """One arm's success rate with its interval, all in [0, 1]; ``control``: its labels are no labels; ``replicates``: the rates that it is
    pooled from, if it is."""

    label: str
    rate: float
    low: float
    high: float
    control: bool = False
    replicates: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class ScoreHistogram:
    """What the labels of one tag are drawn from by group of frames: advantages or scores, named by ``quantity``; and its thresholds."""

    title: str
    groups: dict[str, np.ndarray]
    thresholds: dict[str, float]
    quantity: str


@dataclasses.dataclass(frozen=True)
class PositiveRates:
    """Share of frames labelled positive, by tag, dataset and group: ``rates[(dataset, group)] = (share, frames)``."""

    tag: str
    rates: dict[tuple[str, str], tuple[float, int]]


@styled
def draw_success(path: Path, evaluations: dict[str, list[ArmPoint]]) -> None:
    """Success rate of every arm with its 95 % interval, one panel an evaluation; the dashed line is the reference arm."""
    if not evaluations:
        return draw_nothing(path, "No evaluation in this experiment")
    arms = [len(points) for points in evaluations.values()]
    figure = new_figure(0.45 * sum(arms) + 0.9 * len(arms) + 0.3)
    axes = figure.subplots(len(arms), 1, squeeze=False, height_ratios=arms)[:, 0]
    for axis, (tag, points) in zip(axes, evaluations.items(), strict=True):
        axis.axvline(100 * points[0].rate, color=GREY, linestyle="--", linewidth=1)
        for row, point in enumerate(points):
            color = GREY if row == 0 else SKY if point.control else BLUE
            axis.plot([100 * point.low, 100 * point.high], [row, row], color=color, linewidth=2.5, solid_capstyle="round")
            axis.plot(100 * point.rate, row, "o", color=color, markersize=8, clip_on=False)
            for rate in point.replicates:
                axis.plot(100 * rate, row + 0.25, "o", markerfacecolor="none", markeredgecolor=BLACK, markersize=4, clip_on=False)
        axis.set(title=tag, xlim=(0, 100), ylim=(len(points) - 0.5, -0.5))
        axis.set_yticks(range(len(points)), [point.label for point in points])
        axis.grid(axis="y", visible=False)
    shown = [point for points in evaluations.values() for point in points]
    controls = "; light: controls" if any(point.control for point in shown) else ""
    singles = "; rings: single replicates" if any(point.replicates for point in shown) else ""
    axes[-1].set_xlabel(f"success rate, % (bar: Wilson 95 % interval{controls}{singles})")
    save(figure, path)


@styled
def draw_advantages(path: Path, histograms: list[ScoreHistogram]) -> None:
    """Distribution of the advantage or score by group of frames, one panel a tag; the vertical line is the label threshold."""
    if not histograms:
        return draw_nothing(path, "No advantages in this experiment")
    figure = new_figure(3.1 * len(histograms))
    axes = figure.subplots(len(histograms), 1, squeeze=False)[:, 0]
    for axis, histogram in zip(axes, histograms, strict=True):
        draw_histogram(axis, histogram)
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def draw_histogram(axis: Axes, histogram: ScoreHistogram) -> None:
    """Share of all frames by group, and the thresholds."""
    pooled = np.concatenate(list(histogram.groups.values()))
    low, high = np.percentile(pooled, [0.5, 99.5])
    margin = max(0.05 * (high - low), 1e-6)
    bins = np.linspace(low - margin, high + margin, 61)
    for group, values in histogram.groups.items():
        share, _ = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
        axis.stairs(100 * share / len(pooled), bins, linewidth=1.8, color=GROUPS[group], linestyle=GROUP_LINES[group], label=group)
    for number, (pool, threshold) in enumerate(histogram.thresholds.items()):
        label = as_written(pool, 40) if len(histogram.thresholds) < 6 else ("thresholds" if number == 0 else None)
        axis.axvline(threshold, color=BLACK, linestyle=("--", ":", "-.")[number % 3], linewidth=1.2, label=label)
    axis.set(title=histogram.title, ylabel="share of all frames, %", xlim=(bins[0], bins[-1]))
    axis.set_xlabel(f"{histogram.quantity} (the outer bins hold the 0.5 % beyond each end)")


@styled
def draw_positive_rate(path: Path, tags: list[PositiveRates]) -> None:
    """Share of positive labels by dataset and outcome, one panel a tag."""
    if not tags:
        return draw_nothing(path, "No labels in this experiment")
    figure = new_figure(sum(0.7 + 0.34 * len(tag.rates) for tag in tags) + 0.5)
    axes = figure.subplots(len(tags), 1, squeeze=False, height_ratios=[len(tag.rates) + 1 for tag in tags])[:, 0]
    for axis, tag in zip(axes, tags, strict=True):
        for row, ((_, group), (share, frames)) in enumerate(tag.rates.items()):
            axis.barh(row, 100 * share, color=GROUPS[group], height=0.7)
            axis.text(100 * share + 1, row, f"{100 * share:.0f} % of {frames:,} frames", va="center", fontsize=9)
        labels = [f"{dataset}, {group}" for dataset, group in tag.rates]
        axis.set(title=tag.tag, xlim=(0, 125), ylim=(len(labels) - 0.4, -0.6), xticks=range(0, 101, 20))
        axis.set_yticks(range(len(labels)), labels)
        axis.grid(axis="y", visible=False)
    axes[-1].set_xlabel("frames labelled positive, %")
    save(figure, path)
