"""The catalogue's views, its canned queries and its command line, on a finished experiment."""

import io
import subprocess
import sys

import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.report import catalogue
from tests.experiments import RESULTS, small_config


@pytest.fixture
def connection(finished, monkeypatch):
    monkeypatch.chdir(finished)
    return catalogue.open_catalogue(load_experiment(small_config()), RESULTS)


def test_views_cover_every_tag_and_dataset(connection):
    counts = {
        view: connection.execute(f'SELECT count(DISTINCT (tag, dataset)) FROM "{view}"').fetchone()[0]
        for view in ("returns", "values", "advantages")
    }
    assert counts == {"returns": 3, "values": 3, "advantages": 4}
    frames = connection.execute("SELECT sum(length) FROM episodes").fetchone()[0]
    assert connection.execute("SELECT count(*) FROM returns").fetchone()[0] == frames
    assert connection.execute("SELECT count(*) FROM evaluations WHERE policy = 'recap'").fetchone()[0] == 100
    assert connection.execute("SELECT value FROM metrics WHERE tag = 'value' AND metric = 'eval/mae' ORDER BY step").fetchone()[0] == 0.095
    found = connection.execute(
        "SELECT predictor, metric, part, value FROM critic_evaluations WHERE round(value, 3) IN (0.1, 0.24)"
    ).fetchall()
    assert sorted(found) == [("baseline_constant", "mae", None, 0.24), ("eval", "mae", "outcome=failure", 0.1)]


@pytest.mark.parametrize("title", catalogue.EXAMPLES)
def test_every_example_answers(connection, title):
    assert connection.sql(catalogue.EXAMPLES[title]).fetchall()


def test_kinds_without_files_have_no_view(finished, monkeypatch):
    monkeypatch.chdir(finished)
    config = {key: value for key, value in small_config().items() if key in ("experiment", "datasets", "returns")}
    connection = catalogue.open_catalogue(load_experiment(config), RESULTS)
    assert [row[0] for row in connection.sql("SELECT DISTINCT table_name FROM information_schema.tables ORDER BY 1").fetchall()] == [
        "episodes",
        "returns",
    ]


def test_prompt_survives_a_mistake(connection, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("help\nexamples\ntables\n5\nselect nonsense from nowhere\nselect 6 * 7 as answer;\n\nquit\n")
    )
    catalogue.prompt(connection)
    printed = capsys.readouterr().out
    assert "nowhere" in printed and "answer" in printed and "42" in printed and "1. worst episodes" in printed


def test_wrong_sql_is_one_error(connection):
    with pytest.raises(UserError, match="nowhere"):
        catalogue.run_query(connection, "select * from nowhere")


def test_command_line(finished, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(small_config()))
    command = [sys.executable, "-m", "recap_steam.report.catalogue", "--config", str(config)]
    done = subprocess.run([*command, "-c", "SELECT count(*) AS frames FROM returns"], cwd=finished, capture_output=True, text=True)
    assert done.returncode == 0 and "frames" in done.stdout
    absent = subprocess.run([*command[:-1], "absent.yaml"], cwd=finished, capture_output=True, text=True)
    assert absent.returncode == 1 and absent.stderr == "error: absent.yaml: no such experiment file; give one with --config\n"
    config.write_text("experiment: [")
    broken = subprocess.run(command, cwd=finished, capture_output=True, text=True)
    assert broken.returncode == 1 and broken.stderr.startswith(f"error: {config}: not YAML (") and broken.stderr.count("\n") == 1
