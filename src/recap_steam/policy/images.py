"""Camera images on their way into pi0.5: lerobot's convention, and while training the critic's augmentation with half its ranges."""

import numpy as np
import torch
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from torch import Tensor

from recap_steam.critics import images

AUGMENTATION = 0.5  # of the critic's shifts, angles and colours (the crop stays 95 %): actions depend on where things are
ABSENT = -1.0  # every pixel of a camera that is not there, in model units: lerobot's convention, beside a mask of 0


def to_float(pixels: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 to (B, 3, H, W) float32 in [0, 1], as lerobot's datasets yield images."""
    return pixels.permute(0, 3, 1, 2).float() / 255


def model_images(policy: PI05Policy, by_camera: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Per camera (B, 3, S, S) float32 in [-1, 1] and mask (B,) bool, by lerobot's own preprocessing.

    Args:
        by_camera: by camera key, (B, 3, H, W) float32 in [0, 1].
    """
    return policy._preprocess_images(by_camera)


def mask_absent(images: list[Tensor], present: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Images and masks with each sample's absent cameras left out, as lerobot does for a whole batch.

    Every camera is encoded whatever is present, so that processes which share a sharded model make the same calls.

    Args:
        images: per camera (B, 3, S, S); present: (B, cameras) bool.
    """
    masks = list(present.unbind(1))
    return [torch.where(mask[:, None, None, None], image, ABSENT) for image, mask in zip(images, masks, strict=True)], masks


def draw_augmentation(rng: np.random.Generator, cameras: list[str]) -> np.ndarray:
    """The augmentation of one sample, (cameras, draws) float32."""
    return AUGMENTATION * images.draw_augmentation(rng, cameras)


def augment(model_image: Tensor, draws: Tensor) -> Tensor:
    """Augment one camera's model images (B, 3, S, S) by draws (B, draws)."""
    return images.augment(model_image, draws)
