"""The two label rules: one threshold file per tag over all its datasets, then one advantages sidecar per dataset."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment
from recap_steam.label_config import AdvantagesConfig
from recap_steam.labels.fragment import read_fragment, write_fragment
from recap_steam.labels.inputs import Critic, LabelInputs, load_critic, load_label_inputs, score, scored_frames
from recap_steam.labels.thresholds import ScoredFrames, Thresholds, pool_thresholds, positive_counts, positive_labels
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file
from recap_steam.sidecar import write_sidecar


def threshold_stage(experiment: Experiment, tag: str, critic_dir: Path | str, episodes_dir: Path | str, output: Path | str) -> None:
    """Rule compute_threshold: write the threshold file of a label tag, with the positive rates that come out.

    Raises:
        UserError: an empty pool, or what ``load_critic`` and ``load_label_inputs`` raise.
    """
    config = experiment.advantages[tag]
    critic = load_critic(experiment, tag, critic_dir)
    datasets, digests, return_max = [], {"critic": critic.digest}, -np.inf
    for name in config.datasets:
        inputs = load_label_inputs(experiment, name, critic, Path(episodes_dir) / f"{name}.parquet")
        advantages = score(inputs, critic, config.advantage_lookahead_step, config.discount_next_value)
        datasets.append(scored_frames(inputs, experiment.datasets[name].type, advantages.advantage))
        digests |= inputs.digests
        return_max = max(return_max, float(inputs.returns.max()))
    thresholds = pool_thresholds(datasets, config.pool, config.positive_quantile)
    counts = [row for frames in datasets for row in _counts(frames, thresholds, config)]
    parameters = _parameters(config, critic)
    lineage = Lineage("compute_threshold", tag, None, parameters, digests, {"positive_counts": counts}, code_digest(__name__))
    entries = [{"name": frames.name, "type": frames.type, "num_frames": len(frames.advantage)} for frames in datasets]
    fragment = parameters | {
        "tag": tag,
        "thresholds": thresholds,
        "critic_digest": critic.digest,
        "return_max": return_max,
        "datasets": entries,
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
    config = experiment.advantages[tag]
    critic = load_critic(experiment, tag, critic_dir)
    inputs = load_label_inputs(experiment, dataset, critic, episodes_path)
    fragment = read_fragment(threshold_path)
    digests = inputs.digests | {"critic": critic.digest}
    parameters = _parameters(config, critic)
    remedy = f"delete it and run the rule compute_threshold, tag {tag}"
    check_lineage(fragment["lineage"], path=threshold_path, remedy=remedy, tag=tag, parameters=parameters, inputs=digests)
    columns = _columns(inputs, critic, config, experiment.datasets[dataset].type, fragment["thresholds"])
    statistics = {"positive_counts": [row for row in fragment["positive_counts"] if row["dataset"] == dataset]}
    lineage = Lineage(
        stage="compute_advantages",
        tag=tag,
        dataset_fingerprint=inputs.episodes.fingerprint,
        parameters=parameters,
        inputs=digests | {"threshold": digest_file(threshold_path)},
        statistics=statistics,
        code=code_digest(__name__),
    )
    write_sidecar(output, "advantages", columns, inputs.episodes, lineage)


def _columns(inputs: LabelInputs, critic: Critic, config: AdvantagesConfig, dataset_type: str, thresholds: Thresholds) -> dict[str, Any]:
    advantages = score(inputs, critic, config.advantage_lookahead_step, config.discount_next_value)
    frames = scored_frames(inputs, dataset_type, advantages.advantage)
    return {
        "advantage_continuous": advantages.advantage,
        "return": inputs.returns.astype(np.float64),
        "value_current": inputs.values.astype(np.float64),
        "value_next": advantages.value_next,
        "reward_sum": advantages.reward_sum,
        "reward_sum_raw": advantages.reward_sum_raw,
        "num_valid_rewards": advantages.num_valid_rewards,
        "dataset_name": inputs.name,
        "advantage": positive_labels(frames, thresholds, config.pool, config.intervention_positive),
    }


def _counts(frames: ScoredFrames, thresholds: Thresholds, config: AdvantagesConfig) -> list[dict]:
    labels = positive_labels(frames, thresholds, config.pool, config.intervention_positive)
    return positive_counts(frames, thresholds, config.pool, labels)


def _parameters(config: AdvantagesConfig, critic: Critic) -> dict[str, Any]:
    """Everything but data that labels depend on."""
    parameters = dataclasses.asdict(config) | dataclasses.asdict(critic.returns)
    parameters["returns_tag"] = critic.returns_tag
    parameters["return_min"] = critic.normalizer.return_min
    return parameters
