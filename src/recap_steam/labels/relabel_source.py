"""Labels that others are derived from: those of one tag, with all that the sidecars say of how they came about."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from recap_steam.dataset.columns import KEY_COLUMNS
from recap_steam.dataset.episodes import Episodes, index_dataset
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.foreign import read_foreign
from recap_steam.lineage import METADATA_KEY, Lineage, digest_file
from recap_steam.sidecar import read_sidecar
from recap_steam.sidecar_schemas import LABELS, SCHEMAS, schema_of

REFERENCE = {  # what its sidecars do not say, and its tools do
    "recap": {"critic": "unknown", "pool": "all", "positive_quantile": 0.3, "discount_next_value": True, "intervention_positive": True},
    "steam": {"critic": "unknown", "subtract_baseline": False, "baseline_lookahead": None, "intervention_positive": True},
}


@dataclasses.dataclass(frozen=True)
class Source:
    """One dataset's labels: columns (F, ...) in row order, ``judged`` (F,) bool, and the parameters that made them.

    ``lineage`` is None for labels of the reference, and those derived from them: no critic is known.
    """

    path: Path
    type: str
    episodes: Episodes
    columns: dict[str, np.ndarray]
    judged: np.ndarray
    parameters: dict[str, Any]
    lineage: Lineage | None

    @property
    def steam(self) -> bool:
        return "ensemble_signed_score" in self.columns


def find_datasets(root: Path, tag: str) -> list[Path]:
    """Datasets below ``root`` with labels ``tag``: those that its mixture_config.yaml names or, without one, every LeRobot dataset.

    Raises:
        UserError: there is none.
    """
    listing = root / "mixture_config.yaml"
    if listing.is_file():
        try:
            folders = [root / entry["name"] for entry in yaml.safe_load(listing.read_text())["datasets"]]
        except (yaml.YAMLError, KeyError, TypeError):
            raise UserError(f"{listing}: names no datasets; correct it, or give --dataset_paths") from None
    else:
        folders = sorted(path.parents[1] for path in root.glob("*/meta/info.json"))
    labelled = [folder for folder in folders if labels_path(folder, tag).is_file()]
    for folder in folders:
        if folder not in labelled:
            print(f"note: {folder}: has no labels {tag} and is left out", file=sys.stderr)
    if not labelled:
        raise UserError(f"{root}: no dataset there has meta/advantages_{tag}.parquet; correct --dataset_root or --source_tag")
    return labelled


def read_source(root: Path, tag: str, dataset_type: str | None) -> Source:
    """Read the labels ``tag`` of the dataset in ``root``; ``dataset_type`` is needed where they have no lineage.

    Raises:
        UserError: missing or broken file, or labels of another version of the dataset.
    """
    path = labels_path(root, tag)
    schema = _schema(path)
    if METADATA_KEY in (schema.metadata or {}):
        lineage = Lineage.from_json(schema.metadata[METADATA_KEY], path=path)
        if "critic" in lineage.inputs:  # else it only says that it came from a file without lineage
            return _ours(path, root, tag, dataset_type, lineage)
    return _theirs(path, root, dataset_type, schema.names)


def labels_path(root: Path, tag: str) -> Path:
    """The sidecar of label tag ``tag`` of the dataset in ``root``."""
    return root / "meta" / f"advantages_{tag}.parquet"


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except FileNotFoundError:
        raise UserError(f"{path}: not found; correct --source_tag or the dataset's path") from None
    except (pa.ArrowException, OSError):
        raise UserError(f"{path}: not a readable Parquet file; make it again, or restore it") from None


def _ours(path: Path, root: Path, tag: str, dataset_type: str | None, lineage: Lineage) -> Source:
    recorded = lineage.statistics["positive_counts"][0]
    if dataset_type not in (None, recorded["type"]):
        raise UserError(f"{path}: its dataset was labelled as {recorded['type']}, not {dataset_type}; leave out --dataset_types")
    episodes, _ = index_dataset(open_dataset(recorded["dataset"], root), recorded["type"])
    columns = read_sidecar(path, "advantages", episodes, tag=tag).columns
    judged = np.ones(episodes.num_frames, bool)
    if "ensemble_signed_score" in columns:
        judged = _judged(path, lineage, episodes)
    return Source(path, recorded["type"], episodes, columns, judged, lineage.parameters, lineage)


def _judged(path: Path, lineage: Lineage, episodes: Episodes) -> np.ndarray:
    """Frames with a full look-ahead, which only the scores tell: the labels were made from those that lie beside them."""
    scores = path.with_name(f"scores_{lineage.parameters['critic']}.parquet")
    if scores.is_file() and digest_file(scores) != lineage.inputs[f"scores/{episodes.dataset}"]:
        raise UserError(f"{scores}: not the scores that {path.name} was made from; run Snakemake again with the target `advantages`")
    return read_sidecar(scores, "scores", episodes, ["look_ahead"]).columns["look_ahead"] > 0


def _theirs(path: Path, root: Path, dataset_type: str | None, names: list[str]) -> Source:
    if dataset_type is None:
        raise UserError(f"{path}: carries no lineage, so say with --dataset_types whether its dataset is sft or rollout")
    print(f"note: {path}: carries no lineage (it was not made by this workflow): taken as it is", file=sys.stderr)
    name = re.sub("[^a-z0-9]+", "_", root.resolve().name.lower()).strip("_")  # as an experiment file could call it
    episodes, _ = index_dataset(open_dataset(name, root), dataset_type)
    schema = schema_of("advantages", names)
    if schema is LABELS:
        raise UserError(f"{path}: holds labels and nothing that they were drawn from; relabel the file with advantages that they came from")
    known = pa.schema([field for field in schema if field.name not in (*KEY_COLUMNS, "dataset_name")])
    columns = read_foreign(path, known, episodes)
    judged = np.ones(episodes.num_frames, bool)
    method = "recap" if schema is SCHEMAS["advantages"] else "steam"
    if method == "steam":
        judged[episodes.offsets[1:] - 1] = False  # the last frame has no later one: the reference writes zeros there
    return Source(path, dataset_type, episodes, columns, judged, REFERENCE[method], None)
