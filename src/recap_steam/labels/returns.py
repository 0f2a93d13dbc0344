"""Returns: the negative number of frames that are left, plus a penalty for a failed episode (RECAP step 1)."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.config import Experiment
from recap_steam.dataset.arrow import text_array, to_arrow
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.lineage import Lineage, code_digest
from recap_steam.sidecar import write_sidecar

STAGE = "compute_returns"

STEP_REWARD = -1.0


def compute_returns(lengths: np.ndarray, success: np.ndarray, gamma: float, failure_reward: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (returns, rewards) of all frames of all episodes, in row order.

    Reward: -1 per frame; the last frame of an episode earns 0 after a success, ``failure_reward`` after a failure. Return: the
    discounted sum from a frame to the end of its episode, undiscounted for ``gamma`` 1 (RLinf's ``compute_returns``).

    A return depends on nothing but the outcome and the number of frames left, so two tables as long as the longest episode hold
    every return that occurs: they are computed once in float64, by the closed form of the geometric series, and looked up.

    Args:
        lengths: (E,) int, frames per episode, each at least 1.
        success: (E,) bool.
        gamma: discount per frame, in (0, 1].
        failure_reward: in frames (each frame costs 1), at most 0.

    Returns:
        two (F,) float32 arrays, F = lengths.sum().
    """
    longest = int(lengths.max(initial=0))
    tables = np.concatenate([_returns_by_frames_left(longest, gamma, last) for last in (failure_reward, 0.0)]).astype(np.float32)
    ends = np.cumsum(lengths)
    num_frames = int(ends[-1]) if len(ends) else 0
    # Index of a row into the two tables: frames left until the end of its episode, plus one table length for successes.
    index = np.repeat((ends - 1 + success * longest), lengths)
    index -= np.arange(num_frames)
    rewards = np.full(num_frames, STEP_REWARD, np.float32)
    rewards[ends - 1] = np.where(success, 0.0, failure_reward)
    return tables[index], rewards


def _returns_by_frames_left(longest: int, gamma: float, last_reward: float) -> np.ndarray:
    """Return the (longest,) float64 returns of frames with 0, 1, 2, ... frames after them in the episode."""
    left = np.arange(longest, dtype=np.float64)
    if gamma == 1.0:
        return STEP_REWARD * left + last_reward
    # (1 - gamma^k) / (1 - gamma) without the cancellation that gamma near 1 would bring.
    log_discount = left * np.log(gamma)
    return STEP_REWARD * -np.expm1(log_discount) / (1.0 - gamma) + np.exp(log_discount) * last_reward


def rewards_of(returns: np.ndarray, lengths: np.ndarray, gamma: float) -> np.ndarray:
    """Return the (F,) float32 rewards whose discounted sums are ``returns`` (F,), in row order of episodes with ``lengths`` (E,)."""
    following = np.append(returns[1:], 0.0).astype(np.float64)
    following[np.cumsum(lengths) - 1] = 0.0
    return (returns - gamma * following).astype(np.float32)


def statistics(values: np.ndarray) -> dict[str, float]:
    """Return mean, population standard deviation, minimum and maximum of ``values``, accumulated in float64."""
    return {
        "mean": float(values.mean(dtype=np.float64)),
        "std": float(values.std(dtype=np.float64)),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def returns_stage(experiment: Experiment, dataset: str, tag: str, episodes_path: Path | str, output: Path | str) -> None:
    """Rule compute_returns: write the sidecar ``returns_{tag}.parquet`` of one dataset.

    Raises:
        UserError: the dataset changed since it was indexed, or what ``write_sidecar`` raises.
    """
    config = experiment.returns[tag]
    episodes = load_episodes(episodes_path, open_dataset(dataset, experiment.datasets[dataset].path))
    returns, rewards = compute_returns(episodes.length, episodes.success, config.gamma, config.failure_reward)
    lineage = Lineage(
        stage=STAGE,
        tag=tag,
        dataset_fingerprint=episodes.fingerprint,
        parameters=dataclasses.asdict(config),
        inputs={},
        statistics={"return": statistics(returns), "reward": statistics(rewards)},
        code=code_digest(__name__),
    )
    prompts = pa.DictionaryArray.from_arrays(to_arrow(episodes.prompt_codes()), text_array(episodes.tasks))
    write_sidecar(output, "returns", {"return": returns, "reward": rewards, "prompt": prompts}, episodes, lineage)
