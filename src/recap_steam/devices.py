"""Devices and processes: the only place that knows the accelerator, the process group and torch's random state.

Everything goes through ``torch.accelerator``, so CUDA, Ascend and CPU run the same code. Processes are started by torchrun (a script
started without it is one process). Collectives on Python objects and host numbers use gloo; gradients use the accelerator's
own backend.
"""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from recap_steam.errors import UserError


def device() -> torch.device:
    """Return this process's accelerator, or the CPU where there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type, local_rank())


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_main() -> bool:
    """True in the one process that writes files and speaks."""
    return rank() == 0


@contextlib.contextmanager
def distributed() -> Iterator[None]:
    """Join the process group that torchrun described in the environment; without torchrun, be a group of one process."""
    here = device()
    if here.type == "cpu":
        backend = "gloo"
    else:
        torch.accelerator.set_device_index(here.index)
        backend = f"cpu:gloo,{here.type}:{dist.get_default_backend_for_device(here)}"
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, **alone)
    try:
        yield
    finally:
        dist.destroy_process_group()


def seed(*entropy: int) -> None:
    """Seed torch on every device from a tuple of integers. NumPy draws come from generators that are passed explicitly."""
    torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))


def fused_optimizer() -> bool:
    """True where torch ships fused optimiser kernels; other backends take torch's own choice."""
    return device().type in ("cpu", "cuda")


def autocast() -> torch.autocast:
    """bf16 compute over fp32 weights on accelerators; plain fp32 on the CPU."""
    here = device()
    return torch.autocast(here.type, torch.bfloat16, enabled=here.type != "cpu")


def shard(module: nn.Module) -> nn.Module:
    """Move a module to this process's device and, with several processes, shard its parameters, gradients and optimiser state (FSDP2).

    Parameters become new objects when sharded: collect them for the optimiser afterwards.
    """
    module.to(device())
    if world_size() > 1:
        fully_shard(module, mesh=dist.init_device_mesh(device().type, (world_size(),)))
    return module


def sync_gradients(module: nn.Module, enabled: bool) -> None:
    """Switch the exchange of gradients between processes off for all but the last micro batch of a step."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(enabled)


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold a sharded module's whole parameters; needed by methods other than ``forward``, around which FSDP2 gathers by itself."""
    sharded = isinstance(module, FSDPModule)
    if sharded:
        module.unshard()
    try:
        yield
    finally:
        if sharded:
            module.reshard()


def host_float(value: torch.Tensor) -> float:
    """The number in a scalar tensor, also one that is spread over processes."""
    return (value.full_tensor() if isinstance(value, DTensor) else value).item()


def broadcast(value: Any) -> Any:
    """Return process 0's value in every process."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: Any) -> list:
    """Return the values of all processes, in rank order, in every process."""
    if world_size() == 1:
        return [value]
    values = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def all_sum(values: list[float]) -> list[float]:
    """Return the element-wise sums over all processes, in float64."""
    if world_size() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def on_main(action: Any) -> Any:
    """Run ``action()`` in process 0 only and return its result everywhere. Where it fails, every process ends and only process 0 speaks."""
    result, error = None, None
    if is_main():
        try:
            result = action()
        except Exception as caught:
            error = caught
    failed, result = broadcast((error is not None, result))
    if error is not None:
        raise error
    if failed:
        raise SystemExit(1)
    return result


@contextlib.contextmanager
def exclusive(folder: Path | str) -> Iterator[None]:
    """Hold the one-writer lock of a state folder for all processes of this job; it vanishes with process 0, however that ends.

    Raises:
        UserError: another job holds it.
    """
    with contextlib.ExitStack() as stack:
        on_main(lambda: stack.enter_context(_flock(Path(folder))))
        yield


@contextlib.contextmanager
def _flock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "another process"
            raise UserError(f"{folder}: {holder} is writing into this state folder; wait for it or end it") from None
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {socket.gethostname()}")
        handle.flush()
        yield
