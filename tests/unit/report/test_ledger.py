"""The ledger of a policy that is improved over rounds, as a table of the report and as a view of the catalogue."""

import json
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest

from recap_steam.config import load_experiment
from recap_steam.dataset.episodes import index_stage
from recap_steam.report import catalogue, ledger
from recap_steam.report.label_report import label_reports
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING
from recap_steam.report.verdict import summarise
from tests.changes import with_changes
from tests.experiments import RESULTS, small_config, write_arm

TWO_ROUNDS = with_changes(small_config(), {"rounds.recap.count": 2})


@pytest.fixture
def results(finished, tmp_path, monkeypatch) -> Results:
    """Of two rounds, the second of which has no labels yet."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment(TWO_ROUNDS)
    shutil.copytree("data/heldout", "data/rollouts_recap_r2")
    index_stage(experiment, "rollouts_recap_r2", RESULTS / "episodes/rollouts_recap_r2.parquet")
    critic = RESULTS / "critics/value_recap_r2"
    critic.mkdir()
    (critic / "evaluation.json").write_text(json.dumps({"eval/mae": 0.05}))
    for scale in (1, 2):
        write_arm(RESULTS / f"evaluations/paired/recap_r2_w{scale}.parquet", np.ones(50, bool))
    return Results(experiment, RESULTS)


def tables(results: Results) -> dict[str, list[dict[str, str]]]:
    evaluations = {"paired": summarise(results.arms("paired"), fps=16)}
    found = ledger.ledgers(results, evaluations, label_reports(results))
    return {heading: [dict(zip(table.head, row, strict=True)) for row in table.rows] for heading, table in found}


def test_a_row_says_what_a_round_had_and_gave(results):
    found = tables(results)
    assert list(found) == ["recap: paired, guidance 1", "recap: paired, guidance 2"]
    start, first, second = found["recap: paired, guidance 2"]
    assert [row["policy"] for row in (start, first, second)] == ["start", "recap", "recap_r2"]
    assert [row["collected by"] for row in (start, first, second)] == [MISSING, "start", "recap"]
    assert second["new data"] == "rollouts_recap_r2" and second["starts from"] == first["starts from"] == "random weights"
    held_out, rollouts = results.episodes("heldout"), results.episodes("rollouts")
    assert (second["episodes"], second["frames"]) == (f"{len(held_out.length)}", f"{held_out.num_frames:,}")
    assert first["solved there"] == f"{100 * rollouts.success.mean():.0f} %"
    assert [row["learns from, episodes"] for row in (start, first, second)] == ["12", "42", "72"]
    assert [row["critic, held out"] for row in (start, first, second)] == [MISSING, "0.081 (mae)", "0.050 (mae)"]
    positive = next(report for report in label_reports(results) if report.tag == "n5_q30").rollouts()[0].positive
    assert [row["positive, rollouts"] for row in (first, second)] == [f"{100 * positive.mean():.0f} %", MISSING]


def test_success_is_compared_with_the_round_before(results):
    arms = {arm.label: arm for arm in results.arms("paired")}
    start, first, second = tables(results)["recap: paired, guidance 2"]
    gained = 100 * (1 - arms["recap, guidance 2"].success.mean())
    assert start["to the round before, points"] == MISSING
    assert (second["success rate"], second["95 % interval"]) == ("100 %", "93 to 100 %")
    assert second["to the round before, points"] == f"{gained:+.0f}"
    assert first["to the round before, points"] == f"{100 * (arms['recap, guidance 2'].success.mean() - arms['start'].success.mean()):+.0f}"


def test_a_round_that_was_not_evaluated_yet_is_shown(results):
    for path in Path(RESULTS, "evaluations/paired").glob("recap_r2*"):
        path.unlink()
    assert tables(results)["recap: paired, guidance 1"][2]["success rate"] == MISSING


def test_the_view_has_the_same_numbers(results):
    assert catalogue.write_catalogue(results.experiment, RESULTS) == []
    with duckdb.connect(RESULTS / catalogue.FILE_NAME, read_only=True) as connection:
        query = "FROM ledger WHERE round = {} AND guidance_scale IS NOT DISTINCT FROM {}"
        rows = [connection.sql(query.format(*at)).fetchall() for at in ((0, "NULL"), (1, 2), (2, 2))]
        names = connection.sql("FROM ledger").columns
    start, first, second = (dict(zip(names, row, strict=True)) for [row] in rows)
    assert (start["policy"], start["episodes"], start["critic"], start["evaluated"]) == ("start", None, None, 50)
    assert (first["collected_by"], first["critic_held_out"], first["learns_from"]) == ("start", 0.081, ["demonstrations", "rollouts"])
    assert 0 < first["positive_rate"] < 1 and second["positive_rate"] is None
    assert (second["new_data"], second["episodes"], second["successes"]) == ("rollouts_recap_r2", 30, 50)
