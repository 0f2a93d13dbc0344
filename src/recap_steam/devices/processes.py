"""Processes: who this one is, what it shares with the others, and who may write.

Processes are started by torchrun; a script started without it is one process. Collectives on Python objects and host numbers use gloo;
gradients use the accelerator's own backend.
"""

import contextlib
import datetime
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recap_steam.devices.accelerator import device
from recap_steam.errors import UserError

# The longest wait of a process for the others: while process 0 reads or writes a large model, or the slowest ends its share of a pass.
# Longer than the limits of accelerators' own libraries, which know more and so shall speak first. A process that died is noticed at once.
PATIENCE = datetime.timedelta(hours=1)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


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
    dist.init_process_group(backend, timeout=PATIENCE, **alone)
    try:
        yield
    finally:
        dist.destroy_process_group()


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
def sigterm() -> Iterator[list]:
    """Yield a list that becomes non-empty when this process is told to leave.

    The old handler is put back at the end; but once told, process 0 hears of no second SIGTERM, as it has yet to say why it leaves.
    """
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    try:
        yield received
    finally:
        if not (received and is_main()):
            signal.signal(signal.SIGTERM, before)


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
