import dataclasses

import pytest
import torch
from torch import nn

from recap_steam.training.optim import build_optimizer, learning_rate
from tests.unit.training.toy import OPTIM

CONSTANT = dataclasses.replace(OPTIM, lr_scheduler="constant", lr_warmup_steps=4)
COSINE = dataclasses.replace(OPTIM, lr_scheduler="cosine", lr_warmup_steps=4, min_lr=0.1)


def test_warm_up_learns_from_its_first_step_and_reaches_the_peak():
    assert [learning_rate(step, 1.0, CONSTANT, 10) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_the_peak_towards_the_minimum():
    rates = [learning_rate(step, 1.0, COSINE, 24) for step in range(4, 24)]
    assert rates[0] == 1.0 and rates[10] == pytest.approx(0.55)
    assert rates == sorted(rates, reverse=True) and rates[-1] == pytest.approx(0.1, abs=0.01)


def test_groups_keep_their_own_rate_and_settings():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = build_optimizer([{"params": first.parameters()}, {"params": second.parameters(), "lr": 7.0}], OPTIM)
    assert [group["lr"] for group in optimizer.param_groups] == [OPTIM.lr, 7.0]
    assert optimizer.defaults["betas"] == (0.9, 0.95) and optimizer.defaults["weight_decay"] == 0.01
    assert optimizer.param_groups[0]["fused"] is True  # the CPU has a fused kernel


def test_defect_23_masters_and_moments_are_fp32():
    model = nn.Linear(2, 2)
    optimizer = build_optimizer([{"params": model.parameters()}], OPTIM)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state[model.weight]
    assert {model.weight.dtype, model.weight.grad.dtype, state["exp_avg"].dtype, state["exp_avg_sq"].dtype} == {torch.float32}
