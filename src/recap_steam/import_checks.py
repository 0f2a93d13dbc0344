"""The check of returns and labels that another tool made, before anything runs: what is imported, and what would be lost."""

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from recap_steam.config import Experiment, ProgressCriticConfig, meta_folder
from recap_steam.errors import config_error
from recap_steam.label_config import ImportedAdvantagesConfig, ImportedReturnsConfig
from recap_steam.lineage import METADATA_KEY


def check_imports(experiment: Experiment, valued: dict[str, list[str]]) -> None:
    """Check what the schema cannot see of returns and labels that another tool made.

    Args:
        valued: by critic, the datasets that it values or scores.

    Raises:
        UserError: naming the key, what is wrong and the remedy.
    """
    for section in ("returns", "advantages"):
        for tag, config in getattr(experiment, section).items():
            if isinstance(config, ImportedReturnsConfig | ImportedAdvantagesConfig):
                _check_source(experiment, section, tag, config)
            _check_written(experiment, section, tag, getattr(config, "datasets", experiment.datasets))
    for critic, datasets in valued.items():
        _check_returns(experiment, critic, datasets)


def _check_source(experiment: Experiment, section: str, tag: str, config: ImportedReturnsConfig | ImportedAdvantagesConfig) -> None:
    """There is one source, it was there before, and it is no file that this workflow writes."""
    source = config.imported
    if (source.sidecar is None) == (source.column is None):
        raise config_error(f"{section}.{tag}.imported", "give either sidecar or column")
    for name in config.datasets:
        dataset = experiment.datasets[name]
        if dataset.collect:
            raise config_error(f"{section}.{tag}.datasets", f"'{name}' is collected here, so there is nothing to import; remove it")
        beside = meta_folder(name, dataset) == os.path.join(os.path.normpath(dataset.path), "meta")
        writer = getattr(experiment, section).get(source.sidecar)
        if writer is not None and name in getattr(writer, "datasets", experiment.datasets) and beside:
            problem = f"{section}_{source.sidecar}.parquet of '{name}' is written by this experiment"
            raise config_error(f"{section}.{tag}.imported.sidecar", f"{problem}; give the tag here another name than the one there")


def _check_written(experiment: Experiment, section: str, tag: str, datasets: Iterable[str]) -> None:
    """No file that is written here is there already by another tool: Snakemake would remove it, and nothing may make it again."""
    for name in datasets:
        path = Path(meta_folder(name, experiment.datasets[name])) / f"{section}_{tag}.parquet"
        if path.is_file() and _is_foreign(path):
            problem = f"{path} is there, was not made here and would be replaced"
            raise config_error(f"{section}.{tag}", f"{problem}; give the tag here another name, or move the file away")


def _is_foreign(path: Path) -> bool:
    """Whether a Parquet file lacks a lineage of ours. Its footer is searched as bytes, because planning a run loads no Arrow."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < 12:
            return False
        file.seek(size - 8)
        length, magic = struct.unpack("<I4s", file.read(8))
        file.seek(max(0, size - 8 - length))
        return magic == b"PAR1" and METADATA_KEY not in file.read()


def _check_returns(experiment: Experiment, critic: str, datasets: list[str]) -> None:
    """A critic finds its returns in every dataset that it learns from, is judged on or helps to label."""
    config = experiment.critics[critic]
    if isinstance(config, ProgressCriticConfig) or not isinstance(experiment.returns[config.returns_tag], ImportedReturnsConfig):
        return
    for name in datasets:
        if name not in experiment.returns[config.returns_tag].datasets:
            problem = f"'{config.returns_tag}' is not imported for '{name}'"
            raise config_error(f"critics.{critic}.returns_tag", f"{problem}; add it to returns.{config.returns_tag}.datasets")
