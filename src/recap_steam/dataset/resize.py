"""The one image resize of the project: the frame cache and the policy at serving time use the same function."""

import functools

import numpy as np


def resize_with_pad(images: np.ndarray, size: int) -> np.ndarray:
    """Fit images into a square without distortion, bilinear, with centred black padding; a copy-free identity if they fit already.

    The geometry is that of openpi's ``resize_with_pad`` (pixel centres aligned, no antialiasing), which pi0.5 was trained with.

    Args:
        images: (..., H, W, C) uint8.
        size: height and width of the result, pixels.

    Returns:
        (..., size, size, C) uint8.
    """
    height, width, channels = images.shape[-3:]
    if (height, width) == (size, size):
        return images
    ratio = max(height, width) / size
    new_height, new_width = max(1, int(height / ratio)), max(1, int(width / ratio))
    top, left = (size - new_height) // 2, (size - new_width) // 2
    padded = np.zeros((*images.shape[:-3], size, size, channels), dtype=np.uint8)
    resized = _interpolate(_interpolate(images, -3, new_height), -2, new_width)
    padded[..., top : top + new_height, left : left + new_width, :] = np.rint(resized)
    return padded


def _interpolate(images: np.ndarray, axis: int, length: int) -> np.ndarray:
    """Linear interpolation along one axis to ``length`` pixels, float32."""
    lower, upper, weight = _taps(images.shape[axis], length)
    weight = weight.reshape(-1, *[1] * (-axis - 1))
    below = images.take(lower, axis).astype(np.float32)
    return below + weight * (images.take(upper, axis) - below)


@functools.lru_cache(maxsize=32)
def _taps(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the two source pixels of every target pixel, and the weight of the second."""
    position = np.maximum((np.arange(new) + 0.5) * (old / new) - 0.5, 0)
    lower = np.minimum(position.astype(np.int64), old - 1)
    return lower, np.minimum(lower + 1, old - 1), (position - lower).astype(np.float32)
