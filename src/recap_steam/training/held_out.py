"""How critics are judged while they train: fixed samples, shared among the processes."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from recap_steam import devices
from recap_steam.background import ahead

EVALUATION_BATCH = 64


def predict(
    load: Callable[[np.ndarray], dict[str, Tensor]], describe: Callable[[dict[str, Tensor]], Tensor], samples: np.ndarray
) -> np.ndarray:
    """What ``describe`` finds, (rows, b), in the host batches that ``load`` makes of ``samples`` (n,), as (rows, n) float64.

    The processes share the samples, each with the same number of forward passes.
    """
    mine = share(samples, devices.rank(), devices.world_size())
    batches = (load(mine[start : start + EVALUATION_BATCH]) for start in range(0, len(mine), EVALUATION_BATCH))
    parts = [describe(devices.to_device(batch)) for batch in ahead(batches, 1)]
    columns = devices.gather(torch.cat(parts, 1).cpu().numpy())
    return np.concatenate(columns, 1)[:, : len(samples)].astype(np.float64)


def share(samples: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """One process's samples: the shares are equally long and, joined by rank, ``samples`` (n,) followed by copies of the last."""
    padded = np.concatenate([samples, np.repeat(samples[-1:], -len(samples) % world_size)])
    return np.split(padded, world_size)[rank]


def titled(title: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{title}/{name}": value for name, value in metrics.items()}
