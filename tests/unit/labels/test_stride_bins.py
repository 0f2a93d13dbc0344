"""Stride bins against the reference's values."""

import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.labels.stride_bins import stride_bins

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/steam_bins.json").read_text())


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"k{case['k']}-bins{case['num_bins']}")
def test_golden_values(case):
    strides = np.array([int(stride) for stride in case["bins"]])
    np.testing.assert_array_equal(stride_bins(strides, case["k"], case["num_bins"]), list(case["bins"].values()))


@pytest.mark.parametrize(("strides", "k", "num_bins"), [([1], 8, 7), ([1], 8, 6), ([0], 8, 8), ([9], 8, 8), ([-9], 8, 8)])
def test_what_no_bin_holds_is_an_error(strides, k, num_bins):
    with pytest.raises(UserError, match=r"num_bins|stride"):
        stride_bins(np.array(strides), k, num_bins)
