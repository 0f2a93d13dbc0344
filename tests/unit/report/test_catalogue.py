"""The catalogue's views, its canned queries and its command line, on a finished experiment."""

import io
import subprocess
import sys

import numpy as np
import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.report import catalogue
from tests.experiments import RESULTS, config_of, small_config


@pytest.fixture
def connection(finished, monkeypatch):
    monkeypatch.chdir(finished)
    return catalogue.open_catalogue(load_experiment(small_config()), RESULTS)


def test_views_cover_every_tag_and_dataset(connection):
    counts = {
        view: connection.execute(f'SELECT count(DISTINCT (tag, dataset)) FROM "{view}"').fetchone()[0]
        for view in ("returns", "values", "scores", "advantages")
    }
    assert counts == {"returns": 3, "values": 3, "scores": 3, "advantages": 6}
    frames = connection.execute("SELECT sum(length) FROM episodes").fetchone()[0]
    assert connection.execute("SELECT count(*) FROM returns").fetchone()[0] == frames
    assert connection.execute("SELECT count(*) FROM evaluations WHERE policy = 'recap'").fetchone()[0] == 100
    assert connection.execute("SELECT value FROM metrics WHERE tag = 'value' AND metric = 'eval/mae' ORDER BY step").fetchone()[0] == 0.095
    found = connection.execute(
        "SELECT predictor, metric, part, value FROM critic_evaluations WHERE round(value, 3) IN (0.1, 0.24)"
    ).fetchall()
    assert sorted(found) == [("baseline_constant", "mae", None, 0.24), ("eval", "mae", "outcome=failure", 0.1)]


def test_members_stand_beside_their_ensemble(connection):
    query = "SELECT member, value FROM critic_evaluations WHERE tag = 'progress' AND predictor = 'eval' AND metric = 'accuracy'"
    assert connection.sql(f"{query} AND part IS NULL ORDER BY member NULLS FIRST").fetchall() == [(None, 0.5), (0, 0.45), (1, 0.55)]
    query = "SELECT DISTINCT member FROM metrics WHERE tag = 'progress' ORDER BY ALL"
    assert connection.sql(query).fetchall() == [(0,), (1,)]


def test_disagreements_are_frames_with_one_label_of_each(connection):
    title = "frames that labels by values and labels by scores disagree on"
    rows = connection.sql(catalogue.EXAMPLES[title].replace("LIMIT 20", "")).fetchall()
    query = "SELECT advantage FROM advantages WHERE tag = '{}' AND dataset = 'rollouts' ORDER BY episode_index, frame_index"
    recap, again, steam = (np.array(connection.sql(query.format(tag)).fetchall()).ravel() for tag in ("n5_q30", "n5_each", "steam_q40"))
    assert len(rows) == (recap != steam).sum() + (again != steam).sum() > 0  # demonstrations are positive by both


@pytest.mark.parametrize("critic", ["value", "progress"])
def test_one_method_alone_has_no_disagreement_and_no_views_of_the_other(finished, monkeypatch, critic):
    monkeypatch.chdir(finished)
    connection = catalogue.open_catalogue(load_experiment(config_of(critic)), RESULTS)
    assert connection.sql(catalogue.EXAMPLES["frames that labels by values and labels by scores disagree on"]).fetchall() == []
    assert connection.sql(catalogue.EXAMPLES["labels that differ between two tags"]) is not None
    with pytest.raises(UserError, match="scores" if critic == "value" else "values"):
        catalogue.run_query(connection, 'SELECT * FROM "scores" JOIN "values" USING (dataset, episode_index, frame_index)')


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
