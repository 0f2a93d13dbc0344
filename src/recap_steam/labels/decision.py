"""From advantages to labels as a tag says, for both methods: thresholds, the frames that pass them, and the labels with forced ones."""

import numpy as np

from recap_steam.label_config import AdvantagesConfig, SteamAdvantagesConfig
from recap_steam.labels.scores import exceeds_threshold, score_labels, score_thresholds
from recap_steam.labels.thresholds import ScoredFrames, Thresholds, pool_thresholds, positive_counts, positive_labels, reaches_threshold

LabelConfig = AdvantagesConfig | SteamAdvantagesConfig


def thresholds_of(config: LabelConfig, datasets: list[ScoredFrames]) -> Thresholds:
    """Return the threshold of every pool of the frames of all datasets.

    Raises:
        UserError: an empty pool.
    """
    if isinstance(config, SteamAdvantagesConfig):
        return score_thresholds(datasets, config)
    return pool_thresholds(datasets, config.pool, config.positive_quantile)


def decide(config: LabelConfig, frames: ScoredFrames, thresholds: Thresholds) -> np.ndarray:
    """Return (F,) bool: which frames are positive, forced ones included."""
    if isinstance(config, SteamAdvantagesConfig):
        return score_labels(frames, thresholds, config.intervention_positive)
    return positive_labels(frames, thresholds, config.pool, config.intervention_positive)


def counts_of(config: LabelConfig, frames: ScoredFrames, thresholds: Thresholds) -> list[dict]:
    """Return what came out, by outcome; see ``positive_counts``."""
    if isinstance(config, SteamAdvantagesConfig):
        reached = exceeds_threshold(frames, thresholds)
    else:
        reached = reaches_threshold(frames, thresholds, config.pool)
    return positive_counts(frames, reached, decide(config, frames, thresholds))
