"""Rules import_returns and import_advantages: what another tool made, checked against the dataset and recorded as what it is."""

import dataclasses
import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam.config import Experiment
from recap_steam.dataset.arrow import text_array, to_arrow
from recap_steam.dataset.columns import KEY_COLUMNS
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import Dataset, open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.foreign import read_column, read_foreign
from recap_steam.labels.parameters import IMPORTED, label_parameters, returns_parameters
from recap_steam.labels.returns import rewards_of, statistics
from recap_steam.labels.thresholds import positive_counts, scored_frames
from recap_steam.lineage import METADATA_KEY, Lineage, code_digest, digest_file
from recap_steam.sidecar import write_sidecar
from recap_steam.sidecar_schemas import LABELS, SCHEMAS, STEAM_ADVANTAGES

NAMES = {"returns": "return", "advantages": "advantage"}  # of the one column that is needed, by kind
LAYOUTS = {  # of files that are understood, the fullest first
    "returns": (SCHEMAS["returns"], pa.schema({"return": pa.float32()})),
    "advantages": (STEAM_ADVANTAGES, SCHEMAS["advantages"], LABELS),
}
OURS = (*KEY_COLUMNS, "dataset_name", "prompt")  # columns whose content the index knows


@dataclasses.dataclass(frozen=True)
class Found:
    """Columns (F, ...) in row order, where they were found, and the digest of that."""

    place: str
    digest: str
    columns: dict[str, np.ndarray]


def import_stage(experiment: Experiment, kind: str, dataset: str, tag: str, episodes_path: Path | str, output: Path | str) -> None:
    """Write the sidecar of ``kind`` returns or advantages of one dataset from the source that the tag names, and print a note.

    Labels are taken as they are: no demonstration and no correction is made positive here. Of a sidecar with all columns of a method all
    are kept, of any other source the labels alone; rewards that a source lacks follow from its returns.

    Raises:
        UserError: a source that is missing, broken, of another type or version of the dataset; returns of another gamma or above 0.
    """
    source = open_dataset(dataset, experiment.datasets[dataset].path)
    episodes = load_episodes(episodes_path, source)
    where = getattr(experiment, kind)[tag].imported
    if where.column is None:
        found = _from_sidecar(source.root / "meta" / f"{kind}_{where.sidecar}.parquet", kind, episodes)
    else:
        found = _from_column(source, where.column, kind, episodes)
    if kind == "returns":
        parameters, columns = returns_parameters(experiment, tag), _returns(found, episodes, experiment.returns[tag].gamma)
        facts = {name: statistics(columns[name]) for name in ("return", "reward")}
    else:
        parameters, columns = label_parameters(experiment, tag), _labels(found, dataset)
        facts = _label_facts(episodes, experiment.datasets[dataset].type, columns["advantage"])
    lineage = Lineage(
        stage=IMPORTED[kind],
        tag=tag,
        dataset_fingerprint=episodes.fingerprint,
        parameters=parameters,
        inputs={"source": found.digest, f"episodes/{dataset}": episodes.fingerprint},
        statistics=facts,
        code=code_digest(__name__),
    )
    write_sidecar(output, kind, columns, episodes, lineage)
    print(f"note: {found.place}: imported as it is, without lineage: nothing here says or checks what made it", file=sys.stderr)


def _from_sidecar(path: Path, kind: str, episodes: Episodes) -> Found:
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        raise UserError(f"{path}: missing or not a readable Parquet file; restore it, or correct imported.sidecar") from None
    if METADATA_KEY in (schema.metadata or {}):  # of another experiment here, or derived from foreign labels
        lineage = Lineage.from_json(schema.metadata[METADATA_KEY], path=path)
        if lineage.dataset_fingerprint != episodes.fingerprint:
            raise UserError(f"{path}: made from another version of dataset {episodes.dataset}; make it again from this one")
    layouts = [pa.schema([field for field in layout if field.name not in OURS]) for layout in LAYOUTS[kind]]
    fitting = (layout for layout in layouts if set(layout.names) <= set(schema.names))
    return Found(str(path), digest_file(path), read_foreign(path, next(fitting, layouts[-1]), episodes))


def _from_column(source: Dataset, column: str, kind: str, episodes: Episodes) -> Found:
    name = NAMES[kind]
    values = read_column(source, pa.field(column, SCHEMAS[kind].field(name).type), episodes)
    return Found(f"{source.root}, column '{column}'", hashlib.sha256(values.tobytes()).hexdigest(), {name: values})


def _returns(found: Found, episodes: Episodes, gamma: float) -> dict[str, np.ndarray | pa.Array]:
    """Columns of a returns sidecar.

    Raises:
        UserError: returns above 0, which a critic's scale does not hold; or returns that do not follow from the source's rewards, so
            that labels would be made of wrong sums.
    """
    returns = found.columns["return"]
    if (returns > 0).any():
        row = int(np.argmax(returns > 0))
        place = f"{found.place}: {_frame(episodes, row)}"
        raise UserError(f"{place}: the return {returns[row]:g} is above 0, the best here; write returns as what is left to lose, at most 0")
    expected = rewards_of(returns, episodes.length, gamma)
    rewards = found.columns.get("reward", expected)
    off = np.abs(rewards - expected) > 1e-6 * np.abs(returns).max() + 1e-4  # what float32 sums may differ by
    if off.any():
        row = int(np.argmax(off))
        raise UserError(
            f"{found.place}: {_frame(episodes, row)}: the return is not the reward and {gamma:g} times the next return; "
            "set gamma to the discount that they were made with"
        )
    prompts = pa.DictionaryArray.from_arrays(to_arrow(episodes.prompt_codes()), text_array(episodes.tasks))
    return {"return": returns, "reward": rewards, "prompt": prompts}


def _frame(episodes: Episodes, row: int) -> str:
    episode, frame = (int(key[0]) for key in episodes.frame_keys(row, row + 1))
    return f"episode {episode}, frame {frame}"


def _labels(found: Found, dataset: str) -> dict[str, np.ndarray | str]:
    """Columns of an advantages sidecar."""
    by_values = "value_current" in found.columns
    return found.columns | ({"dataset_name": dataset} if by_values else {})


def _label_facts(episodes: Episodes, dataset_type: str, labels: np.ndarray) -> dict[str, Any]:
    """What came out, as of labels that are computed; no threshold is known."""
    frames = scored_frames(episodes, dataset_type, labels.astype(np.float64), np.ones(len(labels), bool))
    return {"positive_counts": positive_counts(frames, labels, labels), "thresholds": {}}
