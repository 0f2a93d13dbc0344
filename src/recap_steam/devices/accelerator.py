"""The accelerator of this process, or the CPU where there is none: its precision, its memory, its speed on paper."""

import os
import re
import resource

import numpy as np
import torch
from torch import Tensor

from recap_steam import accelerators
from recap_steam.errors import UserError
from recap_steam.rates import CPU


def device() -> torch.device:
    """Return this process's accelerator, or the CPU where there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type, local_rank())


def name() -> str:
    """What the device calls itself; ``CPU`` where there is no accelerator."""
    here = device()
    return CPU if here.type == "cpu" else torch.get_device_module(here).get_device_name(here)


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def seed(*entropy: int) -> None:
    """Seed torch on every device from a tuple of integers. NumPy draws come from generators that are passed explicitly."""
    torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))


def to_device(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy a host batch to the device, without waiting where that is safe."""
    here = device()
    known = accelerators.of_device(here.type)
    ahead = known is not None and known.copies_ahead
    return {name: tensor.to(here, non_blocking=ahead) for name, tensor in batch.items()}


def fused_optimizer() -> bool:
    """True where torch's fused AdamW is known to run; elsewhere torch chooses."""
    here = device().type
    known = accelerators.of_device(here)
    return here == "cpu" if known is None else known.fused_optimizer


def compute_dtype() -> torch.dtype:
    """The dtype of matrix products: bf16 on accelerators, fp32 on the CPU. Weights, gradients and optimiser state are fp32 everywhere."""
    return torch.float32 if device().type == "cpu" else torch.bfloat16


def autocast() -> torch.autocast:
    """Compute in ``compute_dtype`` over fp32 weights."""
    dtype = compute_dtype()
    return torch.autocast(device().type, torch.bfloat16, enabled=dtype != torch.float32)


def compile_backend() -> str:
    """The backend of ``torch.compile``.

    Raises:
        UserError: there is none for this accelerator.
    """
    known = accelerators.of_device(device().type)
    if known is None:
        return "inductor"
    if known.compile_backend is None:
        raise UserError(f"config: compile_model: nothing compiles for {name()} ({device().type}); set it to false")
    return known.compile_backend


def peak_memory() -> int:
    """Most bytes that this process held so far: of the accelerator's memory by torch, on the CPU all resident memory."""
    if device().type == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return torch.get_device_module(device()).max_memory_allocated()


def peak_flops() -> float | None:
    """This device's dense bf16 FLOP/s on paper; None where it is not known."""
    known = accelerators.of_device(device().type)
    published = known.peak_flops if known else {}
    return next((peak for pattern, peak in published.items() if re.fullmatch(pattern, name())), None)
