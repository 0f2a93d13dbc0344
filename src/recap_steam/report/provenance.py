"""Tables of where things come from: the data, which data feeds which stage, and the lineage of every artefact."""

import numpy as np

from recap_steam.config import PolicyConfig
from recap_steam.label_config import AdvantagesConfig, SteamAdvantagesConfig
from recap_steam.labels.parameters import IMPORTED
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING, Table, percent


def data_table(results: Results) -> Table:
    """Episodes, frames, outcomes, fingerprint and the index's notes of every dataset that was indexed."""
    head = ["dataset", "type", "split", "episodes", "frames", "success rate", "intervention frames", "mean frames of a success"]
    head += ["fingerprint", "notes"]
    rows = []
    for name, config in results.experiment.datasets.items():
        episodes = results.episodes(name)
        if episodes is None:
            continue
        success = np.asarray(episodes.success)
        rows.append(
            [
                name,
                config.type,
                config.split,
                f"{len(success):,}",
                f"{episodes.num_frames:,}",
                percent(success.mean()),
                percent(episodes.interventions().mean()),
                f"{episodes.length[success].mean():.1f}" if success.any() else MISSING,
                episodes.fingerprint[:12],
                "; ".join(results.notes(name)) or MISSING,
            ]
        )
    return Table(head, rows)


def stage_table(results: Results) -> Table:
    """Which dataset feeds which stage, by tag: the contract that the experiment file states and the workflow keeps."""
    experiment = results.experiment
    trained = {tag: critic for tag, critic in experiment.critics.items() if not results.is_merged(tag)}
    rows = []
    for name, config in experiment.datasets.items():
        collected = f"by {config.collect.policy}, seed {config.collect.seed}" if config.collect else "given"
        pools = {tag: item for tag, item in experiment.judged_labels.items() if _feeds_threshold(item, config.type)}
        rows.append(
            [
                name,
                collected,
                _tags(trained, "datasets", name),
                _tags(trained, "eval_datasets", name),
                _tags(pools, "datasets", name),
                _tags(experiment.advantages, "datasets", name),
                ", ".join(_policy_use(tag, item) for tag, item in experiment.policies.items() if name in item.datasets) or MISSING,
            ]
        )
    head = ["dataset", "collected", "critic and return scale", "critic, held out", "threshold", "labels", "policy and its normalisation"]
    return Table(head, rows)


def _feeds_threshold(labels: AdvantagesConfig | SteamAdvantagesConfig, dataset_type: str) -> bool:
    """Whether frames of such a dataset are in a pool that a threshold comes from."""
    if isinstance(labels, SteamAdvantagesConfig):
        return (labels.expert_quantile if dataset_type == "sft" else labels.rollout_quantile) is not None
    return labels.pool != "rollout" or dataset_type == "rollout"


def _policy_use(tag: str, policy: PolicyConfig) -> str:
    return tag if policy.frame_filter == "all" else f"{tag} (successes and interventions)"


def _tags(section: dict, key: str, dataset: str) -> str:
    return ", ".join(tag for tag, item in section.items() if dataset in getattr(item, key)) or MISSING


def imports_table(results: Results) -> Table:
    """Returns and labels that another tool made, by dataset: what they are is all that is known of them."""
    rows = []
    for kind, stage in IMPORTED.items():
        for tag, config in getattr(results.experiment, kind).items():
            for name in getattr(config, "datasets", ()):
                lineage = results.sidecar_lineage(name, kind, tag)
                if lineage is not None and lineage.stage == stage:
                    rows.append([kind, tag, name, _import_source(lineage.parameters["imported"]), lineage.inputs["source"][:12]])
    return Table(["kind", "tag", "dataset", "taken from", "its digest"], rows)


def _import_source(source: dict[str, str | None]) -> str:
    return f"column {source['column']}" if source["sidecar"] is None else f"sidecar of tag {source['sidecar']}"


def lineage_table(results: Results) -> Table:
    """What made every artefact: digests shortened to 12 characters; equal digests mean equal inputs."""
    rows = [
        [path, lineage.stage, lineage.tag, (lineage.dataset_fingerprint or MISSING)[:12], lineage.code[:12], str(len(lineage.inputs))]
        for path, lineage in results.lineages().items()
    ]
    return Table(["artefact", "stage", "tag", "dataset fingerprint", "code digest", "inputs"], rows)
