"""A DuckDB catalogue of an experiment: views over every file, never copies. ``make sql`` opens DuckDB's own shell on it."""

import argparse
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import duckdb

from recap_steam.config import Experiment, read_experiment
from recap_steam.errors import UserError, run_main
from recap_steam.files import atomic_output
from recap_steam.report.catalogue_data import data_views
from recap_steam.report.catalogue_results import result_views
from recap_steam.report.catalogue_sql import View, identifier, text
from recap_steam.report.results import Results

FILE_NAME = "catalogue.duckdb"
# The package index has the shell in an older version than the library. It reads this storage, and so does every newer one.
STORAGE_VERSION = "v1.4.0"
NUMBERS = re.compile(r"(TINYINT|SMALLINT|INTEGER|BIGINT|FLOAT|DOUBLE)(\[\])?")


def write_catalogue(experiment: Experiment, results_dir: Path) -> list[str]:
    """Write ``catalogue.duckdb`` of what exists now into ``results_dir``: only views, with paths as ``results_dir`` and the experiment
    state them, so that it serves whoever opens it in the folder in which the workflow runs.

    Returns:
        What could not be read and is left out, a line each.
    """
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder, atomic_output(results_dir / FILE_NAME) as output:
        made = Path(folder) / FILE_NAME  # DuckDB refuses the empty file that ``atomic_output`` holds
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH {text(made)} AS catalogue (STORAGE_VERSION {text(STORAGE_VERSION)})")
            connection.execute("USE catalogue")
            results = Results(experiment, results_dir)
            for name, view in (data_views(results) | result_views(results)).items():
                _create_view(connection, name, view, problems)
            connection.execute("USE memory")
            connection.execute("DETACH catalogue")
        shutil.copyfile(made, output)
    return problems


def _create_view(connection: duckdb.DuckDBPyConnection, name: str, view: View, problems: list[str]) -> None:
    """The union of the view's columns, without rows, and of all that can be read."""
    readable = {}
    for source, select in view.selects.items():
        try:
            readable[select] = {column: str(kind) for column, kind, *_ in connection.execute(f"DESCRIBE {select}").fetchall()}
        except duckdb.Error as error:
            problems.append(f"{source}: left out of {name}, because DuckDB cannot read it: {str(error).splitlines()[0]}")
    texts = _of_no_common_type(readable.values())
    empty = ", ".join(f"NULL::{kind} AS {identifier(column)}" for column, kind in view.columns.items())
    parts = [f"SELECT {empty} WHERE false", *(_with_texts(select, columns, texts) for select, columns in readable.items())]
    connection.execute(f"CREATE VIEW {identifier(name)} AS {' UNION ALL BY NAME '.join(parts)}")
    connection.execute(f"COMMENT ON VIEW {identifier(name)} IS {text(view.comment)}")


def _of_no_common_type(schemas: Iterable[dict[str, str]]) -> set[str]:
    """Columns that are, for example, a truth value in one dataset and a list in another: these are shown as text."""
    kinds: dict[str, set[str]] = {}
    for schema in schemas:
        for column, kind in schema.items():
            number = NUMBERS.fullmatch(kind)
            kinds.setdefault(column, set()).add(f"number{number[2] or ''}" if number else kind)
    return {column for column, found in kinds.items() if len(found) > 1}


def _with_texts(select: str, columns: dict[str, str], texts: set[str]) -> str:
    casts = ", ".join(f"{identifier(column)}::VARCHAR AS {identifier(column)}" for column in columns if column in texts)
    return f"SELECT * REPLACE ({casts}) FROM ({select})" if casts else select


def shell() -> str:
    """The program of the package ``duckdb-cli``: the program itself, because its Python wrapper ends it on Ctrl-C.

    Raises:
        UserError: it is not installed.
    """
    package = importlib.util.find_spec("duckdb_cli")
    program = Path(package.origin).with_name("duckdb") if package else Path("duckdb")
    if not program.is_file():
        raise UserError("DuckDB's shell is not installed; install the package duckdb-cli, or open the catalogue with any other DuckDB")
    return str(program)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="experiment file")
    parser.add_argument("--seed", type=int, help="of a replicate of the experiment (default: the experiment as it is written)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds results/<experiment>")
    parser.add_argument("arguments", nargs="*", help="of the shell, after --, for example: -- -f docs/queries/worst_episodes.sql")
    arguments = parser.parse_args()
    experiment = read_experiment(arguments.config, arguments.seed)
    results_dir = arguments.results / experiment.experiment
    for problem in write_catalogue(experiment, results_dir):
        print(f"note: {problem}", file=sys.stderr)
    program = shell()
    os.execv(program, [program, "-readonly", str(results_dir / FILE_NAME), *arguments.arguments])


if __name__ == "__main__":
    run_main(main)
