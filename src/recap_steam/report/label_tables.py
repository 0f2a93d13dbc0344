"""Tables of label tags: what was asked for, and which share of the frames came out positive."""

from collections.abc import Iterator

import numpy as np

from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.labels.scores import EXPERT, ROLLOUT
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING, Table, number, percent, percent_or_missing


def labels_table(results: Results) -> Table:
    """Tags by values: parameters, thresholds and realised positive rate, over all frames and over those of rollouts."""
    rows = []
    for tag, config, rates in _tags(results, steam=False):
        pool = [percent(config.positive_quantile), config.pool]
        rows.append([tag, config.critic, str(config.advantage_lookahead_step), *pool, _thresholds(results.thresholds(tag)), *rates])
    head = ["tag", "critic", "look-ahead N, frames", "positive quantile", "pool", "threshold", "positive, all", "positive, rollouts"]
    return Table(head, rows)


def score_labels_table(results: Results) -> Table:
    """Tags by scores: the same."""
    rows = []
    for tag, config, rates in _tags(results, steam=True):
        critic, thresholds = results.ensembles[config.critic], results.thresholds(tag)
        asked = [percent_or_missing(share) for share in (config.rollout_quantile, config.expert_quantile)]
        found = [number(thresholds.get(pool)) for pool in (ROLLOUT, EXPERT)]
        baseline = f"{config.baseline_lookahead or critic.k} frames" if config.subtract_baseline else "none"
        rows.append([tag, config.critic, str(critic.k), config.label_mode, *asked, baseline, *found, *rates])
    head = ["tag", "critic", "k, frames", "mode", "asked, rollouts", "asked, expert", "baseline"]
    head += ["threshold, rollouts", "threshold, expert", "positive, all", "positive, rollouts"]
    return Table(head, rows)


def _tags(results: Results, steam: bool) -> Iterator[tuple[str, object, list[str]]]:
    """(tag, configuration, positive rates of all frames and of rollouts) of the tags of one kind that have labels."""
    for tag, config in results.experiment.advantages.items():
        if isinstance(config, SteamAdvantagesConfig) != steam:
            continue
        sidecars = {dataset: results.sidecar(dataset, "advantages", tag, ["advantage"]) for dataset in config.datasets}
        labels = {dataset: sidecar.columns["advantage"] for dataset, sidecar in sidecars.items() if sidecar is not None}
        rollouts = [values for dataset, values in labels.items() if results.experiment.datasets[dataset].type == "rollout"]
        if labels:
            rates = [percent(np.concatenate(list(labels.values())).mean())]
            yield tag, config, [*rates, percent(np.concatenate(rollouts).mean()) if rollouts else MISSING]


def _thresholds(by_pool: dict[str, float]) -> str:
    return ", ".join(map(number, by_pool.values())) or MISSING if len(by_pool) < 4 else f"{len(by_pool)} thresholds"
