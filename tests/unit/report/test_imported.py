"""Returns and labels of other tools in the report and in the catalogue: used like any other, and marked as without lineage."""

import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.labels.imports import import_stage
from recap_steam.report import label_tables, page, provenance, series
from recap_steam.report.catalogue import FILE_NAME
from recap_steam.report.label_report import agreements, label_reports
from recap_steam.report.label_warnings import warnings
from recap_steam.report.results import Results
from tests.experiments import LOGS, RESULTS, small_config

DATASETS = ["demonstrations", "rollouts"]


@pytest.fixture
def results(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The small experiment with the labels n5_q30 and the returns once more, as if another tool had made them."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    config = small_config()
    for kind, tag, columns in (("returns", "fail40", None), ("advantages", "n5_q30", ["episode_index", "frame_index", "advantage"])):
        config[kind]["mine"] = {"imported": {"sidecar": "theirs"}, "datasets": DATASETS}
        for name in DATASETS:
            table = pq.read_table(f"data/{name}/meta/{kind}_{tag}.parquet", columns=columns).replace_schema_metadata(None)
            pq.write_table(table, f"data/{name}/meta/{kind}_theirs.parquet")
    experiment = load_experiment(config)
    for kind in ("returns", "advantages"):
        for name in DATASETS:
            episodes = RESULTS / f"episodes/{name}.parquet"
            import_stage(experiment, kind, name, "mine", episodes, f"data/{name}/meta/{kind}_mine.parquet")
    return Results(experiment, RESULTS)


def test_the_page_says_that_they_carry_no_lineage(results, tmp_path):
    """And the catalogue, which is written with it, that they are imported."""
    page.report_stage(results.experiment, RESULTS, RESULTS / "rule_graph.dot", LOGS, [], tmp_path / "page")
    text = (tmp_path / "page/index.html").read_text()
    assert "Imported, without lineage" in text and "nothing says which critic, parameters or data made them" in text
    assert "Imported, without lineage" in (tmp_path / "page/summary.txt").read_text()
    assert "import_advantages" in text and "import_returns" in text  # in the lineage of every file
    with duckdb.connect(RESULTS / FILE_NAME, read_only=True) as connection:
        query = "SELECT DISTINCT method, dataset, advantage_continuous IS NULL FROM advantages WHERE tag = 'mine' ORDER BY dataset"
        assert connection.execute(query).fetchall() == [("imported", name, True) for name in DATASETS]
        query = Path(__file__).parents[3] / "docs/queries/label_flips.sql"
        flips = connection.execute(query.read_text()).fetchall()
        assert any({"mine", "n5_q30"} == set(row[:2]) for row in flips)


def test_every_import_is_a_row_with_its_source(results):
    table = provenance.imports_table(results)
    assert [row[:4] for row in table.rows] == [
        [kind, "mine", n, "sidecar of tag theirs"] for kind in ("returns", "advantages") for n in DATASETS
    ]
    lineage = results.sidecar_lineage("rollouts", "advantages", "mine")
    assert table.rows[3][4] == lineage.inputs["source"][:12]


def test_labels_without_scores_are_reported_as_labels(results):
    """Rates, forced labels and agreement are those of the tag that they were taken from; a threshold, a critic and scores are not known."""
    reports = {report.tag: report for report in label_reports(results)}
    mine, theirs = reports["mine"], reports["n5_q30"]
    assert mine.thresholds == mine.intervals == {} and mine.asked is None
    for taken, source in zip(mine.datasets, theirs.datasets, strict=True):
        assert (taken.positive == source.positive).all()
    [same] = agreements([theirs, mine])
    assert same.equal == 1.0
    assert "mine" in {row[0] for row in label_tables.forced_table([mine]).rows}
    assert not label_tables.labels_table([mine]).rows and not label_tables.score_labels_table(results, [mine]).rows
    assert not any("same score" in notice.text for notice in warnings(results, [mine]))
    assert "mine" not in {histogram.title for histogram in series.advantage_histograms(results)}
    assert "mine" in {rates.tag for rates in series.positive_rates(results)}
