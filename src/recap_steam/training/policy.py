"""Training of a policy: advantage-conditioned (RECAP), imitation or filtered imitation, all by pi0.5's flow-matching loss."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from recap_steam import devices
from recap_steam.config import PolicyConfig
from recap_steam.dataset.frames import FrameCache
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.images import augment, draw_augmentation, model_images, to_float
from recap_steam.policy.pi05 import PI05Policy
from recap_steam.policy.processors import PromptTable, normalize_actions
from recap_steam.policy.prompts import KIND_NAMES, NEGATIVE, PLAIN, POSITIVE
from recap_steam.policy.routing import BRANCHES, branches, route
from recap_steam.policy.samples import Chunks, Source
from recap_steam.training.order import locate, spread

EVALUATION_SAMPLES = 64
EVALUATION_SEED = 20251129


class PolicyTraining:
    """A policy as the training loop sees it (``loop.Trainable``).

    Each sample is one frame: its images and prompt, and the actions from there to the end of the chunk or of the episode. Everything small
    is held in memory, normalised and tokenised once; images come from the frame caches.

    Args:
        processors: lerobot's pre- and postprocessor of ``policy``; tokenizer: the one inside.
        sources, frames, weights: the datasets, their frame caches and their mixture shares.
    """

    selection = None  # a policy has no held-out score that is worth choosing by; the last checkpoint is exported

    def __init__(
        self,
        config: PolicyConfig,
        policy: PI05Policy,
        processors: tuple,
        tokenizer: PreTrainedTokenizerBase,
        sources: list[Source],
        frames: Sequence[FrameCache],
        weights: list[float],
    ):
        self.config, self.policy, self.processors, self.tokenizer = config, policy, processors, tokenizer
        self.model = policy.model
        self.weights, self.lengths = weights, [len(source.selected) for source in sources]
        self._sources, self._frames = sources, frames
        self._action_dim = sources[0].actions.shape[1]
        self._chunks = Chunks.of(sources, normalize_actions(processors[0], np.concatenate([source.actions for source in sources])))
        self._conditional = config.advantage_tag is not None
        self._labels = np.concatenate([source.labels[source.selected] for source in sources]) if self._conditional else None
        self._prompts = PromptTable.of(processors[0], sources, self._kinds())

    def parameter_groups(self) -> list[dict]:
        return [{"params": [parameter for parameter in self.model.parameters() if parameter.requires_grad]}]

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """See ``loop.Trainable``. Every sample draws, in this order: indicator, flow time, noise, augmentation of each camera."""
        return self._batch(samples, rngs, self.config.do_augment)

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Mean over samples of each one's mean squared error over its real action dimensions and the steps inside its episode.

        Metrics, for conditional policies: loss and share of every branch that occurs, and the realised rate of dropped indicators.
        """
        losses = self._sample_losses(batch)
        if not self._conditional:
            return losses.mean(), {}
        everything = torch.ones_like(losses).sum()
        metrics = {}
        for index, name in enumerate(BRANCHES):
            if name == "negative_conditional" and self.config.positive_only_conditional:
                continue
            hit = (batch["branch"] == index).float()
            metrics[f"loss_{name}"] = ((losses * hit).sum(), hit.sum())
            metrics[f"share_{name}"] = (hit.sum(), everything)
        plain, eligible = batch["kind"] == PLAIN, batch["label"] | (not self.config.positive_only_conditional)
        metrics["unconditional_rate"] = ((plain & eligible).float().sum(), eligible.float().sum())
        return losses.mean(), metrics

    def evaluate(self) -> dict[str, float]:
        """On a fixed set of training frames with fixed noise: the loss and, for conditional policies, the flip test.

        The flip test is the mean distance (L2 per step, in normalised action units) between the actions sampled for two prompts of the same
        frame from the same noise; ``flip/noise`` is the same between two noises for the plain prompt, for scale.
        """
        batch = {name: tensor.to(devices.device()) for name, tensor in self._evaluation_batch.items()}
        with devices.gathered(self.model):
            metrics = {"eval_train/loss": self._sample_losses(batch).mean().item()}
            if self._conditional:
                metrics |= self._flip_test(batch)
        return metrics

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        model = self.config.model
        serving = Serving(
            conditional=self._conditional,
            default_guidance_scale=1.0 if self._conditional else None,
            cameras=self.config.cameras,
            image_size=model.image_size,
            state_dim=self._sources[0].states.shape[1],
            action_dim=self._action_dim,
            chunk_size=model.chunk_size,
            n_action_steps=model.n_action_steps,
            num_inference_steps=model.num_inference_steps,
            small=model.small,
        )
        save_policy(folder, self.policy, weights, self.processors, self.tokenizer, serving)

    def _kinds(self) -> list[int]:
        if not self._conditional:
            return [PLAIN]
        return [PLAIN, POSITIVE] if self.config.positive_only_conditional else [PLAIN, POSITIVE, NEGATIVE]

    def _batch(self, samples: np.ndarray, rngs: list[np.random.Generator], do_augment: bool) -> dict[str, Tensor]:
        settings = self.policy.config
        batch = {"kind": np.full(len(samples), PLAIN)}
        u = np.array([rng.random() for rng in rngs])
        if self._conditional:
            label = self._labels[samples]
            kind = route(label, u, self.config.positive_only_conditional, self.config.unconditional_prob)
            batch |= {"label": label, "kind": kind, "branch": branches(label, kind)}
        beta = np.array([rng.beta(settings.time_sampling_beta_alpha, settings.time_sampling_beta_beta) for rng in rngs])
        batch["time"] = (beta * settings.time_sampling_scale + settings.time_sampling_offset).astype(np.float32)
        shape = (settings.chunk_size, settings.max_action_dim)
        batch["noise"] = np.stack([rng.standard_normal(shape, np.float32) for rng in rngs])
        if do_augment:
            batch["augmentation"] = np.stack([draw_augmentation(rng, self.config.cameras) for rng in rngs])
        actions, batch["action_is_pad"] = self._chunks.take(samples, settings.chunk_size)
        batch["actions"] = np.pad(actions, ((0, 0), (0, 0), (0, settings.max_action_dim - self._action_dim)))
        batch["tokens"], batch["token_mask"] = self._prompts.take(batch["kind"], samples)
        batch["images"] = self._images(samples)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _images(self, samples: np.ndarray) -> np.ndarray:
        """(n, cameras, S, S, 3) uint8."""
        source, places = locate(self.lengths, samples)
        size = self.config.model.image_size
        images = np.empty((len(samples), len(self.config.cameras), size, size, 3), np.uint8)
        for index in np.unique(source):
            hit = source == index
            rows = self._sources[index].selected[places[hit]]
            for position, camera in enumerate(self.config.cameras):
                images[hit, position] = self._frames[index].images(camera, rows)
        return images

    def _inputs(self, batch: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Images and masks as ``PI05Pytorch`` takes them."""
        by_camera = {camera: to_float(batch["images"][:, position]) for position, camera in enumerate(self.config.cameras)}
        images, masks = model_images(self.policy, by_camera)
        if "augmentation" in batch:
            images = [augment(image, batch["augmentation"][:, position]) for position, image in enumerate(images)]
        return images, masks

    def _sample_losses(self, batch: dict[str, Tensor]) -> Tensor:
        """(B,): lerobot averages over padded steps too; here only steps inside the episode count."""
        prompt = (batch["tokens"], batch["token_mask"])
        errors = self.model(*self._inputs(batch), *prompt, batch["actions"], batch["noise"], batch["time"])[..., : self._action_dim]
        valid = (~batch["action_is_pad"]).float()
        return (errors.mean(-1) * valid).sum(1) / valid.sum(1)

    @functools.cached_property
    def _evaluation_samples(self) -> np.ndarray:
        return spread(self.lengths, EVALUATION_SAMPLES)

    @functools.cached_property
    def _evaluation_batch(self) -> dict[str, Tensor]:
        rngs = [np.random.default_rng([EVALUATION_SEED, position]) for position in range(len(self._evaluation_samples))]
        return self._batch(self._evaluation_samples, rngs, do_augment=False)

    def _flip_test(self, batch: dict[str, Tensor]) -> dict[str, float]:
        inputs, noise = self._inputs(batch), batch["noise"]

        def sample(kind: int, start: Tensor) -> Tensor:
            prompt = (
                torch.from_numpy(array).to(start.device)
                for array in self._prompts.take(np.full(len(noise), kind), self._evaluation_samples)
            )
            return self.model.sample_actions(*inputs, *prompt, noise=start)[..., : self._action_dim]

        def distance(one: Tensor, other: Tensor) -> float:
            return (one - other).norm(dim=-1).mean().item()

        plain, *others = (sample(kind, noise) for kind in self._kinds())
        metrics = {f"flip/{KIND_NAMES[kind]}_plain": distance(other, plain) for kind, other in zip(self._kinds()[1:], others, strict=True)}
        if len(others) == 2:
            metrics["flip/positive_negative"] = distance(*others)
        return {**metrics, "flip/noise": distance(sample(PLAIN, noise.roll(1, 0)), plain)}
