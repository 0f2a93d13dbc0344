"""Pairs of arms whose policies differ in one thing, and what it is. A policy that differs in more is no control."""

import dataclasses
from collections.abc import Iterator

from recap_steam.config import Experiment, PolicyConfig
from recap_steam.report.results import Arm
from recap_steam.report.verdict import LEVEL, PairedTest, format_p, judged, tested

WHAT = {  # what is different in the other policy
    "shuffled": "control: the same share of positive labels, on frames drawn by chance",
    "all_positive": "control: every frame labelled positive",
    "successes_and_interventions": "control: imitation of successes and interventions, no labels",
    "all": "control: imitation of all frames, no labels",
}
PLAIN = "the same weights under the plain prompt"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A policy with labels, ``treatment``, beside ``other``, which differs from it as ``what`` says."""

    treatment: Arm
    other: Arm
    what: str
    test: PairedTest


def comparisons(experiment: Experiment, arms: list[Arm]) -> list[Comparison]:
    """All pairs at one guidance scale whose configurations differ in one thing, and all scales of a policy beside its scale 0, if there is
    one, in the order of the arms."""
    return [Comparison(*pair, tested(pair[1], pair[0])) for pair in _pairs(experiment.policies, arms)]


def _pairs(policies: dict[str, PolicyConfig], arms: list[Arm]) -> Iterator[tuple[Arm, Arm, str]]:
    for place, treatment in enumerate(arms):
        labelled = policies.get(treatment.policy)
        if labelled is None or labelled.advantage_tag is None or labelled.label_control != "none":
            continue  # no labels of its own
        for other_place, other in enumerate(arms):
            what = _difference_of_arms(policies, treatment, other)
            if what and (what in (PLAIN, *WHAT.values()) or place < other_place):  # labels against other labels: once
                yield treatment, other, what


def _difference_of_arms(policies: dict[str, PolicyConfig], treatment: Arm, other: Arm) -> str | None:
    """The one thing in which ``other`` differs; None if it differs in more or in nothing."""
    if other.policy == treatment.policy:
        return PLAIN if other.guidance_scale == 0 != treatment.guidance_scale else None
    if other.policy not in policies or other.guidance_scale not in (None, treatment.guidance_scale):
        return None
    return _difference(policies[treatment.policy], policies[other.policy])


def _difference(treatment: PolicyConfig, other: PolicyConfig) -> str | None:
    if other.label_control != "none":
        same, what = ("label_control",), WHAT[other.label_control]
    elif other.advantage_tag is not None:
        same, what = ("advantage_tag",), f"labels {other.advantage_tag} instead of {treatment.advantage_tag}"
    else:
        same = ("advantage_tag", "frame_filter", "unconditional_prob", "positive_only_conditional")  # the last two need labels
        what = WHAT[other.frame_filter]
    alike = dataclasses.replace(other, **{name: getattr(treatment, name) for name in same})
    return what if alike == treatment and other != treatment else None


def sentences(tag: str, found: list[Comparison]) -> list[str]:
    """One sentence for each arm with labels: what it gained over each arm that differs from it in one thing."""
    by_arm: dict[str, list[str]] = {}
    for comparison in found:
        by_arm.setdefault(comparison.treatment.label, []).append(_clause(comparison, LEVEL / len(found)))
    return [f"{tag}: {arm} is {'; '.join(clauses)}." for arm, clauses in by_arm.items()]


def _clause(comparison: Comparison, level: float) -> str:
    test = comparison.test
    verdict = {"better": "significantly better than", "worse": "significantly worse than", None: "not told apart from"}[judged(test, level)]
    numbers = f"{100 * test.difference.estimate:+.0f} points, p {format_p(test.p_value)}"
    return f"{verdict} {comparison.other.label} ({comparison.what}; {numbers})"
