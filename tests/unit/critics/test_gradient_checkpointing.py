"""Recomputed activations: the same gradients for less memory, at every step (the reference switched it off again after the first)."""

import collections

import torch

from recap_steam.critics.model import ValueCritic
from tests.unit.critics.small import SIGLIP, batch, critic


def model_of(recompute: bool, **changes) -> ValueCritic:
    model = critic(siglip_config={**SIGLIP, "num_hidden_layers": 2}, **changes)
    if recompute:
        model.enable_gradient_checkpointing()
    return model


def gradients(model: ValueCritic) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(*batch()).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def forwards(model: ValueCritic) -> collections.Counter:
    """How often each attention of the towers ran; counts on."""
    count = collections.Counter()
    layers = {f"vision {i}": layer.self_attn for i, layer in enumerate(model.vision.vision_model.encoder.layers)}
    layers |= {f"text {i}": layer.layer.self_attn for i, layer in enumerate(model.text.layers)}
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda *_, name=name: count.update([name]))
    return count


def test_gradients_are_the_same():
    kept, recomputed = (gradients(model_of(recompute).train()) for recompute in (False, True))
    for name, gradient in kept.items():
        assert torch.equal(gradient, recomputed[name]), name


def test_gradients_are_the_same_with_frozen_towers():
    found = []
    for recompute in (False, True):
        model = model_of(recompute).train()
        model.text.requires_grad_(False)
        model.vision.requires_grad_(False)
        model(*batch()).square().sum().backward()
        found.append(model.projection.weight.grad)
    assert torch.equal(*found)


def test_defect_22_layers_are_recomputed_at_every_training_step_and_only_then():
    model = model_of(recompute=True).train()
    count = forwards(model)
    for step in (1, 2, 3):
        gradients(model)
        assert len(count) == 5 and set(count.values()) == {2 * step}
        with torch.no_grad():
            model.eval()(*batch())
        assert set(count.values()) == {2 * step + 1}
        model.train()
        count.subtract(list(count))
    plain = model_of(recompute=False).train()
    count = forwards(plain)
    gradients(plain)
    assert set(count.values()) == {1}
