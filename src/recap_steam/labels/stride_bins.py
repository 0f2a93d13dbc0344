"""Bins of signed strides, the targets of STEAM's progress critic: how many frames the second image of a pair lies after the first."""

import numpy as np

from recap_steam.errors import UserError


def stride_bins(strides: np.ndarray, max_stride: int, num_bins: int) -> np.ndarray:
    """Bin of each stride, (n,) int64 in [0, num_bins): the lower half for strides back in time, the upper half for strides ahead.

    Args:
        strides: (n,) integers in [-max_stride, max_stride] without 0, frames.
        max_stride: k, the longest stride of a pair.
        num_bins: even; its bins hold 2 k / num_bins strides each.

    Raises:
        UserError: bins of unequal size, or a stride that is 0 or longer than ``max_stride``.

    Source: the reference's STEAM pair dataset (RLinf), whose values are reproduced exactly.
    """
    if num_bins < 2 or num_bins % 2 or (num_bins > 2 and 2 * max_stride % num_bins):
        raise UserError(f"config: num_bins {num_bins} must be even and divide 2 k = {2 * max_stride}; change one of them")
    strides = np.asarray(strides, np.int64)
    outside = (strides == 0) | (np.abs(strides) > max_stride)
    if outside.any():
        raise UserError(f"stride {strides[outside][0]} is not in 1 to {max_stride}, ahead or back; pair frames within k = {max_stride}")
    position = strides + max_stride - (strides > 0)  # 0 to 2 k - 1, without a gap where stride 0 would be
    return position * num_bins // (2 * max_stride)
