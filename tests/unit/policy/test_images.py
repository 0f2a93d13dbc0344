import numpy as np
import torch

from recap_steam.policy import pi05
from recap_steam.policy.images import augment, draw_augmentation, mask_absent, model_images, to_float
from tests.policies import ACTION_DIM, CAMERA, MODEL, SMALL, STATE_DIM


def pixels(n=2, size=32):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, size, size, 3), dtype=np.uint8))


def test_model_images_are_lerobots(policy):
    images, masks = model_images(policy, {CAMERA: to_float(pixels())})
    torch.testing.assert_close(images[0], to_float(pixels()) * 2 - 1)
    assert masks[0].all()


def test_an_absent_camera_is_what_lerobot_makes_of_one_that_a_batch_lacks(policy):
    """lerobot knows absence only of a whole batch: an image of -1 and a mask of 0."""
    two = pi05.make_config(MODEL, [CAMERA, "observation.images.wrist"], STATE_DIM, ACTION_DIM)
    stock = pi05.build(two, SMALL, initialise=True)
    expected = model_images(stock, {CAMERA: to_float(pixels())})
    images, masks = mask_absent([expected[0][0], torch.rand(2, 3, 32, 32)], torch.tensor([[True, False], [True, False]]))
    for ours, theirs in zip([*images, *masks], [*expected[0], *expected[1]], strict=True):
        assert torch.equal(ours, theirs)


def test_augmentation_is_drawn_per_sample_seeded_and_light(policy):
    draws = [draw_augmentation(np.random.default_rng(seed), [CAMERA]) for seed in (5, 5, 6)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2]) and draws[0].dtype == np.float32
    assert np.abs(draws).max() <= 0.5
    image = model_images(policy, {CAMERA: to_float(pixels())})[0][0]
    changed = augment(image, torch.from_numpy(np.stack([draws[0][0], draws[2][0]])))
    assert changed.shape == image.shape and changed.min() >= -1 and changed.max() <= 1
    assert not torch.allclose(changed, image, atol=0.05)
