"""From the scores of an ensemble of progress critics to labels (STEAM): baseline, worst of N, a pool of rollouts and one of expert frames.

Positive is what lies above a threshold, never what equals it. Frames of episodes without a full look-ahead are not judged: they are in no
pool and no score makes them positive, whatever the threshold's sign.
"""

import numpy as np

from recap_steam.errors import UserError
from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.labels.stride_bins import stride_bins
from recap_steam.labels.thresholds import ScoredFrames, Thresholds, quantile_threshold

ROLLOUT, EXPERT = "rollout", "expert"  # pools: frames of rollout and of sft datasets


def baseline_bin(k: int, num_bins: int, lookahead: int | None) -> int:
    """b_ref: bin of a stride of ``lookahead`` frames (None: k) in the longest episode, where strides count as they are."""
    return int(stride_bins(np.array([lookahead or k]), k, num_bins)[0])


def scores_above(baseline: int, expected_bins: np.ndarray, num_bins: int) -> np.ndarray:
    """Score (F,) of the worst member against a baseline: ``min_m 2/N (E_m[b] - b_ref)``, the formula of STEAM's description.

    Args:
        baseline: b_ref, a bin.
        expected_bins: (F, members) expected bin of each member, from 0 to N - 1.
        num_bins: N.
    """
    worst = expected_bins[:, 0].copy()
    for member in expected_bins.T[1:]:
        np.minimum(worst, member, out=worst)
    return (worst - baseline) * (2.0 / num_bins)


def score_thresholds(datasets: list[ScoredFrames], config: SteamAdvantagesConfig) -> Thresholds:
    """Return the threshold of each pool: the given one of rollouts, or the (1 - share) quantile of each pool that has a share.

    Raises:
        UserError: a pool without a judged frame.
    """
    if config.label_mode == "threshold":
        if any(frames.type == "rollout" for frames in datasets):
            _pool(datasets, ROLLOUT)
        return {ROLLOUT: config.positive_threshold}
    shares = {ROLLOUT: config.rollout_quantile, EXPERT: config.expert_quantile}
    return {pool: quantile_threshold(_pool(datasets, pool), share) for pool, share in shares.items() if share is not None}


def threshold_of(dataset_type: str, thresholds: Thresholds) -> float:
    """The threshold that the frames of a dataset are compared with; without one of their own, expert frames with that of rollouts."""
    return thresholds[EXPERT if dataset_type == "sft" and EXPERT in thresholds else ROLLOUT]


def exceeds_threshold(frames: ScoredFrames, thresholds: Thresholds) -> np.ndarray:
    """Return (F,) bool: judged, and ``score > threshold``. Ties stay out, as in RLinf, so the share can fall short of the quantile."""
    return frames.judged & (frames.advantage > threshold_of(frames.type, thresholds))


def score_labels(frames: ScoredFrames, thresholds: Thresholds, intervention_positive: bool) -> np.ndarray:
    """Return (F,) bool labels: frames above their threshold and, by option, corrections; all expert frames, if these have no
    threshold of their own."""
    if frames.type == "sft" and EXPERT not in thresholds:
        return np.ones(len(frames.advantage), bool)
    above = exceeds_threshold(frames, thresholds)
    return above | frames.intervention if intervention_positive else above


def _pool(datasets: list[ScoredFrames], pool: str) -> np.ndarray:
    kind = "sft" if pool == EXPERT else "rollout"
    scores = [frames.advantage[frames.judged] for frames in datasets if frames.type == kind]
    if not sum(map(len, scores)):
        raise UserError(f"pool '{pool}' is empty: no {kind} dataset has an episode longer than the look-ahead; add one, or use a smaller k")
    return np.concatenate(scores)
