"""Batches: how a global batch is cut among processes and micro batches, and the thread that builds them ahead."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from recap_steam import devices
from recap_steam.config import TrainingConfig
from recap_steam.errors import UserError

PREFETCHED_BATCHES = 2


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """How a global batch is cut: first by process, then into micro batches, given as positions in the global batch."""

    global_batch_size: int
    micro_batches: list[range]

    @classmethod
    def of(cls, config: TrainingConfig) -> "BatchPlan":
        """Raises UserError where global_batch_size is not a multiple of micro_batch_size x processes."""
        world, total = devices.world_size(), config.global_batch_size
        micro = config.micro_batch_size or max(1, total // world)
        if total % (micro * world):
            raise UserError(
                f"config: global_batch_size {total} is not a multiple of micro_batch_size {micro} x {world} processes; change one of them"
            )
        first = devices.rank() * (total // world)
        return cls(total, [range(start, start + micro) for start in range(first, first + total // world, micro)])


def prefetch(load: Callable[..., Any], items: Iterable[tuple]) -> Iterator[Any]:
    """Yield ``load(*item)`` in order, computed ahead in one background thread."""
    with ThreadPoolExecutor(1) as pool:
        waiting = deque()
        for item in items:
            waiting.append(pool.submit(load, *item))
            if len(waiting) > PREFETCHED_BATCHES:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
