"""Pairs of arms whose policies differ in one thing, and what it is. A policy that differs in more is no control."""

import dataclasses
from collections.abc import Iterator

from recap_steam.config import Experiment, PolicyConfig
from recap_steam.report.results import Arm, ArmKey
from recap_steam.report.verdict import PairedTest, format_p, judged, tested
from recap_steam.simulation_config import LEVEL

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
    """All pairs that ``differing_in_one_thing`` finds, tested, in the order of the arms."""
    by_key = {arm.key: arm for arm in arms}
    pairs = [(by_key[treatment], by_key[other], what) for treatment, other, what in differing_in_one_thing(experiment.policies, [*by_key])]
    return [Comparison(*pair, tested(pair[1], pair[0])) for pair in pairs]


def differing_in_one_thing(policies: dict[str, PolicyConfig], arms: list[ArmKey]) -> Iterator[tuple[ArmKey, ArmKey, str]]:
    """(arm with labels, arm that differs in one thing, what it is) of arms at one guidance scale, and of all scales of a policy beside its
    scale 0, if there is one; in the order of the arms."""
    for place, treatment in enumerate(arms):
        if not has_own_labels(policies, treatment):
            continue
        for other_place, other in enumerate(arms):
            what = _difference_of_arms(policies, treatment, other)
            if what and (what in (PLAIN, *WHAT.values()) or place < other_place):  # labels against other labels: once
                yield treatment, other, what


def has_own_labels(policies: dict[str, PolicyConfig], arm: ArmKey) -> bool:
    """Whether an arm's policy learned from labels, as they are; the scripted expert, plain imitation and controls of labels did not."""
    policy = policies.get(arm[0])
    return policy is not None and policy.advantage_tag is not None and policy.label_control == "none"


def _difference_of_arms(policies: dict[str, PolicyConfig], treatment: ArmKey, other: ArmKey) -> str | None:
    """The one thing in which ``other`` differs; None if it differs in more or in nothing."""
    (policy, scale), (other_policy, other_scale) = treatment, other
    if other_policy == policy:
        return PLAIN if other_scale == 0 != scale else None
    if other_policy not in policies or other_scale not in (None, scale):
        return None
    return _difference(policies[policy], policies[other_policy])


def _difference(treatment: PolicyConfig, other: PolicyConfig) -> str | None:
    if other.label_control == "all_positive":
        same, what = ("label_control", "advantage_tag"), WHAT[other.label_control]  # of labels that are all alike, the tag says nothing
    elif other.label_control != "none":
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
