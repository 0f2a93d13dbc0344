import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from recap_steam import devices
from recap_steam.devices import accelerator
from recap_steam.training.flops import ModelFlops
from tests.unit.critics import small


def test_linear_layers_cost_what_they_cost_by_hand():
    model, x = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), torch.ones(8, 4)
    with ModelFlops() as counter:
        model(x).sum().backward()
    first, second = 2 * 8 * 4 * 16, 2 * 8 * 16 * 1
    assert counter.total == first * 2 + second * 3  # forward and weight gradient; the input of the second needs a gradient too


def test_attention_counts_on_every_device():
    query, key, value = (torch.ones(2, 3, tokens, 8, requires_grad=True) for tokens in (5, 7, 7))
    with ModelFlops() as counter:
        nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
    product = 2 * 2 * 3 * 5 * 7 * 8
    assert counter.total == product * 2 + product * 5  # the backward pass computes the scores again by design


def test_what_checkpointing_recomputes_does_not_count():
    model, x = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4)), torch.ones(8, 4)
    totals = []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        with ModelFlops() as counter:
            run(x).sum().backward()
        totals.append(counter.total)
    assert totals[0] == totals[1] > 0


def test_a_critic_costs_the_same_with_and_without_checkpointing():
    totals = []
    for checkpointing in (False, True):
        critic = small.critic().train()
        if checkpointing:
            critic.enable_gradient_checkpointing()
        with ModelFlops() as counter:
            critic(*small.batch()).sum().backward()
        totals.append(counter.total)
    parameters = sum(p.numel() for name, p in critic.named_parameters() if "embed" not in name)
    assert totals[0] == totals[1] > 6 * parameters  # every weight multiplies at least one token


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12),
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA H20", None),
        ("NVIDIA GeForce RTX 4090 D", None),
    ],
)
def test_a_device_is_known_by_its_whole_name(monkeypatch, name, peak):
    class Module:
        get_device_name = staticmethod(lambda device: name)

    monkeypatch.setattr(accelerator, "device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module)
    assert devices.peak_flops() == peak
