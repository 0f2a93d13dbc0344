"""The tables of a study: every arm, every test, the rounds and the critics, pooled over replicates beside what each replicate says."""

from collections.abc import Iterable, Iterator

from recap_steam.report import critic_scores, ensemble_scores
from recap_steam.report.ledger import held_out, rounds
from recap_steam.report.results import ArmKey, arm_label
from recap_steam.report.study import PooledComparison, Study, compare, comparisons, pooled, round_numbers
from recap_steam.report.tables import MISSING, Table, difference_cells, number, percent
from recap_steam.report.verdict import ArmSummary, summarise
from recap_steam.simulation.environments import frames_per_second


def pooled_summary(study: Study, key: ArmKey) -> ArmSummary | None:
    """An arm over all replicates that have it; None if none has."""
    arms = list(study.by_seed(key).values())
    environment = study.experiment.environments[study.experiment.evaluations[study.evaluation].environment]
    return summarise([pooled(arms)], frames_per_second(environment))[0] if arms else None


def arms_table(study: Study) -> Table:
    """One row an arm, whether or not it is there: solved in each replicate, and what all of them say."""
    head = ["arm", "round", *(f"solved, seed {seed}" for seed in study.results), "episodes", "success rate", "95 % interval"]
    head += ["mean frames", "successes per simulated hour", f"to {arm_label(study.keys[0])}, points", "95 % interval", "p"]
    numbers = round_numbers(study.experiment)
    return Table(head, [[arm_label(key), str(numbers.get(key[0], MISSING)), *_arm_cells(study, key)] for key in study.keys])


def _arm_cells(study: Study, key: ArmKey) -> list[str]:
    arms, summary = study.by_seed(key), pooled_summary(study, key)
    solved = [str(int(arms[seed].success.sum())) if seed in arms else MISSING for seed in study.results]
    if summary is None:
        return [*solved, *[MISSING] * 8]
    found = compare(study, key, study.keys[0], "") if key != study.keys[0] else None
    return [
        *solved,
        str(summary.n),
        *_rate_cells(summary),
        f"{summary.mean_frames:.1f}",
        f"{summary.successes_per_hour:,.0f}",
        *(difference_cells(found.test) if found else [MISSING] * 3),
    ]


def _rate_cells(summary: ArmSummary | None) -> list[str]:
    return [percent(summary.rate), f"{100 * summary.low:.0f} to {percent(summary.high)}"] if summary else [MISSING] * 2


def comparisons_table(study: Study) -> Table:
    """Every arm with labels of its own beside the reference and beside what differs from it in one thing."""
    return Table(["arm", *paired_head("arm")], [[found.arm.label, *paired_cells(study, found)] for found in comparisons(study)])


def paired_head(of: str) -> list[str]:
    """What ``paired_cells`` are, of an arm that is called ``of``."""
    head = ["compared with", "what differs there", "seeds", f"solved by the {of} only", "by the other only"]
    return [*head, "difference, points", "95 % interval", "p", "by seed, points", "seeds of the same sign"]


def paired_cells(study: Study, found: PooledComparison) -> list[str]:
    """The arm that an arm is compared with, the counts, the test, and what each replicate says."""
    counts = [str(len(found.by_seed)), str(found.only_arm), str(found.only_other)]
    by_seed = joined(f"{100 * found.by_seed[seed]:+.1f}" if seed in found.by_seed else MISSING for seed in study.results)
    agreeing = f"{found.agreeing} of {len(found.by_seed)}"
    return [found.other.label, found.what, *counts, *difference_cells(found.test), by_seed, agreeing]


def ledger_table(study: Study) -> Table:
    """One row a round of every policy that is improved, at each evaluated guidance scale: what each replicate had, what came of it."""
    head = ["policy that is improved", "round", "arm", "collected by", "episodes, by seed", "solved there, by seed", "critic"]
    head += ["critic, held out, by seed", "success rate", "95 % interval", "to the round before, points", "p", "seeds of the same sign"]
    return Table(head, [row for loop in study.experiment.rounds for row in _ledger_rows(study, loop)])


def _ledger_rows(study: Study, loop: str) -> Iterator[list[str]]:
    entries = rounds(study.experiment, loop)
    policies = [entry.policy for entry in entries]
    if not {policy for policy, _ in study.keys} & set(policies[1:]):
        return
    scales = list(dict.fromkeys(scale for policy, scale in study.keys if policy in policies and scale is not None)) or [None]
    for scale in scales:
        keys = [next((key for key in study.keys if key[0] == policy and key[1] in (None, scale)), None) for policy in policies]
        for entry, key in zip(entries, keys, strict=True):
            new = [results.episodes(entry.collected) if entry.collected else None for results in study.results.values()]
            before = keys[entry.number - 1] if entry.number else None
            found = compare(study, key, before, "") if key and before else None
            points, _, p_value = difference_cells(found.test) if found else [MISSING] * 3
            yield [
                *(loop, str(entry.number), arm_label(key) if key else entry.policy, entry.collector or MISSING),
                joined(str(len(episodes.length)) if episodes else MISSING for episodes in new),
                joined(percent(float(episodes.success.mean())) if episodes else MISSING for episodes in new),
                entry.critic or MISSING,
                joined(held_out(results, entry.critic) for results in study.results.values()),
                *_rate_cells(pooled_summary(study, key) if key else None),
                *(points, p_value, f"{found.agreeing} of {len(found.by_seed)}" if found else MISSING),
            ]


def critics_table(study: Study) -> Table:
    """Held-out metrics of value critics beside predictors that see no image, by seed."""
    return _scores_table(study, "value_critics", critic_scores.METRICS, critic_scores.PREDICTORS)


def ensembles_table(study: Study) -> Table:
    """Held-out metrics of progress critics beside the most frequent answer, by seed."""
    return _scores_table(study, "ensembles", ensemble_scores.METRICS, ensemble_scores.PREDICTORS)


def _scores_table(study: Study, kind: str, metrics: dict[str, str], predictors: dict[str, str]) -> Table:
    rows = []
    for critic in getattr(next(iter(study.results.values())), kind):
        found = [results.document("critics", critic, "evaluation.json") or {} for results in study.results.values()]
        for source, name in predictors.items():
            cells = [joined(number(scores.get(f"{source}/{metric}")) for scores in found) for metric in metrics]
            if any(cell != MISSING for cell in cells):
                rows.append([critic, name, *cells])
    return Table(["critic", "predictor", *(f"{title}, by seed" for title in metrics.values())], rows)


def joined(cells: Iterable[str]) -> str:
    """What each replicate says, in the order of their seeds; one dash if none says anything."""
    found = list(cells)
    return ", ".join(found) if set(found) != {MISSING} else MISSING
