"""Views over datasets and their sidecars, one SELECT a file that exists."""

import glob
from pathlib import Path

import duckdb

from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.label_config import AdvantagesConfig, ImportedAdvantagesConfig, SteamAdvantagesConfig
from recap_steam.report.catalogue_sql import View, identifier, parquet, text
from recap_steam.report.results import Results
from recap_steam.sidecar_schemas import SCHEMAS, STEAM_ADVANTAGES

METHODS = {AdvantagesConfig: "recap", SteamAdvantagesConfig: "steam", ImportedAdvantagesConfig: "imported"}
FRAME = {"dataset": "VARCHAR", "episode_index": "BIGINT", "frame_index": "BIGINT"}


def data_views(results: Results) -> dict[str, View]:
    """Views by name."""
    return {
        "datasets": _datasets(results),
        "episodes": _episodes(results),
        "moments": _moments(results),
        "frames": _frames(results),
        **{kind: _sidecars(results, kind) for kind in SCHEMAS},
    }


def _datasets(results: Results) -> View:
    rows = {
        name: f"SELECT {text(name)} AS dataset, {text(config.path)} AS path, {text(config.type)} AS type, {text(config.split)} AS split, "
        f"{config.weight}::DOUBLE AS weight"
        for name, config in results.experiment.datasets.items()
    }
    columns = dict.fromkeys(("dataset", "path", "type", "split"), "VARCHAR") | {"weight": "DOUBLE"}
    return View("what the experiment says of each dataset", columns, rows)


def index_files(results: Results) -> dict[str, Path]:
    """Episode indices by dataset."""
    files = {name: results.root / "episodes" / f"{name}.parquet" for name in results.experiment.datasets}
    return {name: path for name, path in files.items() if path.exists()}


def _episodes(results: Results) -> View:
    files = {path: f"SELECT {text(name)} AS dataset, * FROM {parquet(path)}" for name, path in index_files(results).items()}
    columns = {"dataset": "VARCHAR", "episode_index": "BIGINT", "length": "BIGINT", "success": "BOOLEAN", "digest": "VARCHAR"}
    columns |= {"task_frame": "BIGINT[]", "task": "VARCHAR[]", "intervention_start": "BIGINT[]", "intervention_stop": "BIGINT[]"}
    return View("a row an episode: length in frames, outcome, tasks with their first frames, corrections", columns, files)


def _moments(results: Results) -> View:
    """The episode index again, a row a frame: what most questions group by."""
    files = {
        path: f"SELECT {text(name)} AS dataset, episode_index, frame_index, "
        "task[len(list_filter(task_frame, lambda first: first <= frame_index))] AS task, success, 10 * frame_index // length AS tenth, "
        "len(list_filter(intervention_start, lambda start: start <= frame_index)) > "
        "len(list_filter(intervention_stop, lambda stop: stop <= frame_index)) AS corrected "
        f"FROM (SELECT *, unnest(range(length)) AS frame_index FROM {parquet(path)})"
        for name, path in index_files(results).items()
    }
    columns = FRAME | {"task": "VARCHAR", "success": "BOOLEAN", "tenth": "BIGINT", "corrected": "BOOLEAN"}
    return View(
        "a row a frame: task, outcome, tenth of the episode (0 to 9), whether it is a correction; join it with the others", columns, files
    )


def _frames(results: Results) -> View:
    """The datasets' own columns; images stay out, because nobody reads them here and they are most of the bytes."""
    selects = {}
    for name, config in results.experiment.datasets.items():
        try:
            dataset = open_dataset(name, config.path)
        except UserError:
            continue  # not collected yet, or broken, which the target `datasets` says
        images = [camera for camera in dataset.cameras if dataset.camera_dtype(camera) == "image"]
        left_out = f" EXCLUDE ({', '.join(map(identifier, images))})" if images else ""
        files = f"{glob.escape(config.path)}/{Path(dataset.info.get('data_path', 'data')).parts[0]}/**/*.parquet"
        selects[files] = f"SELECT {text(name)} AS dataset, *{left_out} FROM {parquet(files)}"
    return View("a row a frame: the dataset's own columns as they are, without images", FRAME, selects)


def _sidecars(results: Results, kind: str) -> View:
    """Of every tag of a kind; advantages say the ``method`` that they come from (or that they are imported), and values the tag of
    the returns that their critic learned."""
    experiment = results.experiment
    tags = {
        "returns": experiment.returns,
        "values": results.value_critics,
        "scores": results.ensembles,
        "advantages": experiment.advantages,
    }
    constants = {tag: {"tag": tag} for tag in tags[kind]}
    for tag, config in tags[kind].items():
        if kind == "advantages":
            constants[tag]["method"] = METHODS[type(config)]
        if kind == "values":
            constants[tag]["returns_tag"] = config.returns_tag
    selects = {
        path: f"SELECT {', '.join(f'{text(value)} AS {name}' for name, value in constants[tag].items())}, {text(dataset)} AS dataset, * "
        f"FROM {parquet(path)}"
        for tag in tags[kind]
        for dataset in experiment.datasets
        if (path := results.sidecar_file(dataset, kind, tag)).exists()
    }
    extra = {"advantages": ["method"], "values": ["returns_tag"]}.get(kind, [])
    columns = dict.fromkeys(["tag", *extra, "dataset"], "VARCHAR") | _types(kind)
    return View(f"a row a frame and tag: the sidecars {kind}_{{tag}}.parquet", columns, selects)


def _types(kind: str) -> dict[str, str]:
    schemas = [SCHEMAS[kind], *([STEAM_ADVANTAGES] if kind == "advantages" else [])]
    empty = [duckdb.from_arrow(schema.empty_table()) for schema in schemas]
    return {name: str(dtype) for relation in empty for name, dtype in zip(relation.columns, relation.dtypes, strict=True)}
