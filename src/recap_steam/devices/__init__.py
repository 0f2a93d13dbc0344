"""Devices and processes: the only place that knows the accelerator, the process group and torch's random state.

Everything goes through ``torch.accelerator``, and what differs between accelerators through the table of ``recap_steam.accelerators``, so
CUDA, Ascend and CPU run the same code.
"""

from recap_steam.devices.accelerator import (
    autocast,
    compile_backend,
    device,
    fused_optimizer,
    local_rank,
    name,
    peak_flops,
    peak_memory,
    seed,
    to_device,
)
from recap_steam.devices.processes import all_sum, broadcast, distributed, exclusive, gather, is_main, on_main, rank, sigterm, world_size
from recap_steam.devices.sharding import blueprint, gathered, shard, whole

__all__ = [
    "all_sum",
    "autocast",
    "blueprint",
    "broadcast",
    "compile_backend",
    "device",
    "distributed",
    "exclusive",
    "fused_optimizer",
    "gather",
    "gathered",
    "is_main",
    "local_rank",
    "name",
    "on_main",
    "peak_flops",
    "peak_memory",
    "rank",
    "seed",
    "shard",
    "sigterm",
    "to_device",
    "whole",
    "world_size",
]
