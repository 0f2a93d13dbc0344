"""``mixture_config.yaml`` of a dataset: the labels' parameters in the form that tools of the reference (RLinf) read."""

import json
from pathlib import Path
from typing import Any

import yaml

from recap_steam.config import Experiment, meta_folder
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.labels.fragment import is_steam, read_fragment
from recap_steam.labels.scores import threshold_of
from recap_steam.lineage import digest_file

HEADER = "# Written by recap_steam (target `mixture`) from all label tags of this dataset; edits are overwritten.\n"


def mixture_stage(experiment: Experiment, dataset: str, threshold_paths: list[Path], output: Path | str) -> None:
    """Rule merge_mixture: merge the threshold files of all tags that label ``dataset`` into ``mixture_config.yaml`` beside its sidecars.

    The declared output is the receipt ``output``: Snakemake deletes declared outputs before the job, and a ``mixture_config.yaml``
    that is already there may be the reference's own.

    Raises:
        UserError: a file that this workflow did not write is already there, or a threshold file is unreadable.
    """
    path = Path(meta_folder(dataset, experiment.datasets[dataset])) / "mixture_config.yaml"
    refuse_foreign(path)
    fragments = [read_fragment(threshold_path) for threshold_path in threshold_paths]
    weights = {name: config.weight for name, config in experiment.datasets.items()}
    content = merge_fragments(dataset, fragments, weights)
    with atomic_output(path) as temporary:
        temporary.write_text(HEADER + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000))
    receipt = {"dataset": dataset, "file": str(path), "sha256": digest_file(path), "tags": list(content["tags"])}
    with atomic_output(output) as temporary:
        temporary.write_text(json.dumps(receipt, indent=2) + "\n")


def refuse_foreign(path: Path) -> None:
    """Raise UserError if ``path`` exists and this workflow did not write it."""
    if path.exists() and not path.read_text(errors="replace").startswith(HEADER):
        raise UserError(f"{path}: was not written by this workflow and is left as it is; move it away, or set the dataset's sidecar_root")


def merge_fragments(dataset: str, fragments: list[dict[str, Any]], weights: dict[str, float]) -> dict[str, Any]:
    """Return the mapping for ``dataset``.

    Keys of the reference: ``global_return_min``, ``global_return_max``, ``datasets`` (name, weight, return_min, return_max) and
    ``tags``. The two global keys have one value for all tags in the reference; here they are null when tags disagree or have none (STEAM),
    and each tag states its own beside everything else that made its labels.
    """
    names = sorted({entry["name"] for fragment in fragments for entry in fragment["datasets"]})
    return {
        "global_return_min": _agreed([fragment["return_min"] for fragment in fragments if "return_min" in fragment]),
        "global_return_max": _agreed([fragment["return_max"] for fragment in fragments if "return_max" in fragment]),
        "datasets": [{"name": name, "weight": weights[name], "return_min": None, "return_max": None} for name in names],
        "tags": {fragment["tag"]: _tag_entry(dataset, fragment) for fragment in sorted(fragments, key=lambda fragment: fragment["tag"])},
    }


def _tag_entry(dataset: str, fragment: dict[str, Any]) -> dict[str, Any]:
    """What made the labels, with the threshold and the counts of this dataset's frames."""
    [kind] = [entry["type"] for entry in fragment["datasets"] if entry["name"] == dataset]
    counts = [row for row in fragment["positive_counts"] if row["dataset"] == dataset]
    own = {key: value for key, value in fragment.items() if key not in ("tag", "datasets", "lineage")}
    totals = {"total_samples": sum(row["num_frames"] for row in counts), "num_positive": sum(row["num_positive"] for row in counts)}
    return own | _threshold(dataset, kind, fragment) | totals | {"dataset_type": kind, "positive_counts": counts}


def _threshold(dataset: str, kind: str, fragment: dict[str, Any]) -> dict[str, float | None]:
    """The dataset's threshold under the reference's name: ``positive_threshold`` (STEAM) or ``unified_threshold`` (RECAP; null where there
    is one per task)."""
    thresholds = fragment["thresholds"]
    if is_steam(fragment):
        return {"positive_threshold": threshold_of(kind, thresholds)}
    pool = fragment["pool"]
    return {"unified_threshold": None if pool == "per_task" else thresholds[dataset if pool == "per_dataset" else pool]}


def _agreed(values: list[Any]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else None
