"""From rows of a dataset to what the critic reads: images of its cameras and the prompt, as host tensors."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from recap_steam.critics.images import augment, to_model
from recap_steam.critics.prompts import PromptTable
from recap_steam.dataset.frames import FrameCache


@dataclasses.dataclass(frozen=True)
class CriticFrames:
    """One dataset as the critic sees it.

    Attributes:
        cache: frame cache with at least the present cameras.
        keys: the dataset's key of each camera, in the critic's order; None: this robot lacks the camera.
        prompts: token ids by task.
        prompt_codes: (F,) int32, each frame's task.
    """

    cache: FrameCache
    keys: list[str | None]
    prompts: PromptTable
    prompt_codes: np.ndarray

    @property
    def present(self) -> np.ndarray:
        """(cameras,) bool."""
        return np.array([key is not None for key in self.keys])

    def images(self, rows: np.ndarray) -> np.ndarray:
        """(n, present cameras, S, S, 3) uint8."""
        return np.stack([self.cache.images(key, rows) for key in self.keys if key is not None], 1)

    def tokens(self, rows: np.ndarray) -> list[np.ndarray]:
        """Token ids of each row's prompt."""
        return self.prompts.take(self.prompt_codes[rows])

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Host batch of ``rows`` (n,): images and prompts."""
        return self.image_batch(rows) | collate_tokens(self.tokens(rows))

    def image_batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Host batch of the images of ``rows`` (n,)."""
        images = self.images(rows)
        return collate_images(images.reshape(-1, *images.shape[2:]), np.tile(self.present, (len(rows), 1)))


def collate_images(images: np.ndarray, camera_mask: np.ndarray) -> dict[str, Tensor]:
    """Host batch of n frames with the m images that exist, so that an absent camera costs nothing.

    Args:
        images: (m, S, S, 3) uint8, frame by frame, each frame's in the order of the critic's cameras.
        camera_mask: (n, cameras) bool, True where there is an image.

    Returns:
        ``images``; ``places`` (m,) int64, frame * cameras + camera of each image; ``camera_mask``.
    """
    batch = {"images": images, "places": np.flatnonzero(camera_mask), "camera_mask": camera_mask}
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def collate_tokens(tokens: list[np.ndarray]) -> dict[str, Tensor]:
    """Host batch of the token ids of n prompts: ``tokens`` (n, L) int64, padded to this batch; ``token_mask`` (n, L) bool."""
    lengths = np.array([len(row) for row in tokens])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = np.concatenate(tokens)
    return {"tokens": torch.from_numpy(padded), "token_mask": torch.from_numpy(mask)}


VALUE_INPUTS = ("places", "camera_mask", "tokens", "token_mask")  # of ``ValueCritic.forward``, behind the images


def model_inputs(batch: dict[str, Tensor], names: tuple[str, ...] = VALUE_INPUTS) -> tuple[Tensor, ...]:
    """A model's arguments from a batch on the device: images, augmented where it has ``augmentation`` draws (m, DRAWS), and ``names``."""
    images = to_model(batch["images"])
    if "augmentation" in batch:
        images = augment(images, batch["augmentation"])
    return images, *(batch[name] for name in names)
