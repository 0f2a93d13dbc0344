"""Replicates: the same experiment again with other seeds and folders of its own. No stage knows of them: what the key ``seed`` means is
written out in every seed of the experiment before anything else reads it."""

from typing import Any

from recap_steam.errors import config_error

STRIDE = 1_000_000  # between the seeds of two replicates; those of one lie closer together


def as_replicate(raw: dict, experiment: str, seed: int) -> dict:
    """Return ``raw``, which is called ``experiment``, as one of its replicates: with a name, and so with folders, of its own."""
    return raw | {"experiment": f"{experiment}_seed{seed}", "seed": seed}


def written_out(filled: dict) -> dict:
    """Return the experiment ``filled`` (defaults there) with its replicate's seeds and the folders that the file leaves open.

    The key ``seed`` is gone from it, so that seeds are moved once, however often an experiment is read.

    Raises:
        UserError: a seed that is another replicate's, a folder that all replicates would collect into, or a dataset that is neither
            collected nor anywhere.
    """
    whole = {key: item for key, item in filled.items() if key != "seed"}
    if filled["seed"]:
        whole = _moved(whole, filled["seed"] * STRIDE, "")
        for name, entry in whole["datasets"].items():
            if "collect" in entry and "path" in entry:
                problem = f"replicates would overwrite each other's data in {entry['path']}"
                raise config_error(f"datasets.{name}.path", f"{problem}; with a `seed`, remove it: each collects into a folder of its own")
    datasets = {name: {"path": _path(filled["experiment"], name, entry)} | entry for name, entry in whole["datasets"].items()}
    return whole | {"datasets": datasets}


def _moved(entry: dict[str, Any], by: int, place: str) -> dict[str, Any]:
    """The mapping with every number ``seed`` in it, at any depth, moved."""
    moved = {}
    for key, item in entry.items():
        if key == "seed" and isinstance(item, int):
            if item >= STRIDE:
                raise config_error(f"{place}{key}", f"{item} may be a seed of another replicate; with a `seed`, give less than {STRIDE:,}")
            item += by
        moved[key] = _moved(item, by, f"{place}{key}.") if isinstance(item, dict) else item
    return moved


def _path(experiment: str, name: str, entry: dict[str, Any]) -> str:
    if "path" not in entry and "collect" not in entry:
        raise config_error(f"datasets.{name}", "has no path; say where the dataset is, or under `collect` how to make it")
    return f"data/{experiment}/{name}"
