"""``torch.npu``: the device module, with the names that torch asks of one. Everything runs in order, so streams and events do nothing."""

import contextlib
import importlib.util
import os

import torch
import torch.distributed as dist

_spec = importlib.util.spec_from_file_location("stub_npu", os.environ["STUB_NPU"])
library = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(library)


class Stream(torch.cpu.Stream):
    def synchronize(self) -> None:
        pass


class Event(torch.cpu.Event):
    def record(self, stream: Stream | None = None) -> "Event":
        return self


def current_stream(device: object = None) -> Stream:
    return Stream()


def stream(stream: Stream) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext()


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 2


def current_device() -> int:
    return library.current_device()


def set_device(device: torch.device | int) -> None:
    library.set_device(torch.device("npu", device).index if isinstance(device, int) else device.index)


def synchronize(device: object = None) -> None:
    pass


def get_device_name(device: object = None) -> str:
    return "Ascend910B3"


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def max_memory_allocated(device: object = None) -> int:
    return library.peak()


def memory_allocated(device: object = None) -> int:
    return library.allocated()


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        library.default_generator(index).manual_seed(seed)


def initial_seed() -> int:
    return library.default_generator(current_device()).initial_seed()


def get_rng_state(device: object = None) -> torch.Tensor:
    return library.default_generator(current_device()).get_state()


def set_rng_state(state: torch.Tensor, device: object = None) -> None:
    library.default_generator(current_device()).set_state(state)


def float64_operators() -> set[str]:
    """What this process computed in float64 on the device."""
    return library.float64_operators()


def copies_ahead() -> int:
    """How many copies from the host did not wait."""
    return library.copies_ahead()


def process_group(store: dist.Store, rank: int, size: int, timeout: object) -> object:
    return library.hccl(dist.ProcessGroupGloo(dist.PrefixStore("hccl", store), rank, size, timeout))
