"""Training of a policy: advantage-conditioned (RECAP), imitation or filtered imitation, all by pi0.5's flow-matching loss."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from recap_steam import devices
from recap_steam.config import PolicyConfig
from recap_steam.policy.flow import draw_flow, sample_losses
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.images import draw_augmentation
from recap_steam.policy.pi05 import PI05Policy
from recap_steam.policy.prompts import KIND_NAMES, NEGATIVE, PLAIN, POSITIVE, SUFFIXES
from recap_steam.policy.routing import branches, branches_of, route
from recap_steam.policy.samples import Source
from recap_steam.training.policy_evaluation import PolicyEvaluation
from recap_steam.training.policy_samples import PolicySamples, Views, evenly


class PolicyTraining:
    """A policy as the training loop sees it (``loop.Trainable``).

    Each sample is one frame: its images and prompt, and the actions from there to the end of the chunk or of the episode.

    Args:
        processors: lerobot's pre- and postprocessor of ``policy``; tokenizer: the one inside.
        training, held_out: the datasets; ``held_out`` may be empty. views: their images, by name. weights: mixture shares of ``training``.
    """

    selection = None  # a policy has no held-out score that is worth choosing by; the last checkpoint is exported

    def __init__(
        self,
        config: PolicyConfig,
        policy: PI05Policy,
        processors: tuple,
        tokenizer: PreTrainedTokenizerBase,
        training: list[Source],
        held_out: list[Source],
        views: dict[str, Views],
        weights: list[float],
    ):
        self.config, self.policy, self.processors, self.tokenizer = config, policy, processors, tokenizer
        self.model, self.weights = policy.model, weights
        self._state_dim, self._action_dim = training[0].states.shape[1], training[0].actions.shape[1]
        self._conditional = config.advantage_tag is not None

        def samples(sources: list[Source]) -> PolicySamples:
            return PolicySamples(processors[0], sources, [views[source.name] for source in sources], self._kinds())

        def evaluation(sources: list[Source]) -> PolicyEvaluation:
            frames = samples(evenly(sources, config.eval.max_samples))
            batch_size = config.micro_batch_size or max(1, config.global_batch_size // devices.world_size())
            return PolicyEvaluation(policy, frames, self._action_dim, batch_size)

        self._samples = samples(training)
        self.lengths = self._samples.lengths
        self._labels = self._samples.labels if self._conditional else None
        self._on_training_frames = evaluation(training)
        self._on_held_out = evaluation(held_out) if held_out else None

    def parameter_groups(self) -> list[dict]:
        return [{"params": [parameter for parameter in self.model.parameters() if parameter.requires_grad]}]

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """See ``loop.Trainable``. Every sample draws, in this order: indicator, flow time, noise, augmentation of each camera.

        Beside what ``PolicySamples.take`` and ``draw_flow`` return: ``augmentation`` (n, cameras, draws) float32 with ``do_augment``; for
        conditional policies ``branch`` (n,) int64 and ``eligible`` (n,) bool, which could have seen an indicator.
        """
        config, settings = self.config, self.policy.config
        u = np.array([rng.random() for rng in rngs])
        kinds, arrays = np.full(len(samples), PLAIN), {}
        if self._conditional:
            labels, positive_only = self._labels[samples], config.positive_only_conditional
            kinds = route(labels, u, positive_only, config.unconditional_prob)
            arrays = {"branch": branches(labels, kinds, positive_only), "eligible": labels | (not positive_only), "plain": kinds == PLAIN}
        arrays |= draw_flow(settings, rngs)
        if config.do_augment:
            arrays["augmentation"] = np.stack([draw_augmentation(rng, config.cameras) for rng in rngs])
        arrays |= self._samples.take(samples, kinds, settings.chunk_size, settings.max_action_dim)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor | None]]]:
        """The mean of ``sample_losses``, and for conditional policies the loss and the number of samples of every branch, and the realised
        rate of dropped indicators among the samples that could have seen one."""
        losses = sample_losses(self.policy, batch, self._action_dim)
        if not self._conditional:
            return losses.mean(), {}
        metrics = {}
        for index, name in enumerate(branches_of(self.config.positive_only_conditional)):
            hit = (batch["branch"] == index).float()
            metrics[f"loss_{name}"] = ((losses * hit).sum(), hit.sum())
            metrics[f"count_{name}"] = (hit.sum(), None)
        eligible = batch["eligible"].float()
        metrics["unconditional_rate"] = ((eligible * batch["plain"]).sum(), eligible.sum())
        return losses.mean(), metrics

    def evaluate(self) -> dict[str, float]:
        """Losses under the plain prompt of training frames and, where there are any, of held-out ones; for conditional policies the flip
        test, on held-out frames where there are any (``eval/loss`` then exists too), else on training frames. See ``PolicyEvaluation``."""
        with devices.gathered(self.model):
            metrics = {"eval_train/loss": self._on_training_frames.loss()}
            if self._on_held_out:
                metrics["eval/loss"] = self._on_held_out.loss()
            if self._conditional:
                metrics |= (self._on_held_out or self._on_training_frames).flip_test(self._kinds())
        return metrics

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        model = self.config.model
        serving = Serving(
            conditional=self._conditional,
            default_guidance_scale=1.0 if self._conditional else None,
            cameras=self.config.cameras,
            image_size=model.image_size,
            state_dim=self._state_dim,
            action_dim=self._action_dim,
            chunk_size=model.chunk_size,
            n_action_steps=model.n_action_steps,
            num_inference_steps=model.num_inference_steps,
            small=model.small,
            task_suffixes={KIND_NAMES[kind]: SUFFIXES[kind] for kind in self._kinds()},
        )
        save_policy(folder, self.policy, weights, self.processors, self.tokenizer, serving)

    def _kinds(self) -> list[int]:
        """Prompts that occur, the plain one first."""
        if not self._conditional:
            return [PLAIN]
        return [PLAIN, POSITIVE] if self.config.positive_only_conditional else [PLAIN, POSITIVE, NEGATIVE]
