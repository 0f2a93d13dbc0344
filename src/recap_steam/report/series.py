"""The numbers behind the figures, chosen by fixed rules: every tag, every dataset, and for curves the first episode of each outcome."""

import numpy as np

from recap_steam.config import CriticConfig, camera_keys
from recap_steam.dataset.episodes import Episodes
from recap_steam.dataset.frames import FrameCache
from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.policy.routing import BRANCHES
from recap_steam.report.figures import ArmPoint, PositiveRates, ScoreHistogram
from recap_steam.report.groups import frame_groups
from recap_steam.report.results import Results
from recap_steam.report.tables import branch_name
from recap_steam.report.training_figures import TrainingCurve, TrainingPanel, ValueCurve
from recap_steam.report.verdict import ArmSummary

STRIP_FRAMES = 5
EPISODE_RULE = (
    "Shown are the success and the failure with the lowest episode index in the first held-out dataset that has values "
    "(in the first training dataset if there is none)."
)


def arm_points(summaries: list[ArmSummary]) -> list[ArmPoint]:
    return [ArmPoint(item.arm.label, item.rate, item.low, item.high, bool(item.arm.control)) for item in summaries]


def advantage_histograms(results: Results) -> list[ScoreHistogram]:
    """One histogram a tag over all its datasets; none of imported labels, whose threshold nothing says."""
    histograms = []
    for tag, config in results.experiment.judged_labels.items():
        parts: dict[str, list[np.ndarray]] = {}
        for _, advantage, groups in _labelled(results, tag, config.datasets, "advantage_continuous"):
            for group, mask in groups.items():
                parts.setdefault(group, []).append(advantage[mask])
        if parts:
            pooled = {group: np.concatenate(values) for group, values in parts.items()}
            thresholds = {f"threshold, {pool}": threshold for pool, threshold in results.thresholds(tag).items()}
            quantity = "worst-of-N score" if isinstance(config, SteamAdvantagesConfig) else "advantage, normalised return"
            histograms.append(ScoreHistogram(tag, pooled, thresholds, quantity))
    return histograms


def positive_rates(results: Results) -> list[PositiveRates]:
    """Realised share of positive labels of every tag by dataset and group of frames."""
    tags = []
    for tag, config in results.experiment.advantages.items():
        rates = {}
        for dataset, positive, groups in _labelled(results, tag, config.datasets, "advantage"):
            rates |= {(dataset, group): (float(positive[mask].mean()), int(mask.sum())) for group, mask in groups.items()}
        if rates:
            tags.append(PositiveRates(tag, rates))
    return tags


def _labelled(results: Results, tag: str, datasets: list[str], column: str):
    """(dataset, column (F,), groups) of every dataset that has labels of this tag."""
    for dataset in datasets:
        sidecar = results.sidecar(dataset, "advantages", tag, [column])
        if sidecar is not None:
            yield dataset, sidecar.columns[column], frame_groups(results.experiment.datasets[dataset].type, results.episodes(dataset))


def value_curves(results: Results) -> dict[str, list[ValueCurve]]:
    """By critic, the episodes of EPISODE_RULE."""
    curves = {}
    for critic, config in results.value_critics.items():
        for dataset in [*config.eval_datasets, *config.datasets]:
            if critic not in curves and (found := _dataset_curves(results, critic, config, dataset)):
                curves[critic] = found
    return curves


def _dataset_curves(results: Results, critic: str, config: CriticConfig, dataset: str) -> list[ValueCurve]:
    value = results.sidecar(dataset, "values", critic, ["value"])
    returns = results.sidecar(dataset, "returns", config.returns_tag, ["return"])
    normalizer = results.normalizer(critic)
    if value is None or returns is None or normalizer is None:
        return []
    episodes = results.episodes(dataset)
    target = normalizer.normalize(returns.columns["return"], episodes.prompt_codes(), episodes.tasks)
    cache = results.frames(dataset, config.model.image_size)
    camera = next(key for key in camera_keys(results.experiment, dataset, config.cameras).values() if key is not None)
    chosen = [position for outcome in (True, False) if (position := _first(episodes, outcome)) is not None]
    return [_curve(episodes, position, value.columns["value"], target, cache, camera) for position in chosen]


def _first(episodes: Episodes, success: bool) -> int | None:
    """Position of the first episode with this outcome; episodes are sorted by index."""
    positions = np.flatnonzero(np.asarray(episodes.success) == success)
    return int(positions[0]) if len(positions) else None


def _curve(episodes: Episodes, position: int, value: np.ndarray, target: np.ndarray, cache: FrameCache | None, camera: str) -> ValueCurve:
    rows = slice(int(episodes.offsets[position]), int(episodes.offsets[position + 1]))
    length = rows.stop - rows.start
    steps = np.unique(np.linspace(0, length - 1, STRIP_FRAMES).round().astype(int))
    outcome = "success" if episodes.success[position] else "failure"
    return ValueCurve(
        title=f"{outcome}, {episodes.dataset} episode {episodes.episode_index[position]}",
        value=value[rows],
        target=target[rows],
        intervention=episodes.interventions()[rows],
        frames=None if cache is None else cache.images(camera, rows.start + steps),
        frame_steps=steps,
    )


PANELS = {  # by kind of training: title, unit, {logged metric: what the legend adds to the tag}
    "critics": [
        ("loss", "nats", {"eval/loss": ", held out", "eval_train/loss": ", training frames", "baseline_time/loss": ", time only"}),
        (
            "error",
            "MAE, normalised return",
            {"eval/mae": ", held out", "eval_train/mae": ", training frames", "baseline_time/mae": ", time only"},
        ),
        ("training loss", "nats", {"train/loss": ""}),
        ("held-out rank correlation", "Spearman", {"eval/spearman": "", "baseline_time/spearman": ", time only"}),
    ],
    "ensembles": [
        ("loss", "nats", {"eval/loss": ", held out", "baseline_majority/loss": ", majority"}),
        ("bin accuracy", "share of held-out pairs", {"eval/accuracy": "", "baseline_majority/accuracy": ", majority"}),
        ("training loss", "nats, with label smoothing", {"train/loss": ""}),
        ("mean score", "score of held-out pairs", {"eval/signed_progress_mean": ""}),
    ],
    "policies": [
        ("training loss", "flow-matching error", {"train/loss": ""}),
        ("training loss by branch", "flow-matching error", {f"train/loss_{name}": f", {branch_name(name)}" for name in BRANCHES}),
        ("loss with the plain prompt", "flow-matching error", {"eval/loss": ", held out", "eval_train/loss": ", training frames"}),
        (
            "flip test",
            "normalised action",
            {"flip/positive_plain": "", "flip/positive_negative": ", positive to negative", "flip/noise": ", two noises"},
        ),
    ],
}
SHOWN_POINTS = 100


def training_panels(results: Results, kind: str) -> list[TrainingPanel]:
    """Learning curves of all value ``critics``, members of ``ensembles`` or ``policies``: by panel, one curve a training and logged metric;
    of many steps, means over spans."""
    logs = _logs(results, kind)
    panels = []
    for title, unit, metrics in PANELS[kind]:
        curves = [_training_curve(tag + suffix, log, metric) for tag, log in logs.items() for metric, suffix in metrics.items()]
        if drawn := [curve for curve in curves if len(curve.steps)]:
            panels.append(TrainingPanel(title, unit, drawn))
    return panels


def _logs(results: Results, kind: str) -> dict[str, list[dict]]:
    """Logged rows by the name of the training."""
    if kind == "ensembles":
        tags = [tag for critic in results.ensembles for tag in results.members(critic)]
        return {tag.replace("/members/", " "): results.metrics("critics", tag) for tag in tags}
    return {tag: results.metrics(kind, tag) for tag in (results.value_critics if kind == "critics" else results.experiment.policies)}


def _training_curve(label: str, log: list[dict], metric: str) -> TrainingCurve:
    points = [(row["step"], row[metric]) for row in log if row.get(metric) is not None]
    spans = np.array_split(np.array(points, dtype=np.float64).reshape(-1, 2), min(SHOWN_POINTS, len(points)) or 1)
    means = np.array([span.mean(axis=0) for span in spans if len(span)]).reshape(-1, 2)
    return TrainingCurve(label, means[:, 0], means[:, 1])
