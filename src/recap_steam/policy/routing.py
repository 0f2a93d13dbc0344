"""Which prompt each training sample sees: the reference's rule for training conditional and unconditional branches together.

With ``u`` uniform on [0, 1): a sample is conditional when ``u > unconditional_prob``; under ``positive_only_conditional`` it must also be
labelled positive, so negative samples always train the plain prompt (RECAP's "policy without indicator sees all data").
"""

import numpy as np

from recap_steam.policy.prompts import NEGATIVE, PLAIN, POSITIVE

BRANCHES = ("positive_conditional", "positive_dropped", "negative", "negative_conditional", "negative_dropped")


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


def branches_of(positive_only_conditional: bool) -> list[str]:
    """The ``BRANCHES`` that occur: a negative sample that could never see an indicator is just ``negative``."""
    return [name for name in BRANCHES if not name.startswith("negative") or (name == "negative") == positive_only_conditional]


def branches(labels: np.ndarray, kinds: np.ndarray, positive_only_conditional: bool) -> np.ndarray:
    """Index into ``branches_of(positive_only_conditional)`` of each sample, from its label (n,) bool and its prompt kind (n,) int64."""
    negative = 2 + (0 if positive_only_conditional else kinds == PLAIN)
    return np.where(labels, kinds == PLAIN, negative)
