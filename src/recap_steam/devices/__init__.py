"""Devices and processes: the only place that knows the accelerator, the process group and torch's random state.

Everything goes through ``torch.accelerator``, so CUDA, Ascend and CPU run the same code.
"""

from recap_steam.devices.accelerator import autocast, device, fused_optimizer, local_rank, seed
from recap_steam.devices.processes import all_sum, broadcast, distributed, exclusive, gather, is_main, on_main, rank, world_size
from recap_steam.devices.sharding import blueprint, gathered, host_float, shard, sync_gradients

__all__ = [
    "all_sum",
    "autocast",
    "blueprint",
    "broadcast",
    "device",
    "distributed",
    "exclusive",
    "fused_optimizer",
    "gather",
    "gathered",
    "host_float",
    "is_main",
    "local_rank",
    "on_main",
    "rank",
    "seed",
    "shard",
    "sync_gradients",
    "world_size",
]
