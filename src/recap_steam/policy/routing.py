"""Which prompt each training sample sees: the reference's rule for training conditional and unconditional branches together.

With ``u`` uniform on [0, 1): a sample is conditional when ``u > unconditional_prob``; under ``positive_only_conditional`` it must also be
labelled positive, so negative samples always train the plain prompt (RECAP's "policy without indicator sees all data").
"""

import numpy as np

from recap_steam.policy.prompts import NEGATIVE, PLAIN, POSITIVE

BRANCHES = ("positive_conditional", "positive_unconditional", "negative_conditional", "negative_unconditional")


def route(labels: np.ndarray, u: np.ndarray, positive_only_conditional: bool, unconditional_prob: float) -> np.ndarray:
    """Prompt kind of each sample.

    Args:
        labels: (n,) bool, the advantage labels.
        u: (n,) float, uniform on [0, 1).

    Returns:
        (n,) int64 of ``PLAIN``, ``POSITIVE``, ``NEGATIVE``.
    """
    conditional = u > unconditional_prob
    if positive_only_conditional:
        conditional &= labels
    return np.where(conditional, np.where(labels, POSITIVE, NEGATIVE), PLAIN)


def branches(labels: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Index into ``BRANCHES`` of each sample, from its label (n,) bool and its prompt kind (n,) int64."""
    return 2 * (~labels).astype(np.int64) + (kinds == PLAIN)
