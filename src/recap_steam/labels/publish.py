"""Return statistics in a dataset's ``meta/stats.json``, for tools of the reference (RLinf). Nothing in this workflow reads them."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.labels.parameters import returns_parameters
from recap_steam.lineage import digest_file
from recap_steam.sidecar import read_sidecar, sidecar_path

PRISTINE_NAME = "stats.pristine.json"


def publish_stage(experiment: Experiment, dataset: str, tag: str, episodes_path: Path | str, output: Path | str) -> None:
    """Rule merge_stats: put the statistics of a returns sidecar into the dataset's ``meta/stats.json`` and write a receipt.

    The reference knows one untagged range per dataset, so the tag that is published last is the one that its tools see. The receipt
    is the declared output: ``stats.json`` itself is not ours, and Snakemake would delete it before the job.

    Raises:
        UserError: no such sidecar, or one of another version of the dataset or of other parameters; a broken ``stats.json``.
    """
    config = experiment.datasets[dataset]
    episodes = load_episodes(episodes_path, open_dataset(dataset, config.path))
    path = sidecar_path(config, dataset, f"returns_{tag}")
    parameters = returns_parameters(experiment, tag)
    lineage = read_sidecar(path, "returns", episodes, [], tag=tag, parameters=parameters).lineage
    update = {key: lineage.statistics[key] for key in ("return", "reward")}
    merge_stats(Path(config.path) / "meta/stats.json", update)
    receipt = {"dataset": dataset, "returns_tag": tag, "returns": digest_file(path), "published": update}
    _replace(Path(output), json.dumps(receipt, indent=2, sort_keys=True).encode() + b"\n")


def merge_stats(stats_path: Path, update: dict[str, dict[str, float]]) -> None:
    """Set the keys of ``update`` in ``stats_path`` and keep all others; concurrent callers wait for each other.

    Before the first change the file is copied to ``stats.pristine.json`` beside it (an empty mapping if there was none). The new
    content replaces the old at once, so a reader or a crash never sees half of it.

    Raises:
        UserError: the file is no JSON mapping.
    """
    with _locked(stats_path):
        try:
            original = stats_path.read_bytes()
        except FileNotFoundError:
            original = b"{}\n"
        stats = _parse(stats_path, original)
        pristine = stats_path.with_name(PRISTINE_NAME)
        if not pristine.exists():
            _replace(pristine, original)
        _replace(stats_path, json.dumps({**stats, **update}, indent=4, ensure_ascii=False).encode() + b"\n")


def _replace(path: Path, content: bytes) -> None:
    with atomic_output(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that lives beside ``path`` (not on it: a rename would leave the lock on the old file)."""
    with open(path.with_name(f".{path.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parse(path: Path, content: bytes) -> dict:
    try:
        stats = json.loads(content)
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); repair or remove it") from None
    if not isinstance(stats, dict):
        raise UserError(f"{path}: holds a {type(stats).__name__} instead of a mapping; repair or remove it")
    return stats
