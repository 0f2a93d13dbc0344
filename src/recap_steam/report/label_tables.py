"""Tables of label tags: what was asked for, how firm the threshold is, what came out, and how far tags agree."""

import math

import numpy as np

from recap_steam.label_config import AdvantagesConfig, SteamAdvantagesConfig
from recap_steam.labels.scores import EXPERT, ROLLOUT
from recap_steam.report.label_figures import RatesOverTime
from recap_steam.report.label_report import LabelReport, agreements
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING, Table, number, percent, percent_or_missing


def labels_table(reports: list[LabelReport]) -> Table:
    """Tags by values: parameters, thresholds and realised positive rate, over all frames and over those of rollouts."""
    rows = []
    for report in _of_method(reports, AdvantagesConfig):
        config = report.config
        asked = [str(config.advantage_lookahead_step), percent(config.positive_quantile), config.pool]
        rows.append([report.tag, config.critic, *asked, *_thresholds(report), *_realised(report)])
    head = ["tag", "critic", "look-ahead N, frames", "positive quantile", "pool", "threshold", "its 95 % interval"]
    return Table([*head, "positive, all", "positive, rollouts"], rows)


def score_labels_table(results: Results, reports: list[LabelReport]) -> Table:
    """Tags by scores: the same."""
    rows = []
    for report in _of_method(reports, SteamAdvantagesConfig):
        config, critic = report.config, results.ensembles[report.config.critic]
        asked = [percent_or_missing(share) for share in (config.rollout_quantile, config.expert_quantile)]
        baseline = f"{config.baseline_lookahead or critic.k} frames" if config.subtract_baseline else "none"
        found = [cell for pool in (ROLLOUT, EXPERT) for cell in (number(report.thresholds.get(pool)), _interval(report, pool))]
        rows.append([report.tag, config.critic, str(critic.k), config.label_mode, *asked, baseline, *found, *_realised(report)])
    head = ["tag", "critic", "k, frames", "mode", "asked, rollouts", "asked, expert", "baseline"]
    head += ["threshold, rollouts", "its 95 % interval", "threshold, expert", "its 95 % interval", "positive, all", "positive, rollouts"]
    return Table(head, rows)


def forced_table(reports: list[LabelReport]) -> Table:
    """By tag and dataset: what the threshold alone makes positive, and what labels that are forced add to it."""
    rows = []
    for report in reports:
        for dataset in report.datasets:
            above, positive = dataset.num_above / len(dataset.positive), dataset.positive.mean()
            shares = (dataset.intervention.mean(), above, positive - above, positive)
            rows.append([report.tag, dataset.name, f"{len(dataset.positive):,}", *map(percent, shares)])
    return Table(["tag", "dataset", "frames", "interventions", "positive by threshold", "forced beyond it", "positive"], rows)


def agreement_table(reports: list[LabelReport]) -> Table:
    """One row and one column a tag: share of equal labels and Cohen's kappa."""
    found = {(item.first, item.second): item for item in agreements(reports)}
    cells = {pair: f"{percent(item.equal)}, \N{GREEK SMALL LETTER KAPPA} {_kappa(item.kappa)}" for pair, item in found.items()}
    cells |= {(second, first): cell for (first, second), cell in cells.items()}
    tags = [report.tag for report in reports if any(report.tag in pair for pair in found)]
    rows = [[tag, *("same" if tag == other else cells.get((tag, other), MISSING) for other in tags)] for tag in tags]
    return Table(["labels", *tags], rows)


def rates_over_time(reports: list[LabelReport]) -> list[RatesOverTime]:
    """Of every tag, by dataset and outcome."""
    return [
        RatesOverTime(
            report.tag,
            {f"{data.name}, {outcome}": data.rates(mask) for data in report.datasets for outcome, mask in data.outcomes().items()},
        )
        for report in reports
    ]


def _of_method(reports: list[LabelReport], method: type) -> list[LabelReport]:
    return [report for report in reports if isinstance(report.config, method)]


def _realised(report: LabelReport) -> list[str]:
    """Positive rates of all frames and of those of rollouts."""
    rates = []
    for datasets in (report.datasets, report.rollouts()):
        rates.append(percent(np.concatenate([item.positive for item in datasets]).mean()) if datasets else MISSING)
    return rates


def _thresholds(report: LabelReport) -> list[str]:
    """Thresholds and intervals, one of each a pool; of many pools their number."""
    if len(report.thresholds) > 3:
        return [f"{len(report.thresholds)} thresholds", MISSING]
    cells = [[number(threshold), _interval(report, pool)] for pool, threshold in report.thresholds.items()]
    return [", ".join(cell) for cell in zip(*cells, strict=True)] or [MISSING, MISSING]


def _interval(report: LabelReport, pool: str) -> str:
    if pool not in report.intervals:
        return MISSING
    low, high = report.intervals[pool]
    return f"{low:.3f} to {high:.3f}"


def _kappa(kappa: float) -> str:
    return MISSING if math.isnan(kappa) else f"{kappa:.2f}"
