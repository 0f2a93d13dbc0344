"""Figures of datasets."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam.report.style import GROUPS, draw_nothing, new_figure, save, styled

BINS = 30


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Frames of every episode of a dataset, by outcome."""

    dataset: str
    groups: dict[str, np.ndarray]


@styled
def draw_lengths(path: Path, datasets: list[Lengths]) -> None:
    """Histogram of episode lengths by outcome, one panel a dataset, on one axis of time."""
    if not datasets:
        return draw_nothing(path, "No dataset that can be read")
    figure = new_figure(1.5 * len(datasets) + 0.6)
    axes = figure.subplots(len(datasets), 1, squeeze=False, sharex=True)[:, 0]
    longest = max(lengths.max() for item in datasets for lengths in item.groups.values())
    edges = np.linspace(0, longest + 1, min(BINS, int(longest) + 1) + 1)
    for axis, item in zip(axes, datasets, strict=True):
        names = list(item.groups)
        axis.hist(list(item.groups.values()), edges, stacked=True, color=[GROUPS[name] for name in names], label=names)
        axis.set(title=item.dataset, ylabel="episodes", xlim=(0, edges[-1]))
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[-1].set_xlabel("length of the episode, frames")
    save(figure, path)
