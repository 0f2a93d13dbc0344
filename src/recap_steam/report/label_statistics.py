"""Statistics of labels: how firm a threshold is, and how far two labellings agree."""

import numpy as np

RESAMPLES, SEED = 200, 0  # of the bootstrap
Members = list[tuple[np.ndarray, np.ndarray]]  # of a pool: (scores, episode positions), one pair a dataset


def threshold_interval(members: Members, share: float) -> tuple[float, float]:
    """95 % percentile interval of the (1 - share) quantile when whole episodes are drawn anew with replacement (Efron's bootstrap).

    Frames of an episode belong together, so they are drawn together; each draw gives what ``numpy.percentile`` gives of its frames.
    """
    scores = np.concatenate([score for score, _ in members])
    bounds = np.cumsum([0, *(episode.max() + 1 for _, episode in members)])
    _, owner = np.unique(
        np.concatenate([episode + start for (_, episode), start in zip(members, bounds, strict=False)]), return_inverse=True
    )
    order = np.argsort(scores, kind="stable")
    scores, owner, episodes = scores[order], owner[order], owner.max() + 1
    rng = np.random.default_rng(SEED)
    drawn = []
    for _ in range(RESAMPLES):
        counts = np.bincount(rng.integers(episodes, size=episodes), minlength=episodes)
        frames = np.cumsum(counts[owner])  # how many drawn frames have at most this score
        rank = (1.0 - share) * (frames[-1] - 1)
        below, above = (scores[np.searchsorted(frames, int(place), side="right")] for place in (np.floor(rank), np.ceil(rank)))
        drawn.append(below + (above - below) * (rank - np.floor(rank)))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def agreement(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Share of equal labels (F,) bool, and Cohen's kappa: what of it is beyond chance; NaN if chance alone would give all of it."""
    equal = float((first == second).mean())
    chance = float(first.mean() * second.mean() + (1 - first.mean()) * (1 - second.mean()))
    return equal, (equal - chance) / (1 - chance) if chance < 1 else float("nan")
