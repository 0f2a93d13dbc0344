"""The report's figures. One style: readable in print and for the colour-blind (Okabe-Ito palette), every axis labelled with its unit."""

import dataclasses
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

BLACK, BLUE, SKY, GREEN, ORANGE, VERMILION, GREY = "#222222", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#8A8F98"
CYCLE = (BLUE, VERMILION, GREEN, ORANGE, SKY, GREY)
GROUPS = {"demonstration": GREY, "success": BLUE, "failure": VERMILION, "intervention": GREEN}
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": BLACK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E8EB",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}
styled = matplotlib.rc_context(STYLE)  # a decorator: the style holds inside the function only
WIDTH = 9.0  # inches: 1350 pixels, the width of the page on a dense display


@dataclasses.dataclass(frozen=True)
class ArmPoint:
    """One arm's success rate with its interval, all in [0, 1]."""

    label: str
    rate: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class ValueCurve:
    """One episode under one critic: (T,) ``value``, ``target`` (normalised return) and ``intervention``.

    ``frames`` (n, S, S, 3) uint8, or None, shows the steps ``frame_steps`` (n,).
    """

    title: str
    value: np.ndarray
    target: np.ndarray
    intervention: np.ndarray
    frames: np.ndarray | None
    frame_steps: np.ndarray


@dataclasses.dataclass(frozen=True)
class AdvantageHistogram:
    """One tag's advantages (normalised return, no unit) by group of frames, and the thresholds of its pools."""

    tag: str
    groups: dict[str, np.ndarray]
    thresholds: dict[str, float]


@dataclasses.dataclass(frozen=True)
class PositiveRates:
    """Share of frames labelled positive, by tag, dataset and group: ``rates[(dataset, group)] = (share, frames)``."""

    tag: str
    rates: dict[tuple[str, str], tuple[float, int]]


@dataclasses.dataclass(frozen=True)
class TrainingCurve:
    """One logged quantity over optimiser steps."""

    label: str
    steps: np.ndarray
    values: np.ndarray


@styled
def draw_success(path: Path, evaluations: dict[str, list[ArmPoint]]) -> None:
    """Success rate of every arm with its 95 % interval, one panel an evaluation; the dashed line is the reference arm."""
    if not evaluations:
        return _draw_nothing(path, "No evaluation in this experiment")
    arms = [len(points) for points in evaluations.values()]
    figure = _figure(0.45 * sum(arms) + 0.9 * len(arms) + 0.3)
    axes = figure.subplots(len(arms), 1, squeeze=False, height_ratios=arms)[:, 0]
    for axis, (tag, points) in zip(axes, evaluations.items(), strict=True):
        axis.axvline(100 * points[0].rate, color=GREY, linestyle="--", linewidth=1)
        for row, point in enumerate(points):
            color = GREY if row == 0 else BLUE
            axis.plot([100 * point.low, 100 * point.high], [row, row], color=color, linewidth=2.5, solid_capstyle="round")
            axis.plot(100 * point.rate, row, "o", color=color, markersize=8, clip_on=False)
        axis.set(title=tag, xlim=(0, 100), ylim=(len(points) - 0.5, -0.5))
        axis.set_yticks(range(len(points)), [point.label for point in points])
        axis.grid(axis="y", visible=False)
    axes[-1].set_xlabel("success rate, % of initial states (bar: Wilson 95 % interval)")
    _save(figure, path)


@styled
def draw_values(path: Path, curves: dict[str, list[ValueCurve]]) -> None:
    """Value and target over time, one row a critic, one column an episode, with a few camera frames above."""
    if not curves:
        return _draw_nothing(path, "No values in this experiment")
    columns = max(len(row) for row in curves.values())
    figure = _figure(3.6 * len(curves), width=WIDTH if columns > 1 else WIDTH / 1.6)
    panels = figure.subfigures(len(curves), columns, squeeze=False)
    for row, (critic, episodes) in zip(panels, curves.items(), strict=True):
        low = min(min(curve.value.min(), curve.target.min()) for curve in episodes)
        for panel, curve in zip(row, episodes, strict=False):
            _draw_value_panel(panel, curve, f"{critic}: {curve.title}", (min(low, -0.1) * 1.05, 0.05))
    _save(figure, path)


def _draw_value_panel(panel: SubFigure, curve: ValueCurve, title: str, limits: tuple[float, float]) -> None:
    steps = np.arange(len(curve.value))
    if curve.frames is None:
        top = axis = panel.subplots()
    else:
        top, axis = panel.subplots(2, 1, height_ratios=[1, 2.6])
        _draw_strip(top, curve)
    top.set_title(title)
    axis.plot(steps, curve.target, color=GREY, linestyle="--", linewidth=1.5, label="return (target)")
    axis.plot(steps, curve.value, color=BLUE, linewidth=2, label="value")
    _shade(axis, curve.intervention)
    axis.set(xlabel="frame of the episode", ylabel="normalised return", xlim=(-0.5, len(steps) - 0.5), ylim=limits)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(loc="best")


def _draw_strip(axis: Axes, curve: ValueCurve) -> None:
    axis.axis("off")
    gap = max(1, curve.frames.shape[2] // 20)
    padded = np.pad(curve.frames, ((0, 0), (0, 0), (0, gap), (0, 0)), constant_values=255)
    strip = np.concatenate(list(padded), axis=1)[:, :-gap]
    axis.imshow(strip, aspect="equal")
    middles = np.arange(len(curve.frames)) * padded.shape[2] + curve.frames.shape[2] / 2
    for middle, step in zip(middles, curve.frame_steps, strict=True):
        axis.text(middle, strip.shape[0] * 1.06, str(step), ha="center", va="top", fontsize=8, color=GREY)


def _shade(axis: Axes, intervention: np.ndarray) -> None:
    """Shade runs of intervention frames."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], intervention.astype(np.int8), [0]])))
    for number, (start, stop) in enumerate(edges.reshape(-1, 2)):
        axis.axvspan(start - 0.5, stop - 0.5, color=GREEN, alpha=0.15, linewidth=0, label="intervention" if number == 0 else None)


@styled
def draw_advantages(path: Path, histograms: list[AdvantageHistogram]) -> None:
    """Distribution of the advantage by group of frames, one panel a tag; the vertical line is the label threshold."""
    if not histograms:
        return _draw_nothing(path, "No advantages in this experiment")
    figure = _figure(2.9 * len(histograms))
    axes = figure.subplots(len(histograms), 1, squeeze=False)[:, 0]
    for axis, histogram in zip(axes, histograms, strict=True):
        pooled = np.concatenate(list(histogram.groups.values()))
        low, high = np.percentile(pooled, [0.5, 99.5])
        margin = max(0.05 * (high - low), 1e-6)
        bins = np.linspace(low - margin, high + margin, 61)
        for group, values in histogram.groups.items():
            share, _ = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
            axis.stairs(100 * share / len(pooled), bins, linewidth=1.8, color=GROUPS[group], label=group)
        for number, (pool, threshold) in enumerate(histogram.thresholds.items()):
            label = f"threshold, {pool}" if len(histogram.thresholds) < 6 else ("thresholds" if number == 0 else None)
            axis.axvline(threshold, color=BLACK, linestyle=("--", ":", "-.")[number % 3], linewidth=1.2, label=label)
        axis.set(title=histogram.tag, ylabel="share of all frames, %", xlim=(bins[0], bins[-1]))
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[-1].set_xlabel("advantage, normalised return (the outer bins hold the 0.5 % beyond each end)")
    _save(figure, path)


@styled
def draw_positive_rate(path: Path, tags: list[PositiveRates]) -> None:
    """Share of positive labels by dataset and outcome, one panel a tag."""
    if not tags:
        return _draw_nothing(path, "No labels in this experiment")
    figure = _figure(sum(0.7 + 0.34 * len(tag.rates) for tag in tags) + 0.5)
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
    _save(figure, path)


@styled
def draw_training(path: Path, panels: dict[str, list[TrainingCurve]]) -> None:
    """Logged quantities over optimiser steps, one panel a quantity."""
    if not panels:
        return _draw_nothing(path, "No training in this experiment")
    rows = -(-len(panels) // 2)
    figure = _figure(2.7 * rows)
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for axis, (title, curves) in zip(axes, panels.items(), strict=False):
        for number, curve in enumerate(curves):
            style = {"color": CYCLE[number % len(CYCLE)], "marker": "o" if len(curve.steps) < 15 else None, "markersize": 4}
            axis.plot(curve.steps, curve.values, linewidth=1.6, label=curve.label, **style)
        axis.set(title=title, xlabel="optimiser step")
        axis.legend(loc="best")
    for axis in axes[len(panels) :]:
        axis.axis("off")
    _save(figure, path)


def _figure(height: float, width: float = WIDTH) -> Figure:
    return Figure(figsize=(width, height))  # no pyplot: no global state, no display


@styled
def _draw_nothing(path: Path, message: str) -> None:
    """The figure is a declared output, so it exists even when there is nothing to show."""
    figure = _figure(1.0)
    figure.text(0.5, 0.5, message, ha="center", va="center", color=GREY)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    # no software version or date in the file: the same results give the same bytes
    figure.savefig(path, format="png", metadata={"Software": None})
