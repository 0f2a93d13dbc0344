"""AdamW and the learning-rate schedules, as pure functions of the step (no scheduler state to save)."""

import math

import torch

from recap_steam import devices
from recap_steam.config import OptimConfig


def build_optimizer(groups: list[dict], config: OptimConfig) -> torch.optim.AdamW:
    """AdamW over parameter groups ``{"params": [...], "lr": peak}``; a group without "lr" takes ``config.lr``.

    The fused kernel is used where there is one.
    """
    groups = [{"lr": config.lr, **group, "params": list(group["params"])} for group in groups]
    return torch.optim.AdamW(
        groups,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
        fused=devices.fused_optimizer() or None,
    )


def learning_rate(step: int, peak: float, config: OptimConfig, max_steps: int) -> float:
    """The rate of step ``step`` (from 0): linear warm-up whose first step already learns, then constant or a cosine to ``min_lr``."""
    if step < config.lr_warmup_steps:
        return peak * (step + 1) / config.lr_warmup_steps
    if config.lr_scheduler == "constant":
        return peak
    progress = (step - config.lr_warmup_steps) / max(1, max_steps - config.lr_warmup_steps)
    return config.min_lr + (peak - config.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
