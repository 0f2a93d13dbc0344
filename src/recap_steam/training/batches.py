"""Batches: how a global batch is cut among processes and micro batches."""

import dataclasses

from recap_steam import devices
from recap_steam.config import TrainingConfig
from recap_steam.errors import UserError


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
