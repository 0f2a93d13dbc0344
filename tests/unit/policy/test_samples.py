"""Which frames a policy trains on."""

import numpy as np

from recap_steam.policy.samples import select_rows
from tests.datasets import index, write_v30


def test_a_corrected_success_counts_only_its_correction(tmp_path):
    root = write_v30(tmp_path / "rollouts", [3, 4, 5, 2], success=[True, True, False, False], interventions=[(1, 2, 4), (2, 4, 5)])
    _, episodes = index(root)
    np.testing.assert_array_equal(select_rows("successes_and_interventions", episodes), [0, 1, 2, 5, 6, 11])
    np.testing.assert_array_equal(select_rows("all", episodes), np.arange(14))
