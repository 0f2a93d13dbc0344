"""Arms of an evaluation that stop early: as soon as an arm is told apart from the first one, on the initial states that both have seen."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from recap_steam.errors import UserError
from recap_steam.simulation.rollout import Episode
from recap_steam.simulation.statistics import mcnemar_always_valid


def until_decided(episodes: Iterator[Episode], reference: Path, level: float, every: int) -> Iterator[Episode]:
    """Pass ``episodes`` on, and stop after a multiple of ``every`` of them when the always-valid p is below ``level``.

    Looks are at multiples of a fixed number, and not after each episode, so that the number of processes changes nothing.

    Raises:
        UserError: the first arm, in ``reference``, did not start from the same states.
    """
    table = pq.read_table(reference, columns=["episode", "seed", "success"]).sort_by("episode")
    seeds, successes, mine = table["seed"].to_numpy(), table["success"].to_numpy(), []
    for episode in episodes:
        if episode.episode >= len(seeds) or seeds[episode.episode] != episode.seed:
            raise UserError(f"{reference}: has no episode from seed {episode.seed}, as this arm has; run the target evaluations again")
        mine.append(episode.success)
        yield episode
        if len(mine) % every == 0 and mcnemar_always_valid(successes[: len(mine)], np.array(mine)) < level:
            return
