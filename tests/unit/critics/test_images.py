import numpy as np
import pytest
import torch

from recap_steam.critics.images import ANGLE, CROP, augment, draw_augmentation, to_model

CAMERAS = ["observation.images.front", "observation.images.wrist_left"]
NOTHING = torch.tensor([[float("nan")] * 3 + [0.0] * 3])


def picture(size: int = 32) -> torch.Tensor:
    """A smooth picture, so that resampling changes it little."""
    ramp = torch.linspace(-0.8, 0.8, size)
    return torch.stack([ramp[:, None].expand(size, size), ramp[None].expand(size, size), (ramp[:, None] * ramp[None])])[None]


def draws(**values: float) -> torch.Tensor:
    names = ["down", "right", "angle", "brightness", "contrast", "saturation"]
    return torch.tensor([[values.get(name, 0.0) for name in names]])


def test_pixels_become_minus_one_to_one_and_channels_first():
    images = np.zeros((2, 1, 4, 4, 3), np.uint8)
    images[..., 0] = 255
    found = to_model(torch.from_numpy(images))
    assert found.shape == (2, 1, 3, 4, 4) and found.dtype == torch.float32
    assert found[:, :, 0].unique().item() == 1 and found[:, :, 1:].unique().item() == -1


def test_defect_28_the_value_range_is_never_guessed():
    """There, a picture whose brightest pixel is 1 is taken for one that goes from 0 to 1, and becomes white."""
    dark = to_model(torch.ones(1, 4, 4, 3, dtype=torch.uint8))
    assert dark.unique().item() == pytest.approx(1 / 127.5 - 1)


def test_no_draw_changes_nothing():
    torch.testing.assert_close(augment(picture(), NOTHING), picture())


def test_defect_28_draws_are_per_sample_and_depend_on_its_generator_only():
    def draw(seed: int) -> np.ndarray:
        return draw_augmentation(np.random.default_rng([0, 5, seed]), CAMERAS[:1])

    assert np.array_equal(draw(3), draw(3)) and not np.array_equal(draw(3), draw(4))
    images = picture().repeat(2, 1, 1, 1)
    together = augment(images, torch.from_numpy(np.concatenate([draw(3), draw(4)])))
    assert not torch.equal(together[0], together[1])
    torch.testing.assert_close(together[:1], augment(images[:1], torch.from_numpy(draw(3))))


def test_wrist_cameras_keep_their_geometry():
    drawn = draw_augmentation(np.random.default_rng(0), CAMERAS)
    assert np.isfinite(drawn[0]).all() and np.isnan(drawn[1, :3]).all() and np.isfinite(drawn[1, 3:]).all()


def test_crop_moves_down_and_right_within_the_picture():
    centre, low, right = (augment(picture(), draws(down=d, right=r))[0] for d, r in ((0, 0), (1, 0), (0, 1)))
    step = 2 * 0.8 * (1 - CROP) / 2  # the ramp's rise over the largest shift
    torch.testing.assert_close((low - centre)[0, 8:-8, 8:-8].mean(), torch.tensor(step), atol=2e-3, rtol=0)
    torch.testing.assert_close((right - centre)[1, 8:-8, 8:-8].mean(), torch.tensor(step), atol=2e-3, rtol=0)
    assert (low > -0.85).all()  # nothing from outside


def test_rotation_turns_by_the_angle():
    turned = augment(picture(64), draws(angle=1))[0, 1, 16:-16, 16:-16]
    slope = torch.stack([turned.diff(dim=0).mean(), turned.diff(dim=1).mean()])
    torch.testing.assert_close(torch.atan2(slope[0], slope[1]).abs(), torch.tensor(ANGLE), atol=1e-3, rtol=0)


def test_colours_stay_in_range_and_saturation_zero_is_grey():
    images = picture()
    strong = augment(images, draws(brightness=1, contrast=1, saturation=1))
    assert strong.min() >= -1 and strong.max() <= 1
    brighter = augment(images, torch.cat([NOTHING[:, :3], torch.tensor([[0.5, 0, 0]])], 1))
    assert brighter.mean() > images.mean()
    greyer = augment(images, torch.cat([NOTHING[:, :3], torch.tensor([[0, 0, -1.0]])], 1))
    assert greyer.std(1).mean() < 0.6 * images.std(1).mean()
