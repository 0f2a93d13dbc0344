"""Messages of openpi's protocol: msgpack with NumPy arrays and scalars as marked maps. Nothing here can run code: no pickle, no objects.

What comes in is bounded before it is believed: lengths of texts, maps and lists, their number (each could hold many in a few bytes), and
that an array's bytes are as many as its shape says.
"""

import math
from typing import Any

import msgpack
import numpy as np

from recap_steam.errors import UserError

NUMBERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
DTYPES = {np.dtype(name).str: np.dtype(name) for name in NUMBERS}  # what arrays may hold, by the name that they carry
MAX_TEXT, MAX_ITEMS, MAX_CONTAINERS, MAX_DIMENSIONS = 4096, 64, 256, 8


def encode(message: dict[str, Any]) -> bytes:
    """A message of texts, numbers, None, lists, maps and arrays."""
    return msgpack.packb(message, default=_pack)


def decode(message: bytes | str) -> dict[str, Any]:
    """The map in a message; arrays are read-only views of it.

    Raises:
        UserError: it is no such map, or goes beyond the limits.
    """
    if isinstance(message, str):
        raise UserError("message: a text frame; send an observation as msgpack in a binary frame, as openpi-client does")
    budget = _Budget()
    limits = {"max_str_len": MAX_TEXT, "max_array_len": MAX_ITEMS, "max_map_len": MAX_ITEMS, "max_ext_len": 0}
    try:
        found = msgpack.unpackb(message, object_hook=budget.map, list_hook=budget.list, **limits)
    except (ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise UserError(f"message: not msgpack within the limits ({reason}); send an observation as openpi-client packs it") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserError("message: not a map with names as keys; send an observation as openpi-client packs it")
    return found


class _Budget:
    """Counts the maps and lists of one message, and turns marked maps into arrays and scalars."""

    def __init__(self):
        self._left = MAX_CONTAINERS

    def list(self, items: list) -> list:
        self._left -= 1
        if self._left < 0:
            raise UserError(f"message: more than {MAX_CONTAINERS} lists and maps; send numbers as NumPy arrays")
        return items

    def map(self, items: dict) -> Any:
        self.list([])
        if b"__ndarray__" in items:
            return _array(items.get(b"data"), items.get(b"dtype"), items.get(b"shape"))
        if b"__npgeneric__" in items:
            return _scalar(items.get(b"data"))
        return items


def _array(data: Any, dtype: Any, shape: Any) -> np.ndarray:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UserError(f"message: an array of dtype {str(dtype)[:20]!r}; send one of {', '.join(DTYPES)}")
    sizes = shape if isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS else [None]
    if not isinstance(data, bytes) or not all(type(size) is int and size >= 0 for size in sizes):
        raise UserError("message: an array without bytes or without a shape; send it as openpi-client packs it")
    if len(data) != math.prod(sizes) * DTYPES[dtype].itemsize:
        raise UserError(f"message: an array of {len(data)} bytes cannot be {dtype} of shape {sizes}; send it as openpi-client packs it")
    return np.ndarray(sizes, DTYPES[dtype], data)


def _scalar(data: Any) -> str | int | float:
    if not isinstance(data, str | int | float):
        raise UserError("message: a NumPy scalar that is neither number nor text; send numbers and text")
    return data


def _pack(value: Any) -> dict[bytes, Any]:
    """What the client's codec reads as an array or a scalar."""
    if isinstance(value, np.ndarray) and value.dtype.str in DTYPES:
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    raise TypeError(f"cannot send {type(value).__name__}")
