"""What a reader of labels should know first. Each warning names what it saw; what to do is in docs/troubleshooting.md at length."""

from collections.abc import Iterator

import numpy as np

from recap_steam.labels.scores import EXPERT
from recap_steam.report.document import Notice
from recap_steam.report.label_report import LabelledDataset, LabelReport
from recap_steam.report.results import Results

END_RATE = 0.5  # of a failure's last tenth, beyond which labels say that its end is good
FAR = 0.1  # between the share of positives that was asked for and the one that came out


def warnings(results: Results, reports: list[LabelReport]) -> list[Notice]:
    """Of critics, then of every tag."""
    return [*_critics(results), *(notice for report in reports for check in CHECKS for notice in check(report))]


def _critics(results: Results) -> Iterator[Notice]:
    """Critics that do not beat the predictor that sees no image."""
    for tag, evaluation in results.evaluations(results.value_critics):
        for metric, name in (("mae", "MAE"), ("loss", "loss")):
            error, clock = evaluation.get(f"eval/{metric}"), evaluation.get(f"baseline_time/{metric}")
            if error is not None and clock is not None and error >= clock:
                yield Notice(
                    f"Critic {tag}: held-out {name} {error:.3f} is no better than the {clock:.3f} of a predictor that knows only the time.",
                    "Labels from such a critic may be noise: check its cameras, and add failures and distinct episodes."
                    if metric == "mae"
                    else "Its distribution is too sure of itself: fewer steps, value_dropout, more episodes. Its mean may still be of use.",
                )
    for tag, evaluation in results.evaluations(results.ensembles):
        hit, majority = evaluation.get("eval/accuracy"), evaluation.get("baseline_majority/accuracy")
        if hit is not None and majority is not None and hit <= majority:
            yield Notice(
                f"Critic {tag}: held-out bin accuracy {hit:.3f} is no better than {majority:.3f}, always the most frequent bin.",
                "It has learned no order of frames: train longer, take another k, or check its cameras.",
            )


def _ends_of_failures(report: LabelReport) -> Iterator[Notice]:
    for dataset in report.rollouts():
        failures = ~dataset.episodes.row_success() & ~dataset.intervention
        rate = dataset.rates(failures)[-1]
        if rate > END_RATE:
            yield Notice(
                f"Labels {report.tag}: the last tenth of the failures of {dataset.name} is {_percent(rate)} positive.",
                "The critic expected worse, or is blind: look at its values there, add failures, or set failure_reward further from 0.",
            )


def _nothing_positive(report: LabelReport) -> Iterator[Notice]:
    for dataset in report.datasets:
        if not dataset.positive.any():
            yield Notice(
                f"Labels {report.tag}: dataset {dataset.name} has no positive frame.",
                "Give it a threshold of its own (pool: per_dataset), ask for a larger share, or leave it out of the policy.",
            )
    if not report.datasets or not any(dataset.positive.any() for dataset in report.datasets):
        return
    for task in sorted({task for dataset in report.datasets for task in dataset.episodes.tasks}):
        if not any(_positive_of_task(dataset, task).any() for dataset in report.datasets):
            yield Notice(
                f"Labels {report.tag}: the task \N{LEFT DOUBLE QUOTATION MARK}{task}\N{RIGHT DOUBLE QUOTATION MARK} has no positive frame.",
                "One threshold favours the easy tasks: pool: per_task, and normalization: per_task if lengths differ much.",
            )


def _positive_of_task(dataset: LabelledDataset, task: str) -> np.ndarray:
    """Labels of the dataset's frames of a task; none if it lacks the task."""
    tasks = dataset.episodes.tasks
    return dataset.positive[dataset.episodes.prompt_codes() == tasks.index(task)] if task in tasks else np.zeros(0, bool)


def _all_equal(report: LabelReport) -> Iterator[Notice]:
    for dataset in () if report.imported else report.datasets:
        if len(dataset.score) > 1 and np.ptp(dataset.score) == 0:
            yield Notice(
                f"Labels {report.tag}: all {len(dataset.score):,} frames of {dataset.name} have the same score, {dataset.score[0]:.3g}.",
                "Nothing is told apart: the critic is constant. Check its learning curves and the returns that it learned from.",
            )


def _far_from_asked(report: LabelReport) -> Iterator[Notice]:
    """Of rollouts, and of demonstrations only where a share was asked of them."""
    expert = [dataset for dataset in report.datasets if dataset.type == "sft"] if EXPERT in report.thresholds else []
    asked_of_expert = getattr(report.config, "expert_quantile", None)
    for datasets, asked, name in ((report.rollouts(), report.asked, "rollouts"), (expert, asked_of_expert, "demonstrations")):
        if not datasets or asked is None:
            continue
        frames = sum(len(dataset.positive) for dataset in datasets)
        realised, above = (sum(counts) / frames for counts in ([d.positive.sum() for d in datasets], [d.num_above for d in datasets]))
        if abs(realised - asked) > FAR:
            forced = realised - above > abs(above - asked)
            yield Notice(
                f"Labels {report.tag}: {_percent(realised)} of the frames of {name} are positive, {_percent(asked)} were asked for "
                f"({_percent(above)} by the threshold).",
                "Corrections make the difference: intervention_positive: false leaves them to the threshold, or ask for a smaller share."
                if forced
                else "Either many frames share the threshold's score, or the threshold is drawn from other frames: see pool.",
            )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


CHECKS = (_nothing_positive, _all_equal, _ends_of_failures, _far_from_asked)
