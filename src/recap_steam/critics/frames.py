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
        cache: frame cache with at least ``cameras``.
        cameras: camera keys, in the critic's order.
        prompts: token ids by task.
        prompt_codes: (F,) int32, each frame's task.
    """

    cache: FrameCache
    cameras: list[str]
    prompts: PromptTable
    prompt_codes: np.ndarray

    def images(self, rows: np.ndarray) -> np.ndarray:
        """(n, cameras, S, S, 3) uint8."""
        return np.stack([self.cache.images(camera, rows) for camera in self.cameras], 1)

    def tokens(self, rows: np.ndarray) -> list[np.ndarray]:
        """Token ids of each row's prompt."""
        return self.prompts.take(self.prompt_codes[rows])


def collate(images: np.ndarray, tokens: list[np.ndarray]) -> dict[str, Tensor]:
    """Host batch: ``images`` (n, cameras, S, S, 3) uint8, ``tokens`` (n, L) int64 padded to this batch, and ``token_mask`` (n, L) bool."""
    lengths = np.array([len(row) for row in tokens])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = np.concatenate(tokens)
    return {"images": torch.from_numpy(images), "tokens": torch.from_numpy(padded), "token_mask": torch.from_numpy(mask)}


def model_inputs(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The arguments of ``ValueCritic.forward`` from a batch on the device; augments where the batch has ``augmentation`` draws."""
    images = to_model(batch["images"])
    if "augmentation" in batch:
        draws = batch["augmentation"]  # (n, cameras, DRAWS)
        images = augment(images.flatten(0, 1), draws.flatten(0, 1)).unflatten(0, images.shape[:2])
    return images, batch["tokens"], batch["token_mask"]
