"""Checks on what a client sends: each returns the value as models take it, or says which key is wrong and what to send instead."""

from typing import Any

import numpy as np

from recap_steam.errors import UserError

MAX_SIDE = 4096  # pixels
MAX_PROMPT = 1000  # characters
MAX_FRAME = 2**31
MAX_NUMBER = 1e4  # beyond any sensible guidance


def check_keys(observation: dict[str, Any], needed: list[str], optional: list[str], otherwise: str) -> None:
    """Raise UserError unless there are the ``needed`` keys and beside them only ``optional`` ones. ``otherwise``: what this server is."""
    for problem, keys in (("unknown", observation.keys() - {*needed, *optional}), ("no", {*needed} - observation.keys())):
        if keys:
            also = f", and may have {', '.join(optional)}" if optional else ""
            raise UserError(f"{problem} key {_short(min(keys))}; an observation has {', '.join(needed)}{also}; {otherwise}")


def images_of(observation: dict[str, Any], cameras: list[str]) -> dict[str, np.ndarray | None]:
    """By camera, (1, H, W, 3) uint8, or None for a camera that the robot lacks. Channels may also come first."""
    images = {camera: _image(observation[camera], camera) for camera in cameras}
    if all(image is None for image in images.values()):
        raise UserError(f"key {_short(cameras[0])}: no camera has an image; send at least one")
    return images


def _image(value: Any, key: str) -> np.ndarray | None:
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 3:
        raise UserError(
            f"key {_short(key)}: {_kind(value)}; send an image as uint8 from 0 to 255, height x width x 3, or None if there is none"
        )
    if value.shape[-1] != 3 and value.shape[0] == 3:
        value = np.moveaxis(value, 0, -1)
    if value.shape[-1] != 3 or not all(1 <= side <= MAX_SIDE for side in value.shape[:2]):
        raise UserError(f"key {_short(key)}: shape {value.shape}; send height x width x 3 with sides of 1 to {MAX_SIDE} pixels")
    return np.array(value[None])


def numbers(observation: dict[str, Any], key: str, shape: tuple[int, ...]) -> np.ndarray:
    """(1, *shape) float32, finite."""
    value = observation[key]
    if not isinstance(value, np.ndarray) or value.shape != shape:
        raise UserError(f"key {_short(key)}: {_kind(value)}; send an array of numbers of shape {shape}")
    with np.errstate(over="ignore"):
        found = np.array(value[None], np.float32)
    if not np.isfinite(found).all():
        raise UserError(f"key {_short(key)}: NaN or infinite; send finite numbers")
    return found


def number(observation: dict[str, Any], key: str) -> float:
    """A number that is neither NaN nor huge."""
    value = observation[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        raise UserError(f"key {_short(key)}: {_kind(value)}; send a number of at most {MAX_NUMBER:g} either way")
    return float(value)


def frame(observation: dict[str, Any], key: str) -> int:
    """The number of a frame."""
    value = observation[key]
    if type(value) is not int or not 0 <= value < MAX_FRAME:
        raise UserError(f"key {_short(key)}: {_kind(value)}; send an integer, 0 at the first frame of an episode")
    return value


def text(observation: dict[str, Any], key: str) -> str:
    """A text that is not empty."""
    value = observation[key]
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_PROMPT:
        raise UserError(f"key {_short(key)}: {_kind(value)}; send a text of 1 to {MAX_PROMPT} characters")
    return value


def one_of(observation: dict[str, Any], key: str, known: list[str]) -> str:
    value = observation[key]
    if not isinstance(value, str) or value not in known:
        raise UserError(f"key {_short(key)}: {_kind(value)}; send one of {', '.join(known)}")
    return value


def _kind(value: Any) -> str:
    """What a value is, in a few words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} of shape {value.shape}"
    return _short(value) if isinstance(value, str | int | float) else type(value).__name__


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
