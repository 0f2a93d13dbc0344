"""Rule plot_diagnostics: how a critic judged one dataset under one label tag, as figures, numbers and single episodes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment, camera_keys
from recap_steam.dataset.clips import read_clip
from recap_steam.files import atomic_output
from recap_steam.report import diagnostic_figures
from recap_steam.report.advantage_figures import draw_advantage_distribution
from recap_steam.report.chosen import choose
from recap_steam.report.episode_curves import episode_curves
from recap_steam.report.episode_figures import draw_episode, key_steps
from recap_steam.report.judgement import EnsembleJudgement, Judgement, Labels, load_labels

SCORE_FIGURES = {
    "distribution.png": diagnostic_figures.draw_distribution,
    "members.png": diagnostic_figures.draw_members,
    "uncertainty.png": diagnostic_figures.draw_uncertainty,
    "positive_rate_per_episode.png": diagnostic_figures.draw_positive_rates,
    "timeline_episodes.png": diagnostic_figures.draw_timelines,
}
ADVANTAGE_FIGURES = {"advantage_distribution.png": draw_advantage_distribution}
PERCENTILES = (5, 25, 50, 75, 95)
COPIED = (  # from the threshold file, where it has them
    *("positive_quantile", "pool", "advantage_lookahead_step", "gamma", "return_min"),
    *("label_mode", "rollout_quantile", "expert_quantile", "baseline_bin", "ensemble_size", "k", "num_bins", "critic_digest"),
)


def diagnostics_stage(
    experiment: Experiment, dataset: str, tag: str, episodes_path: Path | str, threshold_path: Path | str, output_dir: Path | str
) -> None:
    """Write figures, ``summary.json`` and ``episodes/episode_{index}.png`` of the labels ``tag`` of ``dataset`` into ``output_dir``, anew.

    Raises:
        UserError: what ``load_labels`` and ``read_clip`` raise.
    """
    labels = load_labels(experiment, dataset, tag, episodes_path, threshold_path)
    folder = Path(output_dir)
    shutil.rmtree(folder, ignore_errors=True)  # with the episodes of an earlier choice
    for name, draw in figures_of(labels.judgement).items():
        with atomic_output(folder / name) as output:
            draw(output, labels.judgement)
    cameras = camera_keys(experiment, dataset, experiment.critics[experiment.advantages[tag].critic].cameras)
    for position in choose(labels.judgement.episodes.success, experiment.diagnostics).tolist():
        index = labels.judgement.episodes.episode_index[position]
        with atomic_output(folder / f"episodes/episode_{index:06d}.png") as output:
            _draw_episode(output, labels, [key for key in cameras.values() if key is not None], position)
    with atomic_output(folder / "summary.json") as output:
        output.write_text(json.dumps(_summary(dataset, tag, labels), indent=1) + "\n")


def figures_of(judgement: Judgement) -> dict:
    """What is drawn, by file name: the reference's set of the method."""
    return SCORE_FIGURES if isinstance(judgement, EnsembleJudgement) else ADVANTAGE_FIGURES


def _draw_episode(output: Path, labels: Labels, cameras: list[str], position: int) -> None:
    episodes = labels.judgement.episodes
    steps = key_steps(int(episodes.length[position]))
    images = {camera: list(read_clip(labels.source, episodes, position, camera, steps)) for camera in cameras}
    draw_episode(output, episode_curves(labels.judgement, labels.source.fps, position), images)


def _summary(dataset: str, tag: str, labels: Labels) -> dict[str, Any]:
    """The reference's names; ``stats`` are of the score or advantage, ``groups`` what came out by group of frames."""
    judgement, episodes = labels.judgement, labels.judgement.episodes
    return {
        "dataset": dataset,
        "tag": tag,
        "parquet": str(labels.path),
        "dataset_fingerprint": episodes.fingerprint,
        "positive_threshold": judgement.thresholds if len(judgement.thresholds) > 1 else next(iter(judgement.thresholds.values())),
        **{name: labels.fragment[name] for name in COPIED if name in labels.fragment},
        "total_anchors": len(judgement.positive),
        "without_look_ahead": int((labels.look_ahead == 0).sum()),
        "num_episodes": len(episodes.length),
        "num_positive": int(judgement.positive.sum()),
        "positive_rate": float(judgement.positive.mean()),
        "stats": _statistics(judgement.score),
        **(_ensemble_summary(judgement) if isinstance(judgement, EnsembleJudgement) else {"value": _statistics(judgement.value)}),
        "groups": {
            group: {
                "num_frames": int(mask.sum()),
                "num_positive": int(judgement.positive[mask].sum()),
                "mean_score": float(judgement.score[mask].mean()),
            }
            for group, mask in judgement.groups.items()
        },
    }


def _ensemble_summary(judgement: EnsembleJudgement) -> dict[str, Any]:
    least_sure = np.argsort(-judgement.by_episode(judgement.variance), kind="stable")[:5]
    return {
        "member_means": judgement.members.mean(0).tolist(),
        "variance": _statistics(judgement.variance),
        "least_sure_episodes": judgement.episodes.episode_index[least_sure].tolist(),
    }


def _statistics(values: np.ndarray) -> dict[str, float]:
    numbers = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    numbers |= {f"p{share}": number for share, number in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}
    return {name: float(number) for name, number in numbers.items()}
