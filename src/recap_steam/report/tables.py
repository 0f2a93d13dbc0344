"""The report's tables: headers and cells as text, from the numbers in the results. The page and the summary only lay them out."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from recap_steam.config import PolicyConfig
from recap_steam.policy.routing import BRANCHES
from recap_steam.report.controls import Comparison
from recap_steam.report.results import LABEL_CONTROLS, Results
from recap_steam.report.verdict import ArmSummary, Pair, PairedTest, format_p, in_common

PROMPTS = {"conditional": "indicator shown", "dropped": "indicator dropped", "": "plain prompt"}
MISSING = "\N{EN DASH}"


@dataclasses.dataclass(frozen=True)
class Table:
    """``head`` names the columns; each row has as many cells, all text."""

    head: list[str]
    rows: list[list[str]]

    def numeric(self, column: int) -> bool:
        """Whether the column holds numbers, which are set flush right."""
        cells = [row[column] for row in self.rows if row[column] not in (MISSING, "reference")]
        return column > 0 and all(cell[:1] in tuple("+-<0123456789") and len(cell) < 12 + 6 * (" to " in cell) for cell in cells)


def success_table(summaries: list[ArmSummary]) -> Table:
    """One row an arm; differences and p-values are to the first row's arm."""
    head = ["arm", "episodes", "successes", "success rate", "95 % interval", "mean frames", "successes per simulated hour"]
    head += ["difference, points", "95 % interval", "p"]
    return Table(head, [_success_row(summary) for summary in summaries])


def _success_row(summary: ArmSummary) -> list[str]:
    test = summary.test
    return [
        f"{summary.arm.label} (control)" if summary.arm.control else summary.arm.label,
        str(summary.n),
        str(summary.successes),
        percent(summary.rate),
        f"{100 * summary.low:.0f} to {percent(summary.high)}",
        f"{summary.mean_frames:.1f}",
        f"{summary.successes_per_hour:,.0f}",
        *(["reference", MISSING, MISSING] if test is None else difference_cells(test)),
    ]


def difference_cells(test: PairedTest) -> list[str]:
    """Difference in points, its interval, and p."""
    difference = test.difference
    interval = f"{100 * difference.low:+.0f} to {100 * difference.high:+.0f}"
    return [f"{100 * difference.estimate:+.0f}", interval, format_p(test.p_value).removeprefix("= ")]


def controls_table(found: list[Comparison]) -> Table:
    """Arms whose policies differ in one thing."""
    head = ["arm", "compared with", "what differs there", "solved", "solved there", "difference, points", "95 % interval", "p"]
    rows = []
    for comparison in found:
        treatment, other = comparison.treatment, comparison.other
        solved = [str(int(outcomes.sum())) for outcomes in in_common(treatment, other)]
        rows.append([treatment.label, other.label, comparison.what, *solved, *difference_cells(comparison.test)])
    return Table(head, rows)


def pairs_table(pairs: list[Pair]) -> Table:
    head = ["first", "second", "solved by the first only", "solved by the second only", "p"]
    rows = [
        [pair.first.label, pair.second.label, str(pair.only_first), str(pair.only_second), format_p(pair.p_value).removeprefix("= ")]
        for pair in pairs
    ]
    return Table(head, rows)


def policy_table(results: Results) -> Table:
    """Training of every policy: where it started, its losses, and the flip test beside its noise scale."""
    head = ["policy", "labels", "starts from", "steps", "loss", "plain prompt, training frames", "plain prompt, held out"]
    head += ["indicator dropped", "flip test", "positive to negative", "two noises", "flip test on"]
    rows = []
    for tag, config in results.experiment.policies.items():
        log = results.metrics("policies", tag)
        if log:
            loss, dropped = _mean(row.get("train/loss") for row in _late(log)), _mean(row.get("train/unconditional_rate") for row in log)
            plain = [number(_last(log, f"{source}/loss")) for source in ("eval_train", "eval")]
            flip = [number(_last(log, f"flip/{pair}")) for pair in ("positive_plain", "positive_negative", "noise")]
            frames = ("held-out frames" if config.eval_datasets else "training frames") if config.advantage_tag else MISSING
            start = [labels_of(config), starts_from(config), str(log[-1]["step"])]
            rows.append([tag, *start, number(loss), *plain, percent_or_missing(dropped), *flip, frames])
    return Table(head, rows)


def labels_of(config: PolicyConfig) -> str:
    """The labels that a policy learns from, and what a control does to them."""
    control = LABEL_CONTROLS[config.label_control]
    return f"{config.advantage_tag}, control: {control}" if control else config.advantage_tag or "none"


def starts_from(config: PolicyConfig) -> str:
    """The weights that a policy's training starts from."""
    if config.init_from:
        return f"policy {config.init_from}"
    return f"base {Path(config.model.pretrained_path).name}" if config.model.pretrained_path else "random weights"


def branch_table(results: Results) -> Table:
    """Samples and loss of every branch that a conditional policy trained: positive or negative label, indicator shown or dropped."""
    rows = []
    for tag in results.experiment.policies:
        log = results.metrics("policies", tag)
        counts = {branch: sum(row.get(f"train/count_{branch}") or 0 for row in log) for branch in BRANCHES}
        for branch, count in counts.items():
            if count:
                loss = _branch_loss(_late(log), branch)
                rows.append([tag, branch_name(branch), f"{count:,.0f}", percent(count / sum(counts.values())), number(loss)])
    return Table(["policy", "branch", "samples", "share", "loss"], rows)


def branch_name(branch: str) -> str:
    """``positive_dropped`` as people read it."""
    label, _, prompt = branch.partition("_")
    return f"{label}, {PROMPTS[prompt]}"


def _branch_loss(log: list[dict], branch: str) -> float | None:
    """Mean loss over the samples of a branch, not over steps: a step may hold few of them."""
    rows = [row for row in log if row.get(f"train/loss_{branch}") is not None]
    if not rows:
        return None
    return float(np.average([row[f"train/loss_{branch}"] for row in rows], weights=[row[f"train/count_{branch}"] for row in rows]))


def _late(log: list[dict]) -> list[dict]:
    """The last tenth of training."""
    return [row for row in log if row["step"] > 0.9 * log[-1]["step"]]


def _mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that were logged; None if none was."""
    logged = [value for value in values if value is not None]
    return float(np.mean(logged)) if logged else None


def _last(log: list[dict], metric: str) -> float | None:
    return next((row[metric] for row in reversed(log) if row.get(metric) is not None), None)


def number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def percent_or_missing(value: float | None) -> str:
    return MISSING if value is None else percent(value)


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"
