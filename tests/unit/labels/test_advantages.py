import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.labels.advantages import compute_advantages
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.returns import compute_returns

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/advantages.json").read_text())


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"N{case['lookahead']}_gamma{case['gamma']}_{case['discount_next_value']}")
def test_golden_advantages(case, offset):
    """Also of a critic whose values lie between 0 and 1."""
    lengths = np.array([episode["length"] for episode in case["episodes"]])
    success = np.array([episode["success"] for episode in case["episodes"]])
    values = np.concatenate([episode["values"] for episode in case["episodes"]])
    returns, _ = compute_returns(lengths, success, case["gamma"], case["failure_reward"])
    normalizer = ReturnNormalizer(case["return_min"], offset)
    found = compute_advantages(
        returns,
        normalizer.without_offset((values + offset).astype(np.float32)),
        lengths,
        lookahead=case["lookahead"],
        gamma=case["gamma"],
        discount_next_value=case["discount_next_value"],
        scale=normalizer.scale(np.zeros(len(values), int), ["task"]),
    )
    np.testing.assert_allclose(found.advantage, case["advantage_continuous"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.reward_sum, case["reward_sum"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.reward_sum_raw, np.array(case["reward_sum"]) * 302, rtol=0, atol=3e-4)
    np.testing.assert_array_equal(found.num_valid_rewards, case["num_valid_rewards"])
    np.testing.assert_allclose(found.value_next, case["value_next"], rtol=0, atol=1e-6)
    assert found.num_valid_rewards.dtype == np.int64


@pytest.mark.parametrize("gamma", [1.0, 0.97])
@pytest.mark.parametrize("lookahead", [1, 3, 10, 1000])
def test_a_perfect_critic_leaves_no_advantage(gamma, lookahead):
    rng = np.random.default_rng(0)
    lengths, success = rng.integers(1, 30, 40), rng.random(40) < 0.5
    returns, _ = compute_returns(lengths, success, gamma, -50.0)
    scale = float(-returns.min())
    found = compute_advantages(
        returns, returns.astype(float) / scale, lengths, lookahead=lookahead, gamma=gamma, discount_next_value=True, scale=scale
    )
    np.testing.assert_allclose(found.advantage, 0.0, atol=1e-12)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reward_sums_equal_a_loop_over_rewards(gamma):
    rng = np.random.default_rng(1)
    lengths, success = np.array([1, 2, 7, 5, 12]), np.array([True, False, False, True, False])
    returns, rewards = compute_returns(lengths, success, gamma, -9.0)
    values = rng.normal(size=lengths.sum())
    scale = rng.uniform(1, 5, lengths.sum())
    found = compute_advantages(returns, values, lengths, lookahead=4, gamma=gamma, discount_next_value=True, scale=scale)
    row = 0
    for length in lengths:
        for t in range(length):
            following = rewards[row : row + min(4, length - t)].astype(float)
            expected = sum(gamma**k * reward for k, reward in enumerate(following))
            bootstrap = gamma**4 * values[row + 4] if t + 4 < length else 0.0
            assert found.reward_sum_raw[row] == pytest.approx(expected, abs=1e-5)
            assert found.advantage[row] == pytest.approx(expected / scale[row] + bootstrap - values[row], abs=1e-5)
            row += 1
