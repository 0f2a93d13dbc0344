"""N-step advantages of all frames of a dataset at once (RECAP step 3)."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Advantages:
    """N-step advantages and what they were made of; every array is (F,), float64 unless stated, in row order.

    Attributes:
        advantage: in returns divided by |return_min|.
        value_next: value of the frame N steps on, 0 past the end of the episode.
        reward_sum: discounted rewards of the next n frames, divided by |return_min|.
        reward_sum_raw: the same in frames.
        num_valid_rewards: n = min(N, frames until the end of the episode), int64.
    """

    advantage: np.ndarray
    value_next: np.ndarray
    reward_sum: np.ndarray
    reward_sum_raw: np.ndarray
    num_valid_rewards: np.ndarray


def compute_advantages(
    returns: np.ndarray,
    values: np.ndarray,
    lengths: np.ndarray,
    *,
    lookahead: int,
    gamma: float,
    discount_next_value: bool,
    scale: float | np.ndarray,
) -> Advantages:
    """Return ``A_t = R_t / scale + gamma^N V_{t+N} - V_t`` with ``R_t = G_t - gamma^N G_{t+N}``; both terms at t+N are 0 past the end.

    R_t is the discounted sum of the rewards of the n = min(N, T-t) frames from t on. Taking it from two returns holds for every gamma
    and needs no loop over rewards. Where t+N lies inside the episode n is N, so one discount serves all frames.

    Args:
        returns: (F,) G in frames, row order.
        values: (F,) V, in returns divided by ``scale``.
        lengths: (E,) int frames per episode, in the same order.
        lookahead: N, at least 1.
        gamma: discount that the returns were made with.
        discount_next_value: false leaves out gamma^N before V_{t+N} (RLinf's option).
        scale: |return_min| of the critic, a float or (F,) by frame.
    """
    steps = min(lookahead, int(lengths.max(initial=1)))
    discount = gamma**steps
    num_valid = np.repeat(np.cumsum(lengths), lengths)
    num_valid -= np.arange(len(returns))  # so far: frames until the end of the episode, this one included
    inside = num_valid > steps  # the frame N steps on is of the same episode; exactly N frames left is past the end
    np.minimum(num_valid, steps, out=num_valid)
    reward_sum_raw = np.asarray(returns, np.float64) - discount * _ahead(returns, steps, inside)
    reward_sum = reward_sum_raw / scale
    value_next = _ahead(values, steps, inside)
    advantage = reward_sum + (discount if discount_next_value else 1.0) * value_next
    advantage -= values
    return Advantages(advantage, value_next, reward_sum, reward_sum_raw, num_valid)


def _ahead(array: np.ndarray, steps: int, inside: np.ndarray) -> np.ndarray:
    """Return the entry ``steps`` rows on where ``inside``, else 0: (F,) float64."""
    shifted = np.zeros(len(array))
    last = len(array) - steps
    np.copyto(shifted[:last], array[steps:], where=inside[:last])
    return shifted
