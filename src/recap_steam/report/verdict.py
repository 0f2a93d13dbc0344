"""What an evaluation says: paired statistics of its arms, and the sentences that state them. Nothing here knows which outcome is wanted."""

import dataclasses

import numpy as np

from recap_steam.report.results import Arm
from recap_steam.simulation.statistics import (
    Difference,
    mcnemar_always_valid,
    mcnemar_exact,
    paired_difference,
    successes_per_hour,
    wilson_interval,
)
from recap_steam.simulation_config import LEVEL


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """Difference of an arm's success rate to another's on the initial states that both saw, and the exact McNemar test of it (the
    always-valid one where arms may stop early)."""

    difference: Difference
    p_value: float


def tested(reference: Arm, arm: Arm) -> PairedTest:
    return PairedTest(paired_difference(*in_common(reference, arm)), _p_value(reference, arm))


def in_common(first: Arm, second: Arm) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes (n,) bool of two arms on the initial states that both saw: all, unless one stopped early."""
    n = min(len(first.success), len(second.success))
    return first.success[:n], second.success[:n]


def _p_value(first: Arm, second: Arm) -> float:
    test = mcnemar_always_valid if first.may_stop else mcnemar_exact
    return test(*in_common(first, second))


def judged(test: PairedTest, level: float) -> str | None:
    """``better`` or ``worse``; None where the difference cannot be told from chance at this level."""
    if test.p_value >= level:
        return None
    return "better" if test.difference.estimate > 0 else "worse"


@dataclasses.dataclass(frozen=True)
class ArmSummary:
    """One arm over n initial states: ``rate`` in [0, 1] with its 95 % interval, and the test against the reference arm (None there)."""

    arm: Arm
    n: int
    successes: int
    rate: float
    low: float
    high: float
    mean_frames: float
    successes_per_hour: float
    test: PairedTest | None


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two arms on the initial states that both saw: how many only one of them solved, and the p-value as of ``PairedTest``."""

    first: Arm
    second: Arm
    only_first: int
    only_second: int
    p_value: float


def summarise(arms: list[Arm], fps: float) -> list[ArmSummary]:
    """Summaries in the order given; the first arm is the reference. ``fps``: recorded frames per second of simulated time."""
    return [_summary(arm, arms[0] if number else None, fps) for number, arm in enumerate(arms)]


def _summary(arm: Arm, reference: Arm | None, fps: float) -> ArmSummary:
    n, successes = len(arm.success), int(arm.success.sum())
    low, high = wilson_interval(successes, n)
    return ArmSummary(
        arm=arm,
        n=n,
        successes=successes,
        rate=successes / n,
        low=low,
        high=high,
        mean_frames=float(arm.num_frames.mean()),
        successes_per_hour=successes_per_hour(successes, int(arm.num_frames.sum()), fps),
        test=None if reference is None else tested(reference, arm),
    )


def pairs(arms: list[Arm]) -> list[Pair]:
    """Every pair of arms, in the order given."""
    return [_pair(first, second) for number, first in enumerate(arms) for second in arms[number + 1 :]]


def _pair(first: Arm, second: Arm) -> Pair:
    one, two = in_common(first, second)
    return Pair(first, second, int(np.sum(one & ~two)), int(np.sum(~one & two)), _p_value(first, second))


def sentences(tag: str, summaries: list[ArmSummary]) -> list[str]:
    """One sentence an arm: what it solved beside the reference, and whether the difference can be told from chance."""
    reference, others = summaries[0], summaries[1:]
    if not others:
        return [f"{tag}: {reference.arm.label} solved {reference.successes} of {reference.n} initial states; nothing was compared with it."]
    return [_sentence(tag, reference, other, LEVEL / len(others)) for other in others]


def _sentence(tag: str, reference: ArmSummary, other: ArmSummary, level: float) -> str:
    solved = int(reference.arm.success[: other.n].sum())
    counts = f"{other.arm.title} solved {other.successes} of {other.n} initial states, {reference.arm.title} {solved}"
    difference = f"difference {100 * other.test.difference.estimate:+.0f} points, p {format_p(other.test.p_value)}"
    verdict = judged(other.test, level)
    return f"{tag}: {counts}; {difference}: {f'significantly {verdict}' if verdict else 'not significant at this number of episodes'}."


def format_p(p_value: float) -> str:
    if p_value < 0.001:
        return "< 0.001"
    return f"= {p_value:.2f}" if p_value >= 0.095 else f"= {p_value:.3f}"
