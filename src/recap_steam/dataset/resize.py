"""The one image resize of the project: the frame cache and the policy at serving time use the same function."""

import cv2
import numpy as np

cv2.setNumThreads(1)  # a job's threads are its rule's, and an image is too small to share


def resize_with_pad(images: np.ndarray, size: int) -> np.ndarray:
    """Fit images into a square without distortion, bilinear, with centred black padding; a copy-free identity if they fit already.

    The geometry is that of openpi's ``resize_with_pad`` (pixel centres aligned, no antialiasing), which pi0.5 was trained with. OpenCV's
    exact variant gives the same bytes on every machine.

    Args:
        images: (..., H, W, 3) uint8.
        size: height and width of the result, pixels.

    Returns:
        (..., size, size, 3) uint8.
    """
    height, width = images.shape[-3:-1]
    if (height, width) == (size, size):
        return images
    ratio = max(height, width) / size
    new_height, new_width = max(1, int(height / ratio)), max(1, int(width / ratio))
    top, left = (size - new_height) // 2, (size - new_width) // 2
    padded = np.zeros((*images.shape[:-3], size, size, 3), np.uint8)
    for index in np.ndindex(images.shape[:-3]):
        resized = cv2.resize(images[index], (new_width, new_height), interpolation=cv2.INTER_LINEAR_EXACT)
        padded[index][top : top + new_height, left : left + new_width] = resized
    return padded
