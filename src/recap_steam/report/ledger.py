"""The ledger of policies that are improved over rounds: what each round collected and learned from, and what came of it."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from recap_steam.config import Experiment
from recap_steam.report import tables
from recap_steam.report.label_report import LabelReport
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING, Table, percent
from recap_steam.report.verdict import ArmSummary, tested
from recap_steam.rounds import of_round

HELD_OUT = ("mae", "accuracy")  # of a value critic, of an ensemble


@dataclasses.dataclass(frozen=True)
class Round:
    """A round of ``loop``: ``policy`` learned from ``data``, of which the policy of the round before collected ``collected``.

    Round 0 is the policy that collected for the first one; it, and a policy without labels, has None for what it lacks.
    """

    loop: str
    number: int
    policy: str
    collector: str | None
    collected: str | None
    data: list[str]
    labels: str | None
    critic: str | None


def rounds(experiment: Experiment, loop: str) -> list[Round]:
    """Rounds 0 to ``count`` of the policy ``loop``."""
    config, entries = experiment.rounds[loop], experiment.policies
    start = experiment.datasets[config.dataset].collect.policy
    found = [Round(loop, 0, start, None, None, entries[start].datasets if start in entries else [], None, None)]
    for number in range(1, config.count + 1):
        policy, collected = of_round(loop, loop, number), of_round(config.dataset, loop, number)
        tag = entries[policy].advantage_tag
        critic = experiment.judged_labels[tag].critic if tag in experiment.judged_labels else None
        found.append(Round(loop, number, policy, found[-1].policy, collected, entries[policy].datasets, tag, critic))
    return found


def held_out_metric(results: Results, critic: str) -> str:
    """The number of evaluation.json by which rounds of a critic are compared."""
    return HELD_OUT[critic in results.ensembles]


def ledgers(results: Results, evaluations: dict[str, list[ArmSummary]], labels: list[LabelReport]) -> Iterator[tuple[str, Table]]:
    """(heading, table) of every policy that is improved: one for each evaluation and guidance scale, or one without success. Of rounds
    that were collected."""
    for loop in results.experiment.rounds:
        found = [entry for entry in rounds(results.experiment, loop) if entry.number == 0 or results.episodes(entry.collected) is not None]
        if len(found) == 1:
            continue
        made = [_made_cells(results, entry, labels) for entry in found]
        judged = list(_judged(found, evaluations)) or [("", {})]
        for what, summaries in judged:
            rows = [[*cells, *_success_cells(entry, summaries)] for entry, cells in zip(found, made, strict=True)]
            yield f"{loop}{what}", Table(HEAD, rows)


HEAD = ["round", "policy", "starts from", "collected by", "new data", "episodes", "frames", "solved there", "learns from, episodes"]
HEAD += ["critic", "critic, held out", "labels", "positive, rollouts", "success rate", "95 % interval", "to the round before, points", "p"]


def _made_cells(results: Results, entry: Round, labels: list[LabelReport]) -> list[str]:
    """What a round had: its data, critic and labels."""
    config, new = results.experiment.policies.get(entry.policy), results.episodes(entry.collected) if entry.collected else None
    learned = [results.episodes(name) for name in entry.data]
    return [
        str(entry.number),
        entry.policy,
        tables.starts_from(config) if config else MISSING,
        entry.collector or MISSING,
        entry.collected or MISSING,
        *([MISSING] * 3 if new is None else [f"{len(new.length):,}", f"{new.num_frames:,}", percent(float(new.success.mean()))]),
        MISSING if not learned or None in learned else f"{sum(len(episodes.length) for episodes in learned):,}",
        entry.critic or MISSING,
        held_out(results, entry.critic),
        entry.labels or MISSING,
        _positive_rate(entry.labels, labels),
    ]


def held_out(results: Results, critic: str | None) -> str:
    """The number by which rounds of a critic are compared, and its name."""
    evaluation = results.document("critics", critic, "evaluation.json") if critic else None
    if not evaluation:
        return MISSING
    metric = held_out_metric(results, critic)
    return f"{tables.number(evaluation.get(f'eval/{metric}'))} ({metric})"


def _positive_rate(tag: str | None, labels: list[LabelReport]) -> str:
    """Over the rollouts of all rounds so far."""
    positive = [dataset.positive for report in labels if report.tag == tag for dataset in report.rollouts()]
    return percent(float(np.concatenate(positive).mean())) if positive else MISSING


def _judged(found: list[Round], evaluations: dict[str, list[ArmSummary]]) -> Iterator[tuple[str, dict[str, ArmSummary]]]:
    """(what, summary by policy) of each evaluation and guidance scale at which a policy of ``found`` was evaluated."""
    policies = {entry.policy for entry in found}
    for tag, summaries in evaluations.items():
        mine = [summary for summary in summaries if summary.arm.policy in policies]
        scales = list(dict.fromkeys(s.arm.guidance_scale for s in mine if s.arm.guidance_scale is not None)) or ([None] if mine else [])
        for scale in scales:
            guidance = "" if scale is None else f", guidance {scale:g}"
            yield f": {tag}{guidance}", {s.arm.policy: s for s in mine if s.arm.guidance_scale in (None, scale)}


def _success_cells(entry: Round, summaries: dict[str, ArmSummary]) -> list[str]:
    """Beside the round before, whose policy collected."""
    summary, before = summaries.get(entry.policy), summaries.get(entry.collector)
    if summary is None:
        return [MISSING] * 4
    interval = f"{100 * summary.low:.0f} to {percent(summary.high)}"
    if before is None:
        return [percent(summary.rate), interval, MISSING, MISSING]
    points, _, p_value = tables.difference_cells(tested(before.arm, summary.arm))
    return [percent(summary.rate), interval, points, p_value]
