"""The advantage labels that a policy is conditioned on: those of its tag, or a control's, which tells whether the labels matter."""

import numpy as np

from recap_steam.config import Experiment, PolicyConfig
from recap_steam.dataset.episodes import Episodes
from recap_steam.errors import UserError
from recap_steam.labels.parameters import RELABELLED, label_parameters
from recap_steam.sidecar import read_sidecar, sidecar_path


def policy_labels(experiment: Experiment, policy: PolicyConfig, episodes: Episodes, rows: np.ndarray) -> np.ndarray | None:
    """Labels (F,) bool of the frames of a training dataset, of which ``rows`` (n,) are samples; None for imitation.

    Raises:
        UserError: an advantages sidecar that is missing, foreign or not the workflow's.
    """
    if policy.advantage_tag is None:
        return None
    labels = _labels(experiment, policy.advantage_tag, episodes)
    if policy.label_control == "all_positive":
        return np.ones_like(labels)
    return shuffled(labels, rows, policy.seed, episodes.dataset) if policy.label_control == "shuffled" else labels


def _labels(experiment: Experiment, tag: str, episodes: Episodes) -> np.ndarray:
    """A demonstration is positive; those that the tag does not label need no sidecar to say so."""
    name = episodes.dataset
    if name not in experiment.advantages[tag].datasets and experiment.datasets[name].type == "sft":
        return np.ones(episodes.num_frames, bool)
    path = sidecar_path(experiment.datasets[name], name, f"advantages_{tag}")
    parameters = label_parameters(experiment, tag)
    labels = read_sidecar(path, "advantages", episodes, ["advantage"], tag=tag, parameters=parameters)
    if labels.lineage.stage == RELABELLED:  # the workflow would write it again one day, and then train the policy again
        raise UserError(f"{path}: was made by the relabelling command; delete it and run Snakemake again, which makes the same labels")
    return labels.columns["advantage"]


def shuffled(labels: np.ndarray, rows: np.ndarray, seed: int, dataset: str) -> np.ndarray:
    """The labels (F,) permuted among the samples ``rows`` (n,), of which as many stay positive. Depends on the policy's ``seed`` and the
    dataset's name, not on what else the policy learns from."""
    permuted = labels.copy()
    permuted[rows] = np.random.default_rng([seed, *dataset.encode()]).permutation(labels[rows])
    return permuted
