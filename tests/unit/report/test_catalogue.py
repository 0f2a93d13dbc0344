"""The catalogue: its views in DuckDB's library and in its own shell, the questions of docs/queries, and the command line."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.report import catalogue
from tests.experiments import RESULTS, config_of, small_config

QUERIES = Path(__file__).parents[3] / "docs/queries"
FILE = RESULTS / catalogue.FILE_NAME
RUN_TIME = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n12.5\t0:00:12\tNA\t-\t-\t-\t-\t-\t0.00\t0\n"
EMPTY = ("stale_sidecars",)  # where all is well


@pytest.fixture(scope="module")
def made(finished, tmp_path_factory) -> Path:
    """A copy of the finished experiment in which the catalogue was written."""
    folder = tmp_path_factory.mktemp("catalogue") / "moved"
    shutil.copytree(finished, folder)
    (folder / "logs/small/train_critic").mkdir(parents=True, exist_ok=True)
    (folder / "logs/small/train_critic/value.tsv").write_text(RUN_TIME)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert catalogue.write_catalogue(load_experiment(small_config()), RESULTS) == []
    return folder


@pytest.fixture
def connection(made, monkeypatch):
    monkeypatch.chdir(made)
    with duckdb.connect(FILE, read_only=True) as connection:
        yield connection


def ask(folder: Path, sql: str) -> list[dict]:
    """The answer of DuckDB's shell."""
    done = subprocess.run([catalogue.shell(), "-readonly", "-json", FILE, "-c", sql], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() not in ("", "[{]") else []


def test_views_cover_every_tag_and_dataset(connection):
    counts = {
        view: connection.execute(f'SELECT count(DISTINCT (tag, dataset)) FROM "{view}"').fetchone()[0]
        for view in ("returns", "values", "scores", "advantages", "thresholds")
    }
    assert counts == {"returns": 3, "values": 3, "scores": 3, "advantages": 6, "thresholds": 6}
    frames = connection.execute("SELECT sum(length) FROM episodes").fetchone()[0]
    for view in ("moments", "frames", "returns"):
        assert connection.execute(f"SELECT count(*) FROM {view}").fetchone()[0] == frames
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


def test_moments_agree_with_the_datasets_own_columns(connection):
    both = "moments JOIN frames USING (dataset, episode_index, frame_index)"
    assert connection.execute(f"SELECT count(*) FROM {both} WHERE dataset <> 'demonstrations' AND success <> is_success").fetchone()[0] == 0
    assert connection.execute(f"SELECT count(*) FROM {both} WHERE corrected").fetchone()[0] > 0
    assert connection.execute(f"SELECT count(*) FROM {both} WHERE corrected <> coalesce(intervene_flag, false)").fetchone()[0] == 0


def test_frames_have_no_images(connection):
    assert "action" in connection.sql("FROM frames").columns
    assert [name for name in connection.sql("FROM frames").columns if name.startswith("observation.images")] == []


def test_views_follow_their_files(made, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    path = Path("data/rollouts/meta/advantages_n5_q30.parquet")
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("advantage"), "advantage", pa.array(np.ones(len(table), bool))), path)
    [row] = ask(folder, "SELECT count(*) AS negative FROM advantages WHERE tag = 'n5_q30' AND dataset = 'rollouts' AND NOT advantage")
    assert row == {"negative": 0}


def test_run_times_are_those_of_snakemake(made):
    assert ask(made, "FROM run_times WHERE job = 'value'") == [{"rule": "train_critic", "job": "value", "seconds": 12.5, "peak_mib": None}]


def test_thresholds_are_those_of_the_threshold_file(made):
    expected = yaml.safe_load((made / RESULTS / "thresholds/n5_each.yaml").read_text())["thresholds"]
    found = ask(made, "SELECT DISTINCT pool, threshold FROM thresholds WHERE tag = 'n5_each'")
    assert {row["pool"]: row["threshold"] for row in found} == expected and len(expected) == 2


def test_every_view_says_what_it_is_for(made):
    """Read by the shell, which is of another version than the library that wrote the file."""
    comments = ask(made, "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal")
    assert len(comments) == 16 and all(row["comment"] for row in comments)
    for row in comments:
        assert ask(made, f'SELECT count(*) AS rows FROM "{row["view_name"]}"')[0]["rows"] > 0, row["view_name"]


@pytest.mark.parametrize("path", sorted(QUERIES.glob("*.sql")), ids=lambda path: path.stem)
def test_every_question_is_answered(made, connection, path):
    """By the shell, and by the library with the same rows."""
    assert re.match(r"-- [A-Z].*\?\n", path.read_text()), "the first line is the question"
    shown = ask(made, path.read_text())
    assert len(shown) == len(connection.sql(path.read_text()).fetchall())
    assert bool(shown) == (path.stem not in EMPTY)


def test_disagreements_are_frames_with_one_label_of_each(connection):
    rows = connection.sql((QUERIES / "recap_steam_disagreement.sql").read_text()).fetchall()
    query = "SELECT advantage FROM advantages WHERE tag = '{}' AND dataset = 'rollouts' ORDER BY episode_index, frame_index"
    recap, again, steam = (np.array(connection.sql(query.format(tag)).fetchall()).ravel() for tag in ("n5_q30", "n5_each", "steam_q40"))
    assert len(rows) == (recap != steam).sum() + (again != steam).sum() > 0  # demonstrations are positive by both


def test_error_by_task_is_the_distance_from_the_scaled_return(connection):
    query = """SELECT avg(abs(value - "return" / 79)) FROM "values" JOIN returns USING (dataset, episode_index, frame_index)
        JOIN episodes USING (dataset, episode_index) WHERE dataset = 'heldout' AND NOT success"""
    [found] = [
        row for row in connection.sql((QUERIES / "critic_error_by_task.sql").read_text()).fetchall() if row[1] == "heldout" and not row[4]
    ]
    assert found[6] == pytest.approx(connection.execute(query).fetchone()[0], abs=1e-4)


def test_another_version_of_a_dataset_is_seen(made, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    shutil.copy(folder / RESULTS / "episodes/heldout.parquet", folder / RESULTS / "episodes/rollouts.parquet")
    stale = ask(folder, (QUERIES / "stale_sidecars.sql").read_text())
    assert [row["path"] for row in stale if "returns" in row["path"]] == ["data/rollouts/meta/returns_fail40.parquet"]


@pytest.mark.parametrize("critic", ["value", "progress"])
def test_one_method_alone_has_empty_views_of_the_other(made, tmp_path, monkeypatch, critic):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    assert catalogue.write_catalogue(load_experiment(config_of(critic)), RESULTS) == []
    other = "scores" if critic == "value" else "values"
    assert ask(folder, f'SELECT count(*) AS rows FROM "{other}"') == [{"rows": 0}]
    for path in QUERIES.glob("*.sql"):
        rows = ask(folder, path.read_text())
        assert rows == [] or path.stem != "recap_steam_disagreement"


def test_an_experiment_without_results_has_every_view(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert catalogue.write_catalogue(load_experiment(small_config()), RESULTS) == []
    assert ask(tmp_path, "SELECT count(*) AS rows FROM duckdb_views() WHERE NOT internal") == [{"rows": 16}]
    assert ask(tmp_path, 'SELECT (SELECT count(*) FROM datasets) AS datasets, (SELECT count(*) FROM "values") AS frames') == [
        {"datasets": 3, "frames": 0}
    ]


def test_an_unreadable_file_is_left_out_and_named(made, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    path = Path("data/rollouts/meta/returns_fail40.parquet")
    path.write_bytes(path.read_bytes()[:100])
    problems = catalogue.write_catalogue(load_experiment(small_config()), RESULTS)
    assert {problem.split(": ")[0] for problem in problems} == {str(path)} and all("left out of" in problem for problem in problems)
    assert {row["dataset"] for row in ask(folder, "SELECT DISTINCT dataset FROM returns")} == {"demonstrations", "heldout"}


def test_a_column_that_datasets_store_in_two_ways_is_shown_as_text(made, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    [path] = Path("data/heldout/data").rglob("*.parquet")
    table = pq.read_table(path)
    lists = pa.array([[flag] for flag in table["is_success"].to_pylist()])
    pq.write_table(table.set_column(table.column_names.index("is_success"), "is_success", lists), path)
    assert catalogue.write_catalogue(load_experiment(small_config()), RESULTS) == []
    found = ask(folder, "SELECT DISTINCT is_success FROM frames WHERE dataset <> 'demonstrations' ORDER BY ALL")
    assert [row["is_success"] for row in found] == ["[false]", "[true]", "false", "true"]


def test_the_same_experiment_gives_the_same_views_and_leaves_nothing_else(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    catalogue.write_catalogue(load_experiment(small_config()), RESULTS)
    assert sorted(made.rglob("*")) == before
    assert str(made) not in (made / FILE).read_bytes().decode(errors="replace")  # only relative paths


def test_command_line(made, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(small_config()))
    command = [sys.executable, "-m", "recap_steam.report.catalogue", "--config", config, "--", "-csv"]
    typed = subprocess.run(command, cwd=made, input="select count(*) as frames from returns;\n", capture_output=True, text=True)
    assert typed.returncode == 0 and re.fullmatch(r"frames\n\d+\n", typed.stdout) and typed.stderr == ""


@pytest.mark.parametrize(("content", "message"), [(None, "no such experiment file; give one with --config"), ("experiment: [", "not YAML")])
def test_an_experiment_that_cannot_be_read_is_one_error(tmp_path, monkeypatch, content, message):
    config = tmp_path / "mine.yaml"
    if content:
        config.write_text(content)
    monkeypatch.setattr(sys, "argv", ["catalogue", "--config", str(config)])
    with pytest.raises(UserError, match=re.escape(f"{config}: {message}")):
        catalogue.main()


def test_a_missing_shell_is_one_error(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="duckdb-cli"):
        catalogue.shell()
