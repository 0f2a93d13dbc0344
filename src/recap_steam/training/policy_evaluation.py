"""What is measured of a policy while it trains: its loss, and whether it listens to the indicator."""

from collections.abc import Iterator

import numpy as np
import torch
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from torch import Tensor

from recap_steam import devices
from recap_steam.policy.flow import draw_flow, image_inputs, sample_losses
from recap_steam.policy.prompts import KIND_NAMES, PLAIN
from recap_steam.training.policy_samples import PolicySamples

SEED = 20251129


class PolicyEvaluation:
    """Measurements on fixed frames with fixed noise, so that they differ between steps by the policy alone. No labels, no augmentation.

    Args:
        samples: the frames, all of which are used.
        batch_size: frames at once. Every process measures all of them: they share a sharded model, and must make the same calls.
    """

    def __init__(self, policy: PI05Policy, samples: PolicySamples, action_dim: int, batch_size: int):
        self._policy, self._samples, self._action_dim, self._batch_size = policy, samples, action_dim, batch_size

    def loss(self) -> float:
        """Mean flow-matching loss under the plain prompt, which every policy has and which needs no label."""
        losses = [sample_losses(self._policy, batch, self._action_dim) for _, batch in self._batches()]
        return torch.cat(losses).mean().item()

    def flip_test(self, kinds: list[int]) -> dict[str, float]:
        """Mean distance between the actions sampled for two prompts of the same frame from the same noise: L2 per step, normalised units.

        ``flip/positive_plain`` and so on compare two of ``kinds``, the first of which is the plain prompt; near 0 the indicator is ignored.
        ``flip/noise`` is the distance between two noises under the plain prompt, for scale.
        """
        distances: dict[str, list[Tensor]] = {}
        for numbers, batch in self._batches():
            actions = {KIND_NAMES[kind]: self._sample(numbers, batch, kind, batch["noise"]) for kind in kinds}
            names = list(actions)
            pairs = {f"{one}_plain": (actions[one], actions["plain"]) for one in names[1:]}
            if len(names) == 3:
                pairs["positive_negative"] = (actions["positive"], actions["negative"])
            pairs["noise"] = (self._sample(numbers, batch, PLAIN, batch["other_noise"]), actions["plain"])
            for name, (one, other) in pairs.items():
                distances.setdefault(f"flip/{name}", []).append((one - other).norm(dim=-1).mean(1))
        return {name: torch.cat(parts).mean().item() for name, parts in distances.items()}

    def _batches(self) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
        """Numbers of the samples, and the batch on the device: under the plain prompt, with ``noise`` and ``other_noise``."""
        settings, total = self._policy.config, sum(self._samples.lengths)
        for start in range(0, total, self._batch_size):
            numbers = np.arange(start, min(start + self._batch_size, total))
            rngs = [np.random.default_rng([SEED, number]) for number in numbers]
            plain = np.full(len(numbers), PLAIN)
            arrays = self._samples.take(numbers, plain, settings.chunk_size, settings.max_action_dim) | draw_flow(settings, rngs)
            arrays["other_noise"] = draw_flow(settings, rngs)["noise"]
            yield numbers, {name: torch.from_numpy(array).to(devices.device()) for name, array in arrays.items()}

    def _sample(self, numbers: np.ndarray, batch: dict[str, Tensor], kind: int, noise: Tensor) -> Tensor:
        prompt = (torch.from_numpy(array).to(noise.device) for array in self._samples.prompts.take(np.full(len(numbers), kind), numbers))
        return self._policy.model.sample_actions(*image_inputs(self._policy, batch), *prompt, noise=noise)[..., : self._action_dim]
