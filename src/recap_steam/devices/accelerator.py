"""The accelerator of this process, or the CPU where there is none: its precision, its memory, its speed on paper."""

import os

import numpy as np
import torch


def device() -> torch.device:
    """Return this process's accelerator, or the CPU where there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type, local_rank())


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
