"""Figures of what was trained: critics judged on held-out frames, and learning curves. Every axis is labelled with its unit."""

import dataclasses
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from recap_steam.report.style import BLUE, CYCLE, GREEN, GREY, LINES, WIDTH, draw_nothing, new_figure, save, styled


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
class CriticCurves:
    """A critic on held-out frames.

    Attributes:
        value, target: mean prediction and mean normalised return in each tenth of predicted value, (10,) each.
        success_auc: by predictor, the area under the ROC curve of its value for success in each tenth of episode time, (10,) each;
            NaN where only one outcome is left.
    """

    tag: str
    value: np.ndarray
    target: np.ndarray
    success_auc: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TrainingCurve:
    """One logged quantity over optimiser steps."""

    label: str
    steps: np.ndarray
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class TrainingPanel:
    """Logged quantities of one unit."""

    title: str
    unit: str
    curves: list[TrainingCurve]


@styled
def draw_values(path: Path, curves: dict[str, list[ValueCurve]]) -> None:
    """Value and target over time, one row a critic, one column an episode, with a few camera frames above."""
    if not curves:
        return draw_nothing(path, "No values in this experiment")
    columns = max(len(row) for row in curves.values())
    figure = new_figure(3.6 * len(curves), width=WIDTH if columns > 1 else WIDTH / 1.6)
    panels = figure.subfigures(len(curves), columns, squeeze=False)
    for row, (critic, episodes) in zip(panels, curves.items(), strict=True):
        shown = np.concatenate([line for curve in episodes for line in (curve.value, curve.target)])
        margin = max(0.05 * np.ptp(shown), 0.005)
        for panel, curve in zip(row, episodes, strict=False):
            _draw_value_panel(panel, curve, f"{critic}: {curve.title}", (shown.min() - margin, shown.max() + margin))
    save(figure, path)


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
def draw_critics(path: Path, critics: list[CriticCurves]) -> None:
    """Calibration, and how well the value tells successes from failures as an episode goes on; one row a critic."""
    if not critics:
        return draw_nothing(path, "No critic with held-out data in this experiment")
    figure = new_figure(3.8 * len(critics))
    axes = figure.subplots(len(critics), 2, squeeze=False)
    for (left, right), critic in zip(axes, critics, strict=True):
        _draw_calibration(left, critic)
        _draw_success_auc(right, critic)
    save(figure, path)


def _draw_calibration(axis: Axes, critic: CriticCurves) -> None:
    both = np.concatenate([critic.value, critic.target])
    ends = np.array([np.nanmin(both), np.nanmax(both)])
    axis.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.2, label="perfect calibration")
    axis.plot(critic.value, critic.target, "o-", color=BLUE, linewidth=1.6, markersize=5, label="a tenth of the held-out frames")
    axis.set(title=f"{critic.tag}: calibration", xlabel="mean value, normalised return", ylabel="mean return, normalised return")
    axis.legend(loc="best")


def _draw_success_auc(axis: Axes, critic: CriticCurves) -> None:
    axis.axhline(0.5, color=GREY, linestyle=":", linewidth=1.2, label="chance")
    for color, line, (predictor, area) in zip(CYCLE, LINES, critic.success_auc.items(), strict=False):
        middles = (np.arange(len(area)) + 0.5) * 100 / len(area)
        axis.plot(middles, area, f"o{line}", color=color, linewidth=1.6, markersize=5, label=predictor)
    axis.set(title=f"{critic.tag}: success or failure?", xlabel="time, % of the episode", ylabel="AUC of value for success")
    axis.set(xlim=(0, 100), ylim=(-0.03, 1.03))
    axis.legend(loc="lower right")


@styled
def draw_training(path: Path, panels: list[TrainingPanel]) -> None:
    """Logged quantities over optimiser steps, one panel a quantity."""
    if not panels:
        return draw_nothing(path, "No training in this experiment")
    rows = -(-len(panels) // 2)
    figure = new_figure(2.9 * rows)
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        for number, curve in enumerate(panel.curves):
            style = {"color": CYCLE[number % len(CYCLE)], "linestyle": LINES[number % len(LINES)]}
            style |= {"marker": "o" if len(curve.steps) < 15 else None, "markersize": 4}
            axis.plot(curve.steps, curve.values, linewidth=1.6, label=curve.label, **style)
        axis.set(title=panel.title, xlabel="optimiser step", ylabel=panel.unit)
        axis.legend(loc="best")
    for axis in axes[len(panels) :]:
        axis.axis("off")
    save(figure, path)
