"""The accelerator of this process, or the CPU where there is none: its precision, its memory, its speed on paper."""

import os
import re
import resource

import numpy as np
import torch

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


def fused_optimizer() -> bool:
    """True where torch ships fused optimiser kernels; other backends take torch's own choice."""
    return device().type in ("cpu", "cuda")


def compute_dtype() -> torch.dtype:
    """The dtype of matrix products: bf16 on accelerators, fp32 on the CPU. Weights, gradients and optimiser state are fp32 everywhere."""
    return torch.float32 if device().type == "cpu" else torch.bfloat16


def autocast() -> torch.autocast:
    """Compute in ``compute_dtype`` over fp32 weights."""
    dtype = compute_dtype()
    return torch.autocast(device().type, torch.bfloat16, enabled=dtype != torch.float32)


def compile_backend() -> str:
    """The backend of ``torch.compile``."""
    return "inductor"


def peak_memory() -> int:
    """Most bytes that this process held so far: of the accelerator's memory by torch, on the CPU all resident memory."""
    if device().type == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return torch.accelerator.max_memory_allocated()


# Dense bf16 FLOP/s with fp32 accumulation, by the device's own name, from NVIDIA's data sheets (A100, H100, H200, L40S, and the Ada white
# paper); where those count sparsity, half of what they say. Devices without a published data sheet are not here.
_PEAK_FLOPS = {
    r"NVIDIA A100\b.*": 312e12,
    r"NVIDIA H100 PCIe": 756.5e12,
    r"NVIDIA H100 NVL": 835.5e12,
    r"NVIDIA H100 80GB HBM3": 989.5e12,
    r"NVIDIA H200": 989.5e12,
    r"NVIDIA L40S": 362.05e12,
    r"NVIDIA GeForce RTX 4090": 165.2e12,
}


def peak_flops() -> float | None:
    """This device's dense bf16 FLOP/s on paper; None where it is not known."""
    return next((peak for pattern, peak in _PEAK_FLOPS.items() if re.fullmatch(pattern, name())), None)
