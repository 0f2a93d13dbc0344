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
    corners, down, right = _corners((height, width, channels), (new_height, new_width))
    pixels = images.reshape(*images.shape[:-3], -1).take(corners, -1, mode="clip").astype(np.float32)
    top_left, top_right, bottom_left, bottom_right = np.moveaxis(pixels, -3, 0)
    resized = _between(_between(top_left, bottom_left, down), _between(top_right, bottom_right, down), right)
    padded = np.zeros((*images.shape[:-3], size, size, channels), dtype=np.uint8)
    place = padded[..., top : top + new_height, left : left + new_width, :]
    place[...] = np.rint(resized, out=resized).reshape(place.shape)
    return padded


def _between(one: np.ndarray, other: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``one + weight * (other - one)``, written over ``other``: fresh memory would cost as much as the arithmetic."""
    other -= one
    other *= weight
    other += one
    return other


@functools.lru_cache(maxsize=32)
def _corners(old: tuple[int, int, int], new: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a resized image's bytes come from.

    Args:
        old: height, width and channels of the image; new: height and width of the result.

    Returns:
        indices (4, height, width * channels) int64 into the image's bytes of the four pixels around every target pixel (top left, top
        right, bottom left, bottom right), and the weights of the lower two (height, 1) and the right two (width * channels,), float32.
    """
    height, width, channels = old
    top, bottom, down = _taps(height, new[0])
    left, right, across = _taps(width, new[1])
    pixels = np.stack([row[:, None] * width + column for row in (top, bottom) for column in (left, right)])
    indices = pixels[..., None] * channels + np.arange(channels)
    return indices.reshape(4, new[0], -1), down[:, None], np.repeat(across, channels)


def _taps(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the two source pixels of every target pixel along one axis, and the weight of the second."""
    position = np.maximum((np.arange(new) + 0.5) * (old / new) - 0.5, 0)
    lower = np.minimum(position.astype(np.int64), old - 1)
    return lower, np.minimum(lower + 1, old - 1), (position - lower).astype(np.float32)
