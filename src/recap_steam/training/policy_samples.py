"""Samples of a policy as host arrays: everything small in memory and tokenised once, images from the frame caches."""

import dataclasses

import numpy as np
from lerobot.processor import PolicyProcessorPipeline

from recap_steam.dataset.frames import FrameCache
from recap_steam.policy.processors import PromptTable, normalize_actions
from recap_steam.policy.samples import Source
from recap_steam.training.order import locate, spread


@dataclasses.dataclass(frozen=True)
class Views:
    """One dataset's images as the cameras of a policy.

    Attributes:
        cache: frame cache with at least the present cameras.
        keys: the dataset's key of each camera, in the policy's order; None: this robot lacks the camera.
    """

    cache: FrameCache
    keys: list[str | None]

    @property
    def present(self) -> np.ndarray:
        """(cameras,) bool."""
        return np.array([key is not None for key in self.keys])

    def images(self, rows: np.ndarray) -> np.ndarray:
        """(n, cameras, S, S, 3) uint8; black where the camera is absent."""
        size = self.cache.image_size
        images = np.zeros((len(rows), len(self.keys), size, size, 3), np.uint8)
        for place, key in enumerate(self.keys):
            if key is not None:
                images[:, place] = self.cache.images(key, rows)
        return images


def evenly(sources: list[Source], count: int) -> list[Source]:
    """The same sources with at most ``count`` samples, see ``order.spread``; those that keep none are left out."""
    lengths = [len(source.selected) for source in sources]
    kept, places = locate(lengths, spread(lengths, count))
    thinned = [dataclasses.replace(source, selected=source.selected[places[kept == index]]) for index, source in enumerate(sources)]
    return [source for source in thinned if len(source.selected)]


class PolicySamples:
    """The samples of several sources under one numbering that counts through them.

    Args:
        preprocessor: the policy's own; kinds: of the prompts that will be asked for.
        views: the sources' images.
    """

    def __init__(self, preprocessor: PolicyProcessorPipeline, sources: list[Source], views: list[Views], kinds: list[int]):
        self.lengths = [len(source.selected) for source in sources]
        self.prompts = PromptTable.of(preprocessor, sources, kinds)
        self._preprocessor, self._sources, self._views = preprocessor, sources, views

    @property
    def labels(self) -> np.ndarray:
        """(samples,) bool; only of labelled sources."""
        return np.concatenate([source.labels[source.selected] for source in self._sources])

    def take(self, samples: np.ndarray, kinds: np.ndarray, chunk_size: int, max_action_dim: int) -> dict[str, np.ndarray]:
        """Arrays of n samples under prompts of ``kinds`` (n,).

        Returns:
            ``actions`` (n, chunk_size, max_action_dim) float32, normalised, zero in dimensions that the robot lacks; ``action_is_pad``
            (n, chunk_size) bool; ``images`` (n, cameras, S, S, 3) uint8; ``camera_mask`` (n, cameras) bool; ``tokens`` (n, L) int64;
            ``token_mask`` (n, L) bool.
        """
        source, places = locate(self.lengths, samples)
        order = np.argsort(source, kind="stable")
        parts = [self._of_source(index, places[source == index], chunk_size) for index in np.unique(source)]
        arrays = {name: np.concatenate([part[name] for part in parts])[np.argsort(order)] for name in parts[0]}
        padding = max_action_dim - arrays["actions"].shape[-1]
        arrays["actions"] = np.pad(normalize_actions(self._preprocessor, arrays["actions"]), ((0, 0), (0, 0), (0, padding)))
        arrays["tokens"], arrays["token_mask"] = self.prompts.take(kinds, samples)
        return arrays

    def _of_source(self, index: int, places: np.ndarray, chunk_size: int) -> dict[str, np.ndarray]:
        source, views = self._sources[index], self._views[index]
        actions, is_pad = source.chunks(places, chunk_size)
        return {
            "actions": actions,
            "action_is_pad": is_pad,
            "images": views.images(source.selected[places]),
            "camera_mask": np.tile(views.present, (len(places), 1)),
        }
