"""Numbers and sentences of an evaluation: computed from the outcomes, whatever they are."""

import dataclasses

import numpy as np
import pytest

from recap_steam.report.results import Arm
from recap_steam.report.verdict import format_p, pairs, sentences, summarise


def arm(policy: str, solved: int, n: int = 50, scale: float | None = None, frames: int = 40) -> Arm:
    """An arm that solves the first ``solved`` states."""
    return Arm(policy, scale, np.arange(n), np.arange(n) < solved, np.full(n, frames))


def test_summary_of_counts():
    reference, other = summarise([arm("start", 25), arm("recap", 31, scale=2.0)], fps=16)
    assert (reference.n, reference.successes, reference.rate, reference.test) == (50, 25, 0.5, None)
    assert (reference.low, reference.high) == pytest.approx((0.366, 0.634), abs=5e-4)  # Wilson, by hand
    assert reference.successes_per_hour == pytest.approx(25 / (50 * 40 / 16 / 3600))
    assert other.test.difference.estimate == pytest.approx(0.12)
    assert other.test.p_value == pytest.approx(2 * 0.5**6)  # six states solved by one arm only


def test_pairs_count_states_that_only_one_arm_solved():
    first, second = arm("start", 10), Arm("recap", 1.0, np.arange(50), np.arange(50) >= 8, np.full(50, 40))
    (pair,) = pairs([first, second])
    assert (pair.only_first, pair.only_second) == (8, 40)


def test_sentence_says_not_significant():
    (sentence,) = sentences("paired", summarise([arm("start", 25), arm("recap", 28, scale=2.0)], fps=16))
    assert sentence == (
        "paired: recap, guidance 2 solved 28 of 50 initial states, start 25; difference +6 points, p = 0.25: "
        "not significant at this number of episodes."
    )


def test_sentence_says_worse():
    (sentence,) = sentences("paired", summarise([arm("start", 40), arm("recap", 20, scale=1.0)], fps=16))
    assert sentence.endswith("difference -40 points, p < 0.001: significantly worse.")


def test_level_is_divided_by_the_number_of_comparisons():
    arms = [arm("start", 25), arm("a", 31), arm("b", 25), arm("c", 25)]  # p = 0.031 for a
    assert "significantly better" in sentences("paired", summarise(arms[:2], fps=16))[0]
    assert "not significant" in sentences("paired", summarise(arms, fps=16))[0]


def test_single_arm_is_compared_with_nothing():
    (sentence,) = sentences("paired", summarise([arm("start", 0)], fps=16))
    assert sentence == "paired: start solved 0 of 50 initial states; nothing was compared with it."


def test_a_control_is_called_one():
    control = dataclasses.replace(arm("shuffled", 25, scale=1.0), control="labels shuffled")
    (sentence,) = sentences("paired", summarise([arm("start", 25), control], fps=16))
    assert sentence.startswith("paired: shuffled, guidance 1 (control: labels shuffled) solved 25 of 50 initial states, start 25;")


@pytest.mark.parametrize(("p_value", "text"), [(0.0001, "< 0.001"), (0.012, "= 0.012"), (0.184, "= 0.18"), (1.0, "= 1.00")])
def test_p_value_format(p_value, text):
    assert format_p(p_value) == text


def test_arms_that_may_stop_are_compared_on_the_states_that_both_saw_by_an_always_valid_p():
    first, second = (dataclasses.replace(arm(*shape), may_stop=True) for shape in (("start", 10, 50), ("recap", 20, 20)))
    reference, other = summarise([first, second], fps=16)
    assert (reference.n, other.n) == (50, 20)
    assert other.test.difference.estimate == pytest.approx(0.5)  # 20 of 20, and 10 of the same 20
    assert other.test.p_value == pytest.approx(11 / 2**10)
    (sentence,) = sentences("paired", [reference, other])
    assert sentence.startswith("paired: recap solved 20 of 20 initial states, start 10; difference +50 points, p = 0.011: significantly")
    (pair,) = pairs([first, second])
    assert (pair.only_first, pair.only_second, pair.p_value) == (0, 10, other.test.p_value)
