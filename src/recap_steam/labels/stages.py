"""The two label rules: one threshold file per tag over all its datasets, then one advantages sidecar per dataset."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import Episodes
from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.labels.decision import counts_of, thresholds_of
from recap_steam.labels.fragment import read_fragment, write_fragment
from recap_steam.labels.recap import RecapLabels
from recap_steam.labels.steam import SteamLabels
from recap_steam.labels.thresholds import ScoredFrames, Thresholds
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file
from recap_steam.sidecar import write_sidecar


class Inputs(Protocol):
    """What labels of one dataset are made from; ``digests`` of everything that was read, by the names that a lineage record uses."""

    episodes: Episodes
    digests: dict[str, str]


class LabelRule(Protocol):
    """How frames become labels under one tag: what the two methods, by values and by scores, do each in their way.

    Attributes:
        critic_digest: identity of the critic that judges the frames.
        parameters: everything but data that labels depend on.
    """

    critic_digest: str
    parameters: dict[str, Any]

    def read(self, dataset: str, episodes_path: Path | str) -> Inputs:
        """Read what a dataset's labels are made from, and check that it belongs together."""

    def frames(self, inputs: Inputs) -> ScoredFrames:
        """The frames with their advantages."""

    def facts(self, datasets: list[Inputs], thresholds: Thresholds) -> dict[str, Any]:
        """What the threshold file states beside parameters and counts."""

    def columns(self, inputs: Inputs, thresholds: Thresholds) -> dict[str, np.ndarray | str]:
        """The columns of the advantages sidecar."""


def label_rule(experiment: Experiment, tag: str, critic_dir: Path | str) -> LabelRule:
    """The rule of a label tag, by its method."""
    steam = isinstance(experiment.advantages[tag], SteamAdvantagesConfig)
    return (SteamLabels if steam else RecapLabels)(experiment, tag, critic_dir)


def threshold_stage(experiment: Experiment, tag: str, critic_dir: Path | str, episodes_dir: Path | str, output: Path | str) -> None:
    """Rule compute_threshold: write the threshold file of a label tag, with the positive rates that come out.

    Raises:
        UserError: an empty pool, or what ``LabelRule.read`` raises.
    """
    rule, config = label_rule(experiment, tag, critic_dir), experiment.advantages[tag]
    inputs, datasets, digests = [], [], {"critic": rule.critic_digest}
    for name in config.datasets:
        inputs.append(rule.read(name, Path(episodes_dir) / f"{name}.parquet"))
        datasets.append(rule.frames(inputs[-1]))
        digests |= inputs[-1].digests
    thresholds = thresholds_of(config, datasets)
    counts = [row for frames in datasets for row in counts_of(config, frames, thresholds)]
    lineage = Lineage("compute_threshold", tag, None, rule.parameters, digests, {"positive_counts": counts}, code_digest(__name__))
    fragment = rule.parameters | rule.facts(inputs, thresholds)
    fragment |= {
        "tag": tag,
        "thresholds": thresholds,
        "critic_digest": rule.critic_digest,
        "total_samples": sum(row["num_frames"] for row in counts),
        "num_positive": sum(row["num_positive"] for row in counts),
        "datasets": [{"name": frames.name, "type": frames.type, "num_frames": len(frames.advantage)} for frames in datasets],
        "positive_counts": counts,
    }
    write_fragment(output, fragment, lineage)


def advantages_stage(
    experiment: Experiment,
    dataset: str,
    tag: str,
    critic_dir: Path | str,
    episodes_path: Path | str,
    threshold_path: Path | str,
    output: Path | str,
) -> None:
    """Rule compute_advantages: write the sidecar ``advantages_{tag}.parquet`` of one dataset.

    Raises:
        UserError: the threshold file was made from other inputs or parameters, or what ``threshold_stage`` raises.
    """
    rule = label_rule(experiment, tag, critic_dir)
    inputs = rule.read(dataset, episodes_path)
    fragment = read_fragment(threshold_path)
    digests = inputs.digests | {"critic": rule.critic_digest}
    remedy = f"delete it and run the rule compute_threshold, tag {tag}"
    check_lineage(fragment["lineage"], path=threshold_path, remedy=remedy, tag=tag, parameters=rule.parameters, inputs=digests)
    lineage = Lineage(
        stage="compute_advantages",
        tag=tag,
        dataset_fingerprint=inputs.episodes.fingerprint,
        parameters=rule.parameters,
        inputs=digests | {"threshold": digest_file(threshold_path)},
        statistics={
            "positive_counts": [row for row in fragment["positive_counts"] if row["dataset"] == dataset],
            "thresholds": fragment["thresholds"],
        },
        code=code_digest(__name__),
    )
    write_sidecar(output, "advantages", rule.columns(inputs, fragment["thresholds"]), inputs.episodes, lineage)
