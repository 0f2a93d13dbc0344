"""An arm stops at a look at which it is told apart from the first arm, and not before."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.errors import UserError
from recap_steam.simulation.rollout import Episode
from recap_steam.simulation.stopping import until_decided

NOTHING = np.zeros((1, 4), np.float32)


def episodes(success: np.ndarray, seed: int = 90):
    return (
        Episode(number, seed + number, bool(outcome), None, NOTHING, NOTHING, np.zeros(1, bool)) for number, outcome in enumerate(success)
    )


@pytest.fixture
def reference(tmp_path):
    """A first arm that fails in all of 40 states."""
    path = tmp_path / "start_plain.parquet"
    pq.write_table(pa.table({"episode": np.arange(40), "seed": 90 + np.arange(40), "success": np.zeros(40, bool)}), path)
    return path


@pytest.mark.parametrize(("level", "stopped"), [(0.2, 10), (0.011, 10), (0.01, 20), (1e-11, 40)])
def test_an_arm_that_always_succeeds_stops_at_the_first_look_that_tells(reference, level, stopped):
    """After 10 states p is 11 / 2^10 = 0.0107, after 20 it is 21 / 2^20."""
    assert len(list(until_decided(episodes(np.ones(40, bool)), reference, level, every=10))) == stopped


def test_an_arm_that_is_alike_sees_every_state(reference):
    assert len(list(until_decided(episodes(np.zeros(40, bool)), reference, 0.05, every=10))) == 40


@pytest.mark.parametrize(("count", "seed"), [(40, 91), (41, 90)])
def test_other_states_are_refused(reference, count, seed):
    with pytest.raises(UserError, match=r"start_plain\.parquet: has no episode from seed"):
        list(until_decided(episodes(np.zeros(count, bool), seed), reference, 0.05, every=10))
