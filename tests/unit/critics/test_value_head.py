import json
from pathlib import Path

import numpy as np
import pytest
import torch

from recap_steam.critics.value_head import Support, cross_entropy, describe

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/two_hot_201.json").read_text())
SUPPORT = Support(201, -1.0, 0.0)


def dense(target: float) -> np.ndarray:
    lower, weight = SUPPORT.two_hot(np.array([target]))
    row = np.zeros(201)
    row[lower[0]] += 1 - weight[0]
    row[lower[0] + 1] += weight[0]
    return row


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["target"]))
def test_two_hot_targets_are_golden(case):
    expected = np.zeros(201)
    for bin_, mass in case["bins"].items():
        expected[int(bin_)] = mass
    np.testing.assert_allclose(dense(case["target"]), expected, atol=1e-6)


def test_two_hot_targets_keep_the_expectation():
    for target in np.linspace(-1, 0, 37):
        assert dense(target) @ SUPPORT.atoms() == pytest.approx(target)


def test_cross_entropy_is_that_of_the_dense_targets():
    targets = np.array([-0.5012, -1.0, 0.0, -0.25])
    lower, weight = SUPPORT.two_hot(targets)
    logits = torch.randn(4, 201, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(
        logits, torch.tensor(np.stack([dense(t) for t in targets]), dtype=torch.float32), reduction="none"
    )
    torch.testing.assert_close(cross_entropy(logits, torch.tensor(lower), torch.tensor(weight, dtype=torch.float32)), expected)


def test_description_of_known_distributions():
    logits = torch.full((2, 201), -1e9)
    logits[0, 50] = 0.0  # certain: -0.75
    logits[1, [0, 200]] = 0.0  # -1 or 0, evenly
    found = describe(logits, SUPPORT)
    torch.testing.assert_close(found.value, torch.tensor([-0.75, -0.5]))
    torch.testing.assert_close(found.std, torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(found.entropy, torch.tensor([0.0, np.log(2.0)], dtype=torch.float32))
    assert found.best_bin.tolist() == [50, 0]
