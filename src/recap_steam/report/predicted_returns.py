"""Predicted against true return: every frame of the held-out datasets, by critic, and there by outcome and by task."""

import dataclasses
import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm

from recap_steam.config import CriticConfig
from recap_steam.report.results import Results
from recap_steam.report.style import BLACK, BLUE, GREY, VERMILION, draw_nothing, new_figure, save, styled

COLUMNS, MAX_TASKS, BINS = 3, 6, 48
RULE = (
    "Every frame of the held-out datasets that have values (of the training datasets if there are none: then the titles say so). On the "
    "dashed line a prediction is right; the points are the mean return in each tenth of predicted value. Of many tasks, the six with most "
    "frames."
)
PALE_TO_DARK = LinearSegmentedColormap.from_list("counts", ["#DCEBF5", BLUE, BLACK])  # darker is more in print, too
NOTE = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.5}


@dataclasses.dataclass(frozen=True)
class PredictedReturns:
    """(n,) ``value`` and ``target``, the normalised return, of some frames."""

    title: str
    value: np.ndarray
    target: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Frames:
    """Frames of one or more datasets, (n,) each; ``task`` texts."""

    value: np.ndarray
    target: np.ndarray
    success: np.ndarray
    task: np.ndarray


def predicted_returns(results: Results) -> list[PredictedReturns]:
    """All frames, those of each outcome and, where there are several, those of each task; critic by critic."""
    panels = []
    for critic, config in results.value_critics.items():
        for where, datasets in (("held out", config.eval_datasets), ("training", config.datasets)):
            parts = [part for dataset in datasets if (part := _frames(results, critic, config, dataset)) is not None]
            if parts:
                frames = _Frames(*(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in parts), strict=True)))
                panels += _panels(f"{critic}, {where}", frames)
                break
    return panels


def _frames(results: Results, critic: str, config: CriticConfig, dataset: str) -> _Frames | None:
    value = results.sidecar(dataset, "values", critic, ["value"])
    returns = results.sidecar(dataset, "returns", config.returns_tag, ["return"])
    normalizer = results.normalizer(critic)
    if value is None or returns is None or normalizer is None:
        return None
    episodes = results.episodes(dataset)
    codes = episodes.prompt_codes()
    target = normalizer.normalize(returns.columns["return"], codes, episodes.tasks)
    return _Frames(value.columns["value"].astype(np.float64), target, episodes.row_success(), np.array(episodes.tasks)[codes])


def _panels(title: str, frames: _Frames) -> list[PredictedReturns]:
    tasks, counts = np.unique(frames.task, return_counts=True)
    masks = {"all frames": np.ones(len(frames.value), bool), "successes": frames.success, "failures": ~frames.success}
    if len(tasks) > 1:
        masks |= {str(task): frames.task == task for task in tasks[np.argsort(-counts, kind="stable")][:MAX_TASKS]}
    return [PredictedReturns(f"{title}: {name}", frames.value[mask], frames.target[mask]) for name, mask in masks.items() if mask.any()]


@styled
def draw_predicted_returns(path: Path, panels: list[PredictedReturns]) -> None:
    """Histograms of value and return together, one panel each, on one scale."""
    if not panels:
        return draw_nothing(path, "No values in this experiment")
    rows = -(-len(panels) // COLUMNS)
    figure = new_figure(3.1 * rows + 0.3)
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).ravel()
    both = np.concatenate([values for panel in panels for values in (panel.value, panel.target)])
    margin = max(0.03 * np.ptp(both), 1e-3)
    edges = np.linspace(both.min() - margin, both.max() + margin, BINS + 1)
    counts = [np.histogram2d(panel.value, panel.target, edges)[0].T for panel in panels]
    norm = LogNorm(1, max(2, max(count.max() for count in counts)))
    for axis, panel, count in zip(axes, panels, counts, strict=False):
        mesh = axis.pcolormesh(edges, edges, np.ma.masked_equal(count, 0), norm=norm, cmap=PALE_TO_DARK, rasterized=True)
        _draw_tenths(axis, panel)
        axis.plot(edges[[0, -1]], edges[[0, -1]], color=GREY, linestyle="--", linewidth=1.2)
        axis.set_title("\n".join(textwrap.wrap(panel.title, 30, max_lines=2, placeholder=" …")).replace("$", r"\$"), fontsize=9)
        error = panel.value - panel.target
        note = f"{len(error):,} frames\nMAE {np.abs(error).mean():.3f}\nbias {error.mean():+.3f}"
        axis.text(0.03, 0.97, note, transform=axis.transAxes, va="top", fontsize=8, bbox=NOTE)
        axis.tick_params(labelbottom=True, labelleft=True)
    for place, axis in enumerate(axes):
        axis.set_xlabel("value, normalised return")
        axis.set_ylabel("true return, normalised" if place % COLUMNS == 0 else "")
        axis.set_visible(place < len(panels))
    figure.colorbar(mesh, ax=list(axes), label="frames in a cell", pad=0.01, shrink=0.9 / rows, anchor=(0, 1))
    save(figure, path)


def _draw_tenths(axis: Axes, panel: PredictedReturns) -> None:
    """Mean return in each tenth of predicted value."""
    order = np.argsort(panel.value, kind="stable")
    tenths = [part for part in np.array_split(order, 10) if len(part)]
    points = np.array([(panel.value[part].mean(), panel.target[part].mean()) for part in tenths])
    axis.plot(*points.T, "o-", color=VERMILION, markersize=4, linewidth=1.4, markeredgecolor="white")
