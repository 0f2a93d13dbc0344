"""A DuckDB catalogue of an experiment: views over every file, never copies. ``make sql`` opens a prompt on it."""

import argparse
import readline  # noqa: F401 (line editing and history for input())
from pathlib import Path

import duckdb
import yaml

from recap_steam.config import Experiment, load_experiment
from recap_steam.errors import UserError, run_main
from recap_steam.label_config import SteamAdvantagesConfig
from recap_steam.report.results import Results
from recap_steam.sidecar_schemas import SCHEMAS

EXAMPLES = {
    "worst episodes by advantage": """
        SELECT tag, dataset, episode_index, avg(advantage_continuous) AS mean_advantage, avg(advantage::INT) AS positive_rate
        FROM advantages GROUP BY ALL ORDER BY mean_advantage LIMIT 10""",
    "positive rate by dataset and outcome": """
        SELECT tag, dataset, success, avg(advantage::INT) AS positive_rate, count(*) AS frames
        FROM advantages JOIN episodes USING (dataset, episode_index) GROUP BY ALL ORDER BY ALL""",
    "mean value over the tenths of an episode, by outcome": """
        SELECT tag, dataset, success, 10 * frame_index // length AS tenth, avg(value) AS mean_value
        FROM "values" JOIN episodes USING (dataset, episode_index) GROUP BY ALL ORDER BY ALL""",
    "labels that differ between two tags": """
        SELECT a.tag, b.tag AS other, a.dataset, count(*) FILTER (a.advantage <> b.advantage) AS flips, count(*) AS frames
        FROM advantages a JOIN advantages b USING (dataset, episode_index, frame_index) WHERE a.tag < b.tag GROUP BY ALL""",
    "frames that labels by values and labels by scores disagree on": """
        SELECT r.dataset, r.episode_index, r.frame_index, r.tag AS recap_tag, r.advantage AS recap,
        r.advantage_continuous AS recap_advantage, s.tag AS steam_tag, s.advantage AS steam, s.advantage_continuous AS steam_score
        FROM advantages r JOIN advantages s USING (dataset, episode_index, frame_index)
        WHERE r.method = 'recap' AND s.method = 'steam' AND r.advantage <> s.advantage ORDER BY ALL LIMIT 20""",
    "mean score over the tenths of an episode, by outcome": """
        SELECT tag, dataset, success, 10 * frame_index // length AS tenth, avg(ensemble_signed_score) AS mean_score
        FROM scores JOIN episodes USING (dataset, episode_index) GROUP BY ALL ORDER BY ALL""",
    "episodes whose members disagree most": """
        SELECT tag, dataset, episode_index, avg(p_progress_variance) AS mean_variance, avg(ensemble_signed_score) AS mean_score
        FROM scores GROUP BY ALL ORDER BY mean_variance DESC LIMIT 10""",
    "members of ensembles beside the majority": """
        PIVOT (SELECT tag, metric, coalesce('member ' || member, predictor) AS predictor, value FROM critic_evaluations
        WHERE part IS NULL AND predictor IN ('eval', 'baseline_majority') AND metric IN ('loss', 'accuracy', 'accuracy_neighbor'))
        ON predictor USING first(value)""",
    "success by arm": """
        SELECT tag, policy, guidance_scale, sum(success::INT) AS successes, count(*) AS episodes, avg(num_frames) AS mean_frames
        FROM evaluations GROUP BY ALL ORDER BY ALL""",
    "critics beside the predictors that see no image": """
        PIVOT (SELECT tag, metric, predictor, value FROM critic_evaluations
        WHERE part IS NULL AND member IS NULL) ON predictor USING any_value(value)""",
    "last logged metrics": """
        SELECT kind, tag, metric, arg_max(value, step) AS last_value, max(step) AS step FROM metrics GROUP BY ALL ORDER BY ALL""",
}
HELP = (
    "Type SQL on one line. Tables: episodes, returns, values, scores, advantages, evaluations, critic_evaluations, metrics.\n"
    "Also: tables (and their columns), examples (list), N (run example N), help, quit."
)
TABLES = "SELECT table_name, list(column_name ORDER BY ordinal_position) AS columns FROM information_schema.columns GROUP BY 1 ORDER BY 1"


def open_catalogue(experiment: Experiment, results_dir: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with one view a kind, over the files of all datasets and tags that exist now; the first columns say which."""
    connection = duckdb.connect()
    results = Results(experiment, results_dir)
    views = {"episodes": _episodes(results), "evaluations": _evaluations(results), "metrics": _metrics(results)}
    views["critic_evaluations"] = _critic_evaluations(results)
    views |= {kind: _sidecars(results, kind) for kind in SCHEMAS}
    for name, selects in views.items():
        if selects:
            connection.execute(f'CREATE VIEW "{name}" AS ' + " UNION ALL BY NAME ".join(selects))
    return connection


def _episodes(results: Results) -> list[str]:
    files = {dataset: results.root / "episodes" / f"{dataset}.parquet" for dataset in results.experiment.datasets}
    return [f"SELECT {_text(dataset)} AS dataset, * FROM read_parquet({_text(path)})" for dataset, path in files.items() if path.exists()]


def _sidecars(results: Results, kind: str) -> list[str]:
    """Of every tag of a kind; advantages say the ``method`` that they come from, which decides on their columns."""
    labels = results.experiment.advantages
    tags = {"returns": results.experiment.returns, "values": results.value_critics, "scores": results.ensembles, "advantages": labels}[kind]
    methods = {tag: "steam" if isinstance(config, SteamAdvantagesConfig) else "recap" for tag, config in tags.items()}
    files = [(tag, dataset, results.sidecar_file(dataset, kind, tag)) for tag in tags for dataset in results.experiment.datasets]
    return [
        f"SELECT {_text(tag)} AS tag, {_text(dataset)} AS dataset, "
        f"{f'{_text(methods[tag])} AS method, ' if kind == 'advantages' else ''}* FROM read_parquet({_text(path)})"
        for tag, dataset, path in files
        if path.exists()
    ]


def _evaluations(results: Results) -> list[str]:
    files = [(tag, *file) for tag in results.experiment.evaluations for file in results.arm_files(tag)]
    return [
        f"SELECT {_text(tag)} AS tag, {_text(policy)} AS policy, {'NULL' if scale is None else scale}::DOUBLE AS guidance_scale, * "
        f"FROM read_parquet({_text(path)})"
        for tag, path, policy, scale in files
        if path.exists()
    ]


def _metrics(results: Results) -> list[str]:
    """Long form: one row a step and metric; ``member`` of an ensemble, else NULL."""
    trainings = [(kind, tag, None, tag) for kind in ("critics", "policies") for tag in getattr(results.experiment, kind)]
    trainings += [("critics", critic, member, tag) for critic in results.ensembles for member, tag in enumerate(results.members(critic))]
    files = [(*names, results.root / names[0] / folder / "metrics.jsonl") for *names, folder in trainings]
    return [
        f"SELECT {_text(kind)} AS kind, {_text(tag)} AS tag, {'NULL' if member is None else member}::BIGINT AS member, "
        "(json->>'step')::BIGINT AS step, metric, (json->>metric)::DOUBLE AS value "
        f"FROM (SELECT json, unnest(json_keys(json)) AS metric FROM read_ndjson_objects({_text(path)})) WHERE metric <> 'step'"
        for kind, tag, member, path in files
        if path.exists()
    ]


def _critic_evaluations(results: Results) -> list[str]:
    """Long form: one row a number. ``predictor`` eval, eval_train, baseline_...; ``part`` such as outcome=success, NULL for the whole;
    ``member`` of an ensemble, NULL for the mean of its members and for other critics."""
    files = {tag: results.root / "critics" / tag / "evaluation.json" for tag in results.experiment.critics}
    return [
        f"SELECT {_text(tag)} AS tag, member::BIGINT AS member, split_part(name, '/', 1) AS predictor, split_part(name, '/', 2) AS metric, "
        "nullif(substr(name, length(predictor) + length(metric) + 3), '') AS part, value "
        "FROM (SELECT nullif(regexp_extract(key, '^member([0-9]+)/', 1), '') AS member, "
        "regexp_replace(key, '^member[0-9]+/', '') AS name, (json->>key)::DOUBLE AS value "
        f"FROM (SELECT json, unnest(json_keys(json)) AS key FROM read_json_objects({_text(path)})))"
        for tag, path in files.items()
        if path.exists()
    ]


def _text(value: object) -> str:
    """``value`` as an SQL string."""
    return "'" + str(value).replace("'", "''") + "'"


def run_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Print the result of ``sql`` as a table.

    Raises:
        UserError: DuckDB refuses the statement.
    """
    try:
        result = connection.sql(sql)
    except duckdb.Error as error:
        raise UserError(str(error).splitlines()[0]) from None
    if result is not None:
        result.show(max_rows=100)


def prompt(connection: duckdb.DuckDBPyConnection) -> None:
    """Read statements from the terminal until end of file or Ctrl-C; a mistake is reported and the prompt stays."""
    print(HELP)
    while True:
        try:
            line = input("sql> ").strip().rstrip(";")
            if line in ("quit", "exit"):
                return
            _answer(connection, line)
        except UserError as error:
            print(error)
        except (EOFError, KeyboardInterrupt):
            return print()


def _answer(connection: duckdb.DuckDBPyConnection, line: str) -> None:
    queries = list(EXAMPLES.items())
    if line == "help":
        print(HELP)
    elif line == "examples":
        print("\n".join(f"{number}. {title}" for number, (title, _) in enumerate(queries, 1)))
    elif line == "tables":
        run_query(connection, TABLES)
    elif line.isdigit() and 0 < int(line) <= len(queries):
        title, sql = queries[int(line) - 1]
        print(f"{title}:{sql}")
        run_query(connection, sql)
    elif line:
        run_query(connection, line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="experiment file")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds results/<experiment>")
    parser.add_argument("-c", "--command", help="run this SQL and end")
    arguments = parser.parse_args()
    if not arguments.config.is_file():
        raise UserError(f"{arguments.config}: no such experiment file; give one with --config")
    try:
        experiment = load_experiment(yaml.safe_load(arguments.config.read_text()))
    except yaml.YAMLError as error:
        raise UserError(f"{arguments.config}: not YAML ({' '.join(str(error).split())}); correct it") from None
    connection = open_catalogue(experiment, arguments.results / experiment.experiment)
    if arguments.command:
        run_query(connection, arguments.command)
    else:
        prompt(connection)


if __name__ == "__main__":
    run_main(main)
