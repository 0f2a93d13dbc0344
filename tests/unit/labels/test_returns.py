import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.labels.returns import compute_returns, statistics

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/returns.json").read_text())


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"T{case['length']}_success{case['success']}_gamma{case['gamma']}")
def test_golden_returns_and_rewards_are_exact(case):
    returns, rewards = compute_returns(np.array([case["length"]]), np.array([case["success"]]), case["gamma"], case["failure_reward"])
    assert returns.dtype == rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, np.float32(case["reward"]))
    np.testing.assert_array_equal(returns, np.float32(case["return"]))


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99, 0.9999, 1 - 1e-12, 1.0])
def test_closed_form_equals_the_float64_reverse_scan(gamma):
    lengths, success = np.array([3000, 1, 17]), np.array([False, True, False])
    returns, rewards = compute_returns(lengths, success, gamma, -300.0)
    for episode_rewards, episode_returns in zip(np.split(rewards, np.cumsum(lengths)), np.split(returns, np.cumsum(lengths)), strict=True):
        expected, following = [], 0.0
        for reward in episode_rewards[::-1].astype(float):
            following = reward + gamma * following
            expected.append(following)
        np.testing.assert_array_equal(episode_returns, np.float32(expected[::-1]))


def test_every_episode_ends_with_its_own_terminal_reward():
    returns, rewards = compute_returns(np.array([2, 3, 1]), np.array([True, False, False]), 1.0, -50.0)
    assert rewards.tolist() == [-1, 0, -1, -1, -50, -50]
    assert returns.tolist() == [-1, 0, -52, -51, -50, -50]


def test_no_episodes_give_no_returns():
    returns, rewards = compute_returns(np.array([], np.int64), np.array([], bool), 1.0, -1.0)
    assert len(returns) == len(rewards) == 0


def test_statistics_are_accumulated_in_float64():
    constant = np.full(3_000_000, -300.1, np.float32)
    found = statistics(constant)
    assert found["mean"] == pytest.approx(float(np.float32(-300.1)), rel=1e-12)
    assert found["std"] == pytest.approx(0.0, abs=1e-9)
    assert found["min"] == found["max"] == float(np.float32(-300.1))
