import numpy as np
import torch

from recap_steam.policy.images import augment, draw_augmentation, model_images, to_float
from tests.policies import CAMERA


def pixels(n=2, size=32):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, size, size, 3), dtype=np.uint8))


def test_model_images_are_lerobots(policy):
    images, masks = model_images(policy, {CAMERA: to_float(pixels())})
    torch.testing.assert_close(images[0], to_float(pixels()) * 2 - 1)
    assert masks[0].all()


def test_augmentation_is_drawn_per_sample_seeded_and_light(policy):
    draws = [draw_augmentation(np.random.default_rng(seed), [CAMERA]) for seed in (5, 5, 6)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2]) and draws[0].dtype == np.float32
    assert np.abs(draws).max() <= 0.5
    image = model_images(policy, {CAMERA: to_float(pixels())})[0][0]
    changed = augment(image, torch.from_numpy(np.stack([draws[0][0], draws[2][0]])))
    assert changed.shape == image.shape and changed.min() >= -1 and changed.max() <= 1
    assert not torch.allclose(changed, image, atol=0.05)
