"""Rule plot_diagnostics: how an ensemble of progress critics judged one dataset under one label tag, as figures and numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.files import atomic_output
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.scores import EXPERT, scores_above, threshold_of
from recap_steam.lineage import digest_file
from recap_steam.report import diagnostic_figures
from recap_steam.report.diagnostic_figures import Judgement
from recap_steam.report.groups import frame_groups
from recap_steam.sidecar import Sidecar, read_sidecar, sidecar_path

FIGURES = {
    "distribution.png": diagnostic_figures.draw_distribution,
    "members.png": diagnostic_figures.draw_members,
    "uncertainty.png": diagnostic_figures.draw_uncertainty,
    "positive_rate_per_episode.png": diagnostic_figures.draw_positive_rates,
    "timeline_episodes.png": diagnostic_figures.draw_timelines,
}
PERCENTILES = (5, 25, 50, 75, 95)


def diagnostics_stage(
    experiment: Experiment, dataset: str, tag: str, episodes_path: Path | str, threshold_path: Path | str, output_dir: Path | str
) -> None:
    """Write the figures and ``summary.json`` of the labels ``tag`` of ``dataset`` into ``output_dir``.

    Raises:
        UserError: scores, labels and threshold file do not belong together or to the dataset as it is now.
    """
    config = experiment.datasets[dataset]
    episodes = load_episodes(episodes_path, open_dataset(dataset, config.path))
    fragment = read_fragment(threshold_path)
    path = sidecar_path(config, dataset, f"scores_{fragment['critic']}")
    column = "member_values" if fragment["baseline_bin"] is None else "member_expected_bins"
    scores = read_sidecar(path, "scores", episodes, [column, "look_ahead"], inputs={"critic": fragment["critic_digest"]})
    made_from = {"threshold": digest_file(threshold_path), f"scores/{dataset}": digest_file(path)}
    path = sidecar_path(config, dataset, f"advantages_{tag}")
    labels = read_sidecar(path, "advantages", episodes, ["advantage"], inputs=made_from)
    judgement = _judgement(f"{tag}, {dataset}", config.type, episodes, fragment, scores.columns[column], labels)
    for name, draw in FIGURES.items():
        with atomic_output(Path(output_dir) / name) as output:
            draw(output, judgement)
    summary = {"dataset": dataset, "tag": tag, "parquet": str(path), "dataset_fingerprint": episodes.fingerprint}
    summary |= _summary(judgement, fragment, scores.columns["look_ahead"])
    with atomic_output(Path(output_dir) / "summary.json") as output:
        output.write_text(json.dumps(summary, indent=1) + "\n")


def _judgement(title: str, kind: str, episodes: Episodes, fragment: dict[str, Any], members: np.ndarray, labels: Sidecar) -> Judgement:
    """Members on the scale of the labels: with a baseline, each is a step above it."""
    if fragment["baseline_bin"] is not None:
        above = (scores_above(fragment["baseline_bin"], member[:, None], fragment["num_bins"]) for member in members.T)
        members = np.stack(list(above), axis=1)
    every_one = kind == "sft" and EXPERT not in fragment["thresholds"]
    return Judgement(
        title=title,
        members=members,
        positive=labels.columns["advantage"],
        groups=frame_groups(kind, episodes),
        threshold=threshold_of(kind, fragment["thresholds"]),
        threshold_name="threshold of rollouts (here all are positive)" if every_one else "threshold",
        offsets=episodes.offsets,
        episode_index=episodes.episode_index,
        success=np.asarray(episodes.success),
    )


def _summary(judgement: Judgement, fragment: dict[str, Any], look_ahead: np.ndarray) -> dict[str, Any]:
    """The reference's names; ``stats`` are of the worst-of-N score, ``groups`` what came out by group of frames."""
    variance = judgement.by_episode(judgement.variance)
    copied = ("label_mode", "rollout_quantile", "expert_quantile", "baseline_bin", "ensemble_size", "k", "num_bins", "critic_digest")
    return {
        "positive_threshold": judgement.threshold,
        **{name: fragment[name] for name in copied},
        "total_anchors": len(judgement.positive),
        "without_look_ahead": int((look_ahead == 0).sum()),
        "num_episodes": len(judgement.episode_index),
        "num_positive": int(judgement.positive.sum()),
        "positive_rate": float(judgement.positive.mean()),
        "stats": _statistics(judgement.worst),
        "member_means": judgement.members.mean(0).tolist(),
        "variance": _statistics(judgement.variance),
        "least_sure_episodes": judgement.episode_index[np.argsort(-variance, kind="stable")[:5]].tolist(),
        "groups": {
            group: {
                "num_frames": int(mask.sum()),
                "num_positive": int(judgement.positive[mask].sum()),
                "mean_score": float(judgement.worst[mask].mean()),
            }
            for group, mask in judgement.groups.items()
        },
    }


def _statistics(values: np.ndarray) -> dict[str, float]:
    numbers = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    numbers |= {f"p{share}": number for share, number in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}
    return {name: float(number) for name, number in numbers.items()}
