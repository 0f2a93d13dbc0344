"""Figures of how an ensemble of progress critics judged one dataset. Scores have no unit; they are on the scale of the labels."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from recap_steam.report.figures import ScoreHistogram, draw_histogram
from recap_steam.report.judgement import EnsembleJudgement, Judgement
from recap_steam.report.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    GROUP_LINES,
    GROUP_MARKERS,
    GROUPS,
    LINES,
    SKY,
    new_figure,
    save,
    styled,
)

MANY_EPISODES = 60  # more are drawn without their numbers of frames
MANY_FRAMES = 20_000  # of more, the scatter shows evenly spaced ones
TIMELINES, COLUMNS = 9, 3


@styled
def draw_distribution(path: Path, judgement: EnsembleJudgement) -> None:
    """Worst-of-N score by group of frames, with the threshold and the mean over all frames."""
    figure = new_figure(3.4)
    axis = figure.subplots()
    groups = {group: judgement.score[mask] for group, mask in judgement.groups.items()}
    draw_histogram(axis, ScoreHistogram(judgement.title, groups, judgement.thresholds, judgement.quantity))
    axis.axvline(judgement.score.mean(), color=GREY, linewidth=1.5, label="mean")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


@styled
def draw_members(path: Path, judgement: EnsembleJudgement) -> None:
    """Scores of every member, and the least of them."""
    figure = new_figure(3.4)
    axis = figure.subplots()
    edges = _edges(judgement.members)
    for number, scores in enumerate(judgement.members.T):
        style = {"color": CYCLE[number % len(CYCLE)], "linestyle": LINES[number % len(LINES)]}
        _stairs(axis, scores, edges, **style, label=f"member {number}")
    _stairs(axis, judgement.score, edges, color=BLACK, linewidth=2.4, label="worst of N")
    axis.set(title=judgement.title, xlabel="score", ylabel="share of the frames, %")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


@styled
def draw_uncertainty(path: Path, judgement: EnsembleJudgement) -> None:
    """Mean of the members against their variance, a point a frame, with the distribution of both beside."""
    figure = new_figure(5.0)
    (top, corner), (main, right) = figure.subplots(2, 2, sharex="col", sharey="row", width_ratios=[4, 1], height_ratios=[1, 4])
    corner.axis("off")
    across, up = _edges(judgement.mean), _edges(judgement.variance)
    every = -(-len(judgement.mean) // MANY_FRAMES)
    for group, mask in judgement.groups.items():
        shown = np.flatnonzero(mask)[::every]
        style = {"color": GROUPS[group], "alpha": 0.4, "markersize": 3}
        main.plot(judgement.mean[shown], judgement.variance[shown], GROUP_MARKERS[group], **style, label=group)
        style = {"color": GROUPS[group], "linestyle": GROUP_LINES[group], "total": len(mask)}
        _stairs(top, judgement.mean[mask], across, **style)
        _stairs(right, judgement.variance[mask], up, **style, orientation="horizontal")
    top.set(title=judgement.title, ylabel="frames, %")
    thinned = f" (every {every}th frame)" if every > 1 else ""
    main.set(xlabel=f"mean score of the members{thinned}", ylabel="variance of the members' scores")
    right.set_xlabel("frames, %")
    legend = main.legend(loc="best", markerscale=2)
    for handle in legend.legend_handles:
        handle.set_alpha(1)
    save(figure, path)


@styled
def draw_positive_rates(path: Path, judgement: Judgement) -> None:
    """Share of positive frames of every episode, in the order of the dataset; of few episodes with their number of frames."""
    figure = new_figure(3.0)
    axis = figure.subplots()
    rates, places = 100 * judgement.by_episode(judgement.positive), np.arange(len(judgement.episodes.length) + 1) - 0.5
    for color, hit, label in ((GREEN, rates > 50, "more than half"), (GREY, rates <= 50, "half or less")):
        axis.stairs(np.where(hit, rates, 0), places, fill=True, color=color, label=label)
    axis.axhline(50, color=BLACK, linestyle="--", linewidth=1)
    axis.set(title=judgement.title, ylim=(0, 112), xlim=(places[0], places[-1]), ylabel="frames labelled positive, %")
    if len(rates) <= MANY_EPISODES:
        for place, (rate, length) in enumerate(zip(rates, judgement.episodes.length, strict=True)):
            axis.text(place, rate + 1.5, str(length), ha="center", va="bottom", fontsize=7)
        axis.set_xlabel("episode, by position in the dataset (above: its number of frames)")
    else:
        axis.set_xlabel("episode, by position in the dataset")
    axis.grid(axis="x", visible=False)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


@styled
def draw_timelines(path: Path, judgement: EnsembleJudgement) -> None:
    """Scores over the episodes at even ranks of mean variance, from the surest to the least sure."""
    order = np.argsort(judgement.by_episode(judgement.variance), kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, TIMELINES).round().astype(int))]
    rows = -(-len(chosen) // COLUMNS)
    figure = new_figure(2.3 * rows + 0.7)
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True).ravel()
    for axis, episode in zip(axes, chosen, strict=False):
        _draw_timeline(axis, judgement, episode)
    for axis in axes[len(chosen) :]:
        axis.axis("off")
    for axis in axes[::COLUMNS]:
        axis.set_ylabel("score")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"{judgement.title}: episodes at even ranks of disagreement", x=0.01, ha="left", fontsize=11, weight="bold")
    save(figure, path)


def _draw_timeline(axis: Axes, judgement: EnsembleJudgement, episode: int) -> None:
    episodes = judgement.episodes
    rows = slice(episodes.offsets[episode], episodes.offsets[episode + 1])
    frames, members = np.arange(rows.stop - rows.start), judgement.members[rows]
    outcome = "success" if episodes.success[episode] else "failure"
    axis.fill_between(frames, members.min(1), members.max(1), color=SKY, alpha=0.4, linewidth=0, label="least to greatest member")
    axis.plot(frames, judgement.mean[rows], color=BLUE, linewidth=1.6, label="mean")
    axis.plot(frames, judgement.score[rows], color=BLACK, linewidth=1.0, label="worst of N")
    ((name, threshold),) = judgement.thresholds.items()
    axis.axhline(threshold, color=GREY, linestyle="--", linewidth=1.2, label=name)
    variance = judgement.variance[rows].mean()
    axis.set_title(f"episode {episodes.episode_index[episode]}, {outcome}, variance {variance:.2g}", fontsize=9, weight="normal")
    axis.set_xlabel("frame of the episode")


def _edges(values: np.ndarray) -> np.ndarray:
    """Edges of 60 bins over all values; of equal ones, too."""
    margin = max(0.01 * np.ptp(values), 1e-6)
    return np.linspace(values.min() - margin, values.max() + margin, 61)


def _stairs(axis: Axes, values: np.ndarray, edges: np.ndarray, total: int | None = None, **style: object) -> None:
    """Histogram of ``values`` in percent of ``total``, by default of themselves."""
    counts, _ = np.histogram(values, edges)
    axis.stairs(100 * counts / (total or len(values)), edges, **{"linewidth": 1.6} | style)
