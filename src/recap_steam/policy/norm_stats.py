"""Normalisation statistics of state and action over the frames a policy trains on. NumPy only.

pi0.5 maps each dimension's 1 % and 99 % quantiles to [-1, 1]. lerobot's ``stats.json`` holds these per dataset, v2.1 datasets not at all,
and both over all frames; here they are taken over exactly the frames that the policy trains on, all datasets together.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.columns import matrix
from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.vectors import read_rows
from recap_steam.errors import UserError, rerun
from recap_steam.files import atomic_output
from recap_steam.lineage import Lineage, check_lineage, code_digest
from recap_steam.policy.samples import Selection, check_widths, select

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
EXACT_ROWS = 2_000_000  # up to here quantiles are exact; beyond, they come from a histogram
HISTOGRAM_BINS = 1 << 16  # error of a histogram quantile: at most (max - min) / 65536


def compute_statistics(chunks: Callable[[], Iterable[np.ndarray]], exact_rows: int = EXACT_ROWS) -> dict[str, list]:
    """Statistics per dimension of a table that is read in chunks.

    Args:
        chunks: called once or twice; yields the table's rows as (n, d) float32 arrays.
        exact_rows: largest table whose rows are kept in memory for exact quantiles (NumPy's linear rule).

    Returns:
        ``mean``, ``std`` (population), ``min``, ``max`` and the quantiles, each a list of d floats, and ``count``, a list of one int: the
        names and layout of lerobot's ``stats.json``.
    """
    count, mean, squares, low, high, kept = 0, 0.0, 0.0, np.inf, -np.inf, []
    for chunk in chunks():
        rows = np.asarray(chunk, dtype=np.float64)
        if not len(rows):
            continue
        delta, total = rows.mean(0) - mean, count + len(rows)
        squares = squares + ((rows - rows.mean(0)) ** 2).sum(0) + delta**2 * count * len(rows) / total  # Chan et al. 1979
        mean, count = mean + delta * len(rows) / total, total
        low, high = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0))
        kept = [*kept, np.asarray(chunk, dtype=np.float32)] if count <= exact_rows else []
    if not count:
        raise UserError("normalisation statistics: there is no frame to take them from; check the policy's datasets and frame_filter")
    quantiles = _exact_quantiles(kept) if count <= exact_rows else _histogram_quantiles(chunks(), count, low, high)
    moments = {"mean": mean, "std": np.sqrt(squares / count), "min": low, "max": high}
    named = {**moments, **dict(zip(QUANTILES, quantiles, strict=True))}
    return {**{name: values.tolist() for name, values in named.items()}, "count": [count]}


def _exact_quantiles(chunks: list[np.ndarray]) -> np.ndarray:
    """(number of quantiles, d) by NumPy's linear rule; one dimension at a time, so that the table is never copied as a whole."""
    columns = (np.concatenate([chunk[:, dim] for chunk in chunks]).astype(np.float64) for dim in range(chunks[0].shape[1]))
    return np.stack([np.quantile(column, list(QUANTILES.values())) for column in columns], axis=1)


def _histogram_quantiles(chunks: Iterable[np.ndarray], count: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(number of quantiles, d): linear interpolation in the cumulative histogram of each dimension."""
    dims = len(low)
    histogram = np.zeros((dims, HISTOGRAM_BINS), dtype=np.int64)
    width = np.where(high > low, (high - low) / HISTOGRAM_BINS, 1.0)
    for chunk in chunks:
        bins = np.minimum((chunk - low) / width, HISTOGRAM_BINS - 1).astype(np.int64)
        for dim in range(dims):
            histogram[dim] += np.bincount(bins[:, dim], minlength=HISTOGRAM_BINS)
    cumulative = np.concatenate([np.zeros((dims, 1)), np.cumsum(histogram, axis=1)], axis=1) / count
    edges = np.arange(HISTOGRAM_BINS + 1)
    fractions = np.array(list(QUANTILES.values()))
    positions = np.stack([np.interp(fractions, cumulative[dim], edges) for dim in range(dims)], axis=1)
    return np.minimum(low + positions * width, high)


def quantile_range(statistics: dict[str, list]) -> dict[str, list]:
    """The same statistics with ``q01``, ``q99`` safe to divide by their difference.

    lerobot divides by 1e-8 where the two coincide, so one unusual frame of an almost constant dimension (a gripper that closes in fewer
    than 1 % of the frames) would become a target of 1e8. Such a dimension is scaled by its full range instead.
    """
    values = {name: np.array(statistics[name], dtype=np.float64) for name in ("q01", "q99", "min", "max")}
    flat = values["q99"] <= values["q01"]
    return {
        **statistics,
        "q01": np.where(flat, values["min"], values["q01"]).tolist(),
        "q99": np.where(flat, values["max"], values["q99"]).tolist(),
    }


def norm_stats_stage(experiment: Experiment, tag: str, episodes_dir: Path, output: Path) -> None:
    """Rule compute_norm_stats: write the statistics of policy ``tag``, with their lineage, to ``output`` (JSON).

    Tables are read in batches, so memory does not grow with the datasets beyond ``EXACT_ROWS``.

    Raises:
        UserError: what ``select`` and ``check_widths`` raise, or vectors that are missing or not numbers.
    """
    selections = select(experiment, tag, experiment.policies[tag].datasets, episodes_dir)
    statistics = {
        "observation.state": compute_statistics(lambda: _selected_vectors(tag, selections, "states")),
        "action": compute_statistics(lambda: _selected_vectors(tag, selections, "actions")),
    }
    expected = norm_stats_lineage(experiment, tag, [selection.episodes for selection in selections])
    lineage = Lineage(**expected, dataset_fingerprint=None, statistics={}, code=code_digest(__name__))
    document = {"lineage": json.loads(lineage.to_json()), "statistics": statistics}
    with atomic_output(output) as temporary:
        temporary.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def _selected_vectors(tag: str, selections: list[Selection], column: str) -> Iterator[np.ndarray]:
    """Yield the samples' ``states`` or ``actions``, (n, d) float32 at a time, in file order."""
    first: dict[str, int] = {}
    for selection in selections:
        dataset, wanted = selection.dataset, np.zeros(selection.episodes.num_frames, bool)
        wanted[selection.rows] = True
        name = dataset.state_key if column == "states" else dataset.action_key
        for path, table, rows in read_rows(dataset, selection.episodes, [name]):
            vectors = matrix(table, name, path)[wanted[rows]].astype(np.float32, copy=False)
            found = {str(path): vectors.shape[1]}
            first = first or found
            check_widths(tag, column, first | found)
            yield vectors


def norm_stats_lineage(experiment: Experiment, tag: str, datasets: list[Episodes]) -> dict:
    """What the statistics of policy ``tag``, trained on ``datasets``, must come from: fields of ``Lineage``."""
    inputs = {f"episodes/{episodes.dataset}": episodes.fingerprint for episodes in datasets}
    return {
        "stage": "compute_norm_stats",
        "tag": tag,
        "parameters": {"frame_filter": experiment.policies[tag].frame_filter},
        "inputs": inputs,
    }


def load_statistics(path: str | Path, **expected_lineage: object) -> dict[str, dict[str, list]]:
    """Read what the stage wrote: feature -> statistic -> list of d floats.

    Raises:
        UserError: unreadable, or of another lineage than expected.
    """
    remedy = rerun("compute_norm_stats")
    try:
        document = json.loads(Path(path).read_text())
        statistics = {feature: document["statistics"][feature] for feature in ("observation.state", "action")}
        lineage = Lineage.from_json(json.dumps(document["lineage"]), path=path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not readable as normalisation statistics ({type(error).__name__}); {remedy}") from error
    check_lineage(lineage, path=path, remedy=remedy, **expected_lineage)
    return statistics
