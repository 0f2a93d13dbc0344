"""The categorical value: targets spread over two neighbouring atoms, and what a predicted distribution says.

Atoms are ``num_bins`` evenly spaced values from ``v_min`` to ``v_max`` (201 from -1 to 0 in the pi*0.6 paper).
"""

import dataclasses

import numpy as np
import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Support:
    """The atoms of a categorical value."""

    num_bins: int
    v_min: float
    v_max: float

    def atoms(self) -> np.ndarray:
        """(num_bins,) float64."""
        return np.linspace(self.v_min, self.v_max, self.num_bins)

    def two_hot(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split targets between their two neighbouring atoms, so that the expectation is the target.

        Args:
            targets: (n,); those outside the support are clamped to it.

        Returns:
            lower: (n,) int64, index of the lower atom, at most num_bins - 2, so that lower + 1 is an atom too.
            weight: (n,) float64 in [0, 1], mass of atom lower + 1; atom lower has the rest. A target on an atom has all its mass there.
        """
        position = (np.clip(targets, self.v_min, self.v_max) - self.v_min) / (self.v_max - self.v_min) * (self.num_bins - 1)
        lower = np.minimum(np.floor(position).astype(np.int64), self.num_bins - 2)
        return lower, position - lower


@dataclasses.dataclass(frozen=True)
class Distribution:
    """What a critic says about n frames, all (n,) tensors: expectation, standard deviation, entropy in nats, and most likely atom."""

    value: Tensor
    std: Tensor
    entropy: Tensor
    best_bin: Tensor


def cross_entropy(logits: Tensor, lower: Tensor, weight: Tensor) -> Tensor:
    """(n,) cross-entropy in nats of two-hot targets (see ``Support.two_hot``) under ``logits`` (n, num_bins), computed in fp32."""
    log_p = logits.float().log_softmax(-1)
    below, above = (log_p.gather(-1, (lower + step)[:, None])[:, 0] for step in (0, 1))
    return -((1 - weight) * below + weight * above)


def describe(logits: Tensor, support: Support) -> Distribution:
    """Summarise ``logits`` (n, num_bins), in fp32."""
    log_p = logits.float().log_softmax(-1)
    p = log_p.exp()
    atoms = torch.linspace(support.v_min, support.v_max, support.num_bins, device=logits.device)  # made there: a copy would wait for it
    value = p @ atoms
    variance = (p * (atoms - value[:, None]).square()).sum(-1)
    return Distribution(value, variance.sqrt(), -(p * log_p).sum(-1), logits.argmax(-1))
