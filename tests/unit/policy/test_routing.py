import numpy as np
import pytest

from recap_steam.policy.prompts import NEGATIVE, PLAIN, POSITIVE
from recap_steam.policy.routing import BRANCHES, branches, branches_of, route

LABELS = np.array([True, True, False, False])
U = np.array([0.2, 0.31, 0.2, 0.31])


def test_only_positive_samples_see_the_indicator():
    assert route(LABELS, U, True, 0.3).tolist() == [PLAIN, POSITIVE, PLAIN, PLAIN]


def test_both_indicators():
    assert route(LABELS, U, False, 0.3).tolist() == [PLAIN, POSITIVE, PLAIN, NEGATIVE]


def test_u_must_exceed_the_probability():
    """The reference's rule is strict: u equal to the probability still drops the indicator, so probability 1 always does."""
    assert route(np.array([True]), np.array([0.3]), True, 0.3).tolist() == [PLAIN]
    assert route(LABELS, np.full(4, np.nextafter(1, 0)), False, 1.0).tolist() == [PLAIN] * 4
    assert route(LABELS, np.full(4, 1e-9), False, 0.0).tolist() == [POSITIVE, POSITIVE, NEGATIVE, NEGATIVE]


@pytest.mark.parametrize("positive_only", [True, False])
def test_realised_rates(positive_only):
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.4
    kinds = route(labels, rng.random(20_000), positive_only, 0.3)
    assert (kinds[labels] == PLAIN).mean() == pytest.approx(0.3, abs=0.02)
    assert (kinds[~labels] == PLAIN).mean() == pytest.approx(1.0 if positive_only else 0.3, abs=0.02)
    assert not (kinds[labels] == NEGATIVE).any() and not (kinds[~labels] == POSITIVE).any()


@pytest.mark.parametrize(
    ("positive_only", "expected"),
    [
        (False, ["positive_dropped", "positive_conditional", "negative_dropped", "negative_conditional"]),
        (True, ["positive_dropped", "positive_conditional", "negative", "negative"]),
    ],
)
def test_branch_names(positive_only, expected):
    kinds = route(LABELS, U, positive_only, 0.3)
    names = branches_of(positive_only)
    assert [names[index] for index in branches(LABELS, kinds, positive_only)] == expected
    assert set(names) == set(expected) <= set(BRANCHES)
