"""How a value critic judged one dataset: the reference's six panels on one figure."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from recap_steam.report.figures import ScoreHistogram, draw_histogram
from recap_steam.report.judgement import ValueJudgement
from recap_steam.report.style import BLACK, BLUE, GREY, GROUP_MARKERS, GROUPS, SKY, VERMILION, as_written, new_figure, save, styled

MANY_FRAMES = 20_000  # of more, the scatter shows evenly spaced ones
OUTCOMES = ((True, "success", BLUE, None), (False, "failure", VERMILION, "////"))


@styled
def draw_advantage_distribution(path: Path, judgement: ValueJudgement) -> None:
    """Distributions of advantage and value, one against the other, positive rate and advantage by episode, and the numbers."""
    figure = new_figure(10.2)
    axes = figure.subplots(3, 2)
    figure.suptitle(judgement.title, x=0.01, ha="left", fontsize=12, weight="bold")
    _draw_advantages(axes[0, 0], judgement)
    values = {group: judgement.value[mask] for group, mask in judgement.groups.items()}
    draw_histogram(axes[0, 1], ScoreHistogram("value of the frames", values, {}, "value, normalised return"))
    axes[0, 1].set_xlabel("value, normalised return")
    _draw_against(axes[1, 0], judgement)
    _draw_rates(axes[1, 1], judgement)
    _draw_means(axes[2, 0], judgement)
    _write_numbers(axes[2, 1], judgement)
    save(figure, path)


def _draw_advantages(axis: Axes, judgement: ValueJudgement) -> None:
    groups = {group: judgement.score[mask] for group, mask in judgement.groups.items()}
    draw_histogram(axis, ScoreHistogram("what labels are drawn from", groups, judgement.thresholds, judgement.quantity))
    axis.axvline(0, color=GREY, linewidth=1)
    axis.axvline(judgement.score.mean(), color=GREY, linewidth=1.6, linestyle=":", label="mean")
    axis.set_xlabel(judgement.quantity)
    axis.legend(loc="best", fontsize=8)


def _draw_against(axis: Axes, judgement: ValueJudgement) -> None:
    every = -(-len(judgement.score) // MANY_FRAMES)
    for group, mask in judgement.groups.items():
        shown = np.flatnonzero(mask)[::every]
        style = {"color": GROUPS[group], "alpha": 0.4, "markersize": 3, "label": group}
        axis.plot(judgement.value[shown], judgement.score[shown], GROUP_MARKERS[group], **style)
    for threshold in judgement.thresholds.values():
        axis.axhline(threshold, color=BLACK, linestyle="--", linewidth=1.2)
    thinned = f" (every {every}th frame)" if every > 1 else ""
    axis.set(title="advantage against value", xlabel=f"value, normalised return{thinned}", ylabel=judgement.quantity)
    legend = axis.legend(loc="best", fontsize=8, markerscale=2)
    for handle in legend.legend_handles:
        handle.set_alpha(1)


def _draw_rates(axis: Axes, judgement: ValueJudgement) -> None:
    rates = 100 * judgement.by_episode(judgement.positive)
    places, half = np.arange(len(rates)), 0.4 if len(rates) < 100 else 0.5
    edges = np.stack([places - half, places + half], axis=1).ravel()  # of a bar an episode, with gaps between few
    for outcome, name, color, hatch in OUTCOMES:
        mask = judgement.episodes.success == outcome
        if mask.any():
            heights = np.stack([np.where(mask, rates, 0), np.zeros(len(rates))], axis=1).ravel()[:-1]
            style = {"facecolor": color, "edgecolor": "white" if hatch else color, "linewidth": 0, "hatch": hatch}
            axis.stairs(heights, edges, fill=True, **style, label=name)
    mean = 100 * judgement.positive.mean()
    axis.axhline(mean, color=BLACK, linestyle="--", linewidth=1.2, label=f"all frames, {mean:.0f} %")
    axis.set(title="positive labels by episode", ylabel="frames labelled positive, %", ylim=(0, 122), yticks=range(0, 101, 20))
    axis.set(xlim=(-0.5, len(rates) - 0.5), xlabel="episode, by position in the dataset")
    axis.grid(axis="x", visible=False)
    axis.legend(loc="upper left", ncols=3, fontsize=8, columnspacing=1)


def _draw_means(axis: Axes, judgement: ValueJudgement) -> None:
    mean = judgement.by_episode(judgement.score)
    spread = np.sqrt(np.maximum(judgement.by_episode(judgement.score**2) - mean**2, 0))
    places = np.arange(len(mean))
    axis.vlines(places, mean - spread, mean + spread, color=SKY, linewidth=min(4.0, 240 / len(mean)), label="± standard deviation")
    for outcome, name, color, _ in OUTCOMES:
        mask = judgement.episodes.success == outcome
        if mask.any():
            axis.plot(places[mask], mean[mask], GROUP_MARKERS[name], color=color, markersize=3.5, label=f"mean, {name}")
    axis.axhline(0, color=GREY, linewidth=1)
    axis.set(title="advantage by episode", xlabel="episode, by position in the dataset", ylabel=judgement.quantity)
    low, high = axis.get_ylim()
    axis.set(xlim=(-0.5, len(mean) - 0.5), ylim=(low, high + 0.25 * (high - low)))  # room for the legend
    axis.legend(loc="upper left", ncols=2, fontsize=8, columnspacing=1)


def _write_numbers(axis: Axes, judgement: ValueJudgement) -> None:
    score, episodes, groups = judgement.score, judgement.episodes, judgement.groups
    numbers = {
        "episodes": f"{len(episodes.length):,}, {int(episodes.success.sum()):,} of them successes",
        "frames": f"{len(score):,}",
        "labelled positive": f"{int(judgement.positive.sum()):,}, {100 * judgement.positive.mean():.1f} %",
        "of these by the threshold": f"{int((judgement.positive & judgement.reached).sum()):,}",
        **{f"positive, {group}": f"{100 * judgement.positive[mask].mean():.1f} % of {mask.sum():,}" for group, mask in groups.items()},
        "advantage, mean ± std": f"{score.mean():+.4f} ± {score.std():.4f}",
        "advantage, range": f"{score.min():+.4f} to {score.max():+.4f}",
        **{name: f"{threshold:+.4f}" for name, threshold in list(judgement.thresholds.items())[:3]},
        "value, mean ± std": f"{judgement.value.mean():+.4f} ± {judgement.value.std():.4f}",
    }
    axis.axis("off")
    axis.set_title("numbers")
    for row, (name, text) in enumerate(numbers.items()):
        axis.text(0, 0.95 - 0.075 * row, as_written(name, 25), transform=axis.transAxes, va="top")
        axis.text(0.54, 0.95 - 0.075 * row, text, transform=axis.transAxes, va="top")
