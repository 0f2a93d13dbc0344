"""Figures of labels over the time of an episode."""

import dataclasses
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from recap_steam.report.style import GREY, draw_nothing, new_figure, save, styled


@dataclasses.dataclass(frozen=True)
class RatesOverTime:
    """Share of positive labels of one tag, in [0, 1], by row (dataset and outcome) and tenth of the episode: (10,), NaN where no frame."""

    tag: str
    rows: dict[str, np.ndarray]


@styled
def draw_rates_over_time(path: Path, tags: list[RatesOverTime]) -> None:
    """A heat map a tag."""
    if not tags:
        return draw_nothing(path, "No labels in this experiment")
    figure = new_figure(sum(1.0 + 0.36 * len(tag.rows) for tag in tags) + 0.4)
    axes = figure.subplots(len(tags), 1, squeeze=False, height_ratios=[len(tag.rows) + 1.5 for tag in tags])[:, 0]
    for axis, tag in zip(axes, tags, strict=True):
        _draw_rates(axis, tag)
    axes[-1].set_xlabel("time, tenth of the episode (in each cell: frames labelled positive, %)")
    save(figure, path)


def _draw_rates(axis: Axes, tag: RatesOverTime) -> None:
    rates = 100 * np.array(list(tag.rows.values()))
    axis.imshow(rates, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for (row, tenth), rate in np.ndenumerate(rates):
        text, color = ("\N{EN DASH}", GREY) if np.isnan(rate) else (f"{rate:.0f}", "white" if rate < 55 else "black")
        axis.text(tenth, row, text, ha="center", va="center", color=color, fontsize=9)
    axis.set(title=tag.tag, xticks=range(rates.shape[1]))
    axis.set_xticks(range(rates.shape[1]), [str(tenth + 1) for tenth in range(rates.shape[1])])
    axis.set_yticks(range(len(tag.rows)), list(tag.rows))
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
