import pytest
import torch

from recap_steam.policy.guidance import sample_guided
from recap_steam.policy.images import model_images, to_float
from recap_steam.policy.processors import encode
from recap_steam.policy.prompts import PLAIN, POSITIVE, with_indicator


@pytest.fixture
def inputs(policy, processors, observations):
    images, states, tasks = observations
    camera_images = model_images(policy, {camera: to_float(torch.from_numpy(pixels)) for camera, pixels in images.items()})
    prompts = [encode(processors[0], states, [with_indicator(task, kind) for task in tasks]) for kind in (PLAIN, POSITIVE)]
    noise = torch.randn(2, policy.config.chunk_size, policy.config.max_action_dim, generator=torch.Generator().manual_seed(0))
    return policy.model, *camera_images, *prompts, noise


def sample(inputs, scale, num_steps=None):
    model, images, masks, plain, positive, noise = inputs
    model.config.num_inference_steps = num_steps or model.config.num_inference_steps
    return sample_guided(model, images, masks, plain, positive, scale, noise)


def test_scale_one_is_stock_conditional_sampling_bit_for_bit(inputs):
    model, images, masks, _, positive, noise = inputs
    assert torch.equal(sample(inputs, 1.0), model.sample_actions(images, masks, *positive, noise=noise))


def test_scale_zero_is_stock_plain_sampling_bit_for_bit(inputs):
    model, images, masks, plain, _, noise = inputs
    assert torch.equal(sample(inputs, 0.0), model.sample_actions(images, masks, *plain, noise=noise))


def test_two_equal_prompts_cancel_out_at_any_scale(inputs):
    """Within rounding: a batch of twice the size may be summed in another order."""
    model, images, masks, plain, _, noise = inputs
    guided = sample_guided(model, images, masks, plain, plain, 3.0, noise)
    torch.testing.assert_close(guided, model.sample_actions(images, masks, *plain, noise=noise), atol=1e-5, rtol=1e-5)


def test_both_branches_are_one_batch_and_images_are_encoded_once(inputs, monkeypatch):
    model, *_, noise = inputs
    batches = {"denoise_step": [], "embed_image": []}

    def count(owner, name, batch):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: batches[name].append(len(args[batch])) or original(*args))

    count(model, "denoise_step", 2)
    count(model.paligemma_with_expert, "embed_image", 0)
    sample(inputs, 1.5)
    assert batches == {"denoise_step": [2 * len(noise)] * 3, "embed_image": [len(noise)]}


def test_velocity_is_extrapolated_linearly_in_one_step(inputs):
    """With one Euler step the sample is affine in the velocity, so guided samples lie on the line through the two stock ones."""
    plain, positive = sample(inputs, 0.0, num_steps=1), sample(inputs, 1.0, num_steps=1)
    assert (positive - plain).abs().max() > 1e-3
    for scale in (0.5, 2.0, 4.0):
        torch.testing.assert_close(sample(inputs, scale, num_steps=1), plain + scale * (positive - plain), atol=1e-4, rtol=1e-4)


def test_guidance_acts_at_every_step(inputs):
    """Over several steps the guided sample leaves that line: the second step starts from where guidance led."""
    plain, positive = sample(inputs, 0.0, num_steps=3), sample(inputs, 1.0, num_steps=3)
    assert not torch.allclose(sample(inputs, 3.0, num_steps=3), plain + 3 * (positive - plain), atol=1e-4)


def test_training_velocity_equals_sampling_velocity(inputs):
    """The loss at pure noise is the squared error of the very velocity that one Euler step follows."""
    model, images, masks, plain, _, noise = inputs
    actions = torch.randn(noise.shape, generator=torch.Generator().manual_seed(1))
    velocity = noise - sample(inputs, 0.0, num_steps=1)
    with torch.no_grad():
        loss = model(images, masks, *plain, actions, noise, torch.ones(len(noise)))
    torch.testing.assert_close(loss, (noise - actions - velocity) ** 2, atol=1e-4, rtol=1e-4)
