"""Camera images on their way into the vision tower: scaled, and augmented while training.

Augmentation draws per sample and camera, on the host, so that a picture depends on its place in the data order only; the pixels are
changed on the device. Ranges are RLinf's: 95 % crop, +-5 degrees, brightness +-30 %, contrast +-40 %, saturation +-50 %.
"""

import math

import numpy as np
import torch
from torch import Tensor

DRAWS = 6  # crop down, crop right, angle, brightness, contrast, saturation
CROP = 0.95  # side of the crop relative to the image's
ANGLE = math.radians(5)
COLOUR = (0.3, 0.4, 0.5)


def to_model(images: Tensor) -> Tensor:
    """(..., S, S, 3) uint8 to (..., 3, S, S) float32 in [-1, 1], SigLIP's convention."""
    return images.movedim(-1, -3).float().div_(127.5).sub_(1)  # in place: fresh memory costs more than the arithmetic


def draw_augmentation(rng: np.random.Generator, cameras: list[str]) -> np.ndarray:
    """The draws of one sample, (cameras, DRAWS) float32, uniform on [-1, 1).

    Wrist cameras keep their geometry (crop and angle are NaN), since the gripper is fixed in their picture.
    """
    draws = rng.uniform(-1, 1, (len(cameras), DRAWS)).astype(np.float32)
    draws[["wrist" in camera for camera in cameras], :3] = np.nan
    return draws


def augment(images: Tensor, draws: Tensor) -> Tensor:
    """Crop, rotate and change the colours of each image.

    Args:
        images: (n, 3, S, S) float32 in [-1, 1].
        draws: (n, DRAWS) of ``draw_augmentation``; NaN geometry leaves the geometry as it is.

    Returns:
        (n, 3, S, S) float32 in [-1, 1]; what lies outside the picture is black.
    """
    fixed = draws[:, 2].isnan()
    down, right, angle = draws[:, :3].nan_to_num().unbind(1)
    side = torch.where(fixed, 1.0, CROP)
    cos, sin = side * (angle * ANGLE).cos(), side * (angle * ANGLE).sin()
    offset = 1 - CROP  # the largest shift that keeps the crop inside, in units of half the image
    theta = torch.stack([cos, -sin, right * offset, sin, cos, down * offset], 1).view(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    unit = torch.nn.functional.grid_sample((images + 1) / 2, grid, align_corners=False)
    brightness, contrast, saturation = (1 + draws[:, 3 + i, None, None, None] * strength for i, strength in enumerate(COLOUR))
    unit = unit * brightness
    unit = torch.lerp(unit.mean((1, 2, 3), keepdim=True), unit, contrast)
    unit = torch.lerp(unit.mean(1, keepdim=True), unit, saturation)
    return unit.clamp(0, 1) * 2 - 1
