"""What the report says of labels: rates over time, forced labels, intervals, agreement, and the warnings."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from recap_steam.config import load_experiment
from recap_steam.report import label_tables, label_warnings
from recap_steam.report.label_report import LabelledDataset, LabelReport, agreements, label_reports
from recap_steam.report.label_statistics import agreement, threshold_interval
from recap_steam.report.results import Results
from tests.experiments import RESULTS, small_config


@pytest.fixture
def results(finished, monkeypatch) -> Results:
    monkeypatch.chdir(finished)
    return Results(load_experiment(small_config()), RESULTS)


@pytest.fixture
def reports(results) -> dict[str, LabelReport]:
    return {report.tag: report for report in label_reports(results)}


def test_rates_over_time_are_those_of_the_labels(results, reports):
    (data,) = reports["n5_q30"].rollouts()
    labels = results.sidecar("rollouts", "advantages", "n5_q30", ["advantage"]).columns["advantage"]
    _, frame = data.episodes.frame_keys()
    length = np.repeat(data.episodes.length, data.episodes.length)
    failure = ~data.episodes.row_success()
    for tenth, rate in enumerate(data.rates(failure)):
        inside = failure & (frame * 10 >= tenth * length) & (frame * 10 < (tenth + 1) * length)
        assert rate == pytest.approx(labels[inside].mean())


def test_an_episode_shorter_than_ten_frames_leaves_tenths_empty(reports):
    (data,) = reports["n5_q30"].rollouts()
    nothing = data.rates(np.zeros(len(data.positive), bool))
    assert np.isnan(nothing).all()
    drawn = label_tables.rates_over_time(list(reports.values()))
    assert [list(tag.rows) for tag in drawn] == [["demonstrations, demonstration", "rollouts, success", "rollouts, failure"]] * 3


def test_forced_labels_are_what_the_threshold_did_not_make(reports):
    rows = {tuple(row[:2]): row[2:] for row in label_tables.forced_table(list(reports.values())).rows}
    (data,) = reports["n5_q30"].rollouts()
    above = data.score >= reports["n5_q30"].thresholds["rollout"]
    forced = data.intervention & ~above
    shares = [data.intervention.mean(), above.mean(), forced.mean(), (above | data.intervention).mean()]
    assert forced.any()
    assert rows["n5_q30", "rollouts"] == [f"{len(above):,}", *(f"{100 * share:.0f} %" for share in shares)]


@pytest.mark.parametrize(
    ("tag", "pools"), [("n5_q30", ["rollout"]), ("n5_each", ["demonstrations", "rollouts"]), ("steam_q40", ["rollout"])]
)
def test_intervals_hold_the_thresholds_of_their_pools(reports, tag, pools):
    report = reports[tag]
    assert list(report.intervals) == list(report.thresholds) == pools
    for pool, (low, high) in report.intervals.items():
        assert low <= report.thresholds[pool] <= high and low < high


def test_a_given_threshold_has_no_interval(finished, monkeypatch):
    monkeypatch.chdir(finished)
    config = small_config()
    config["advantages"]["steam_q40"] = {
        "critic": "progress",
        "datasets": ["rollouts"],
        "label_mode": "threshold",
        "positive_threshold": 0.1,
    }
    (report,) = [report for report in label_reports(Results(load_experiment(config), RESULTS)) if report.tag == "steam_q40"]
    assert report.intervals == {} and report.asked is None


def test_episodes_are_drawn_whole_and_quantiles_are_numpys(monkeypatch):
    rng = np.random.default_rng(1)
    scores, episode = rng.normal(size=90), np.repeat(np.arange(9), 10)
    expected, draws = [], np.random.default_rng(0)
    for _ in range(200):
        chosen = draws.integers(9, size=9)
        expected.append(np.percentile(np.concatenate([scores[episode == number] for number in chosen]), 70))
    halves = [(scores[:50], episode[:50]), (scores[50:], episode[50:] - 5)]  # two datasets that count their own episodes
    assert threshold_interval(halves, 0.3) == pytest.approx(tuple(np.percentile(expected, [2.5, 97.5])))


def test_agreement_beyond_chance():
    first, second = np.array([True] * 6 + [False] * 4), np.array([True] * 4 + [False] * 6)
    assert agreement(first, second) == pytest.approx((0.8, (0.8 - 0.48) / 0.52))
    assert agreement(first, first) == (1.0, 1.0)
    equal, kappa = agreement(np.ones(5, bool), np.ones(5, bool))
    assert equal == 1.0 and np.isnan(kappa)


def test_tags_are_compared_where_nothing_is_forced(reports):
    found = agreements(list(reports.values()))
    assert [(item.first, item.second) for item in found] == [("n5_q30", "n5_each"), ("n5_q30", "steam_q40"), ("n5_each", "steam_q40")]
    one, two = (reports[tag].rollouts()[0] for tag in ("n5_q30", "steam_q40"))
    free = ~one.intervention
    assert found[1].frames == free.sum() and found[1].equal == (one.positive == two.positive)[free].mean()
    assert label_tables.agreement_table(list(reports.values())).rows[0][1] == "same"


# Warnings. The finished experiment's labels are changed into what deserves one.


def texts(notices) -> list[str]:
    assert all(notice.remedy for notice in notices)
    return [notice.text for notice in notices]


def with_labels(report: LabelReport, **changes) -> LabelReport:
    """The report with other arrays for its rollouts."""
    datasets = [dataclasses.replace(data, **changes) if data.type == "rollout" else data for data in report.datasets]
    return dataclasses.replace(report, datasets=datasets)


def rollouts(report: LabelReport) -> LabelledDataset:
    return report.rollouts()[0]


def test_labels_in_order_are_not_warned_of(results, reports):
    plain = [reports["n5_q30"], reports["steam_q40"]]
    assert texts(label_warnings.warnings(results, plain)) == []


def test_ends_of_failures_that_are_praised(results, reports):
    data = rollouts(reports["n5_q30"])
    failure_ends = ~data.episodes.row_success() & (data.tenth == 9)
    below = with_labels(reports["n5_q30"], positive=data.positive & ~failure_ends)
    praised = with_labels(reports["n5_q30"], positive=data.positive | failure_ends)
    assert texts(label_warnings.warnings(results, [below])) == []
    (text, *_) = texts(label_warnings.warnings(results, [praised]))
    assert text == "Labels n5_q30: the last tenth of the failures of rollouts is 100 % positive."


def test_nothing_positive(results, reports):
    data = rollouts(reports["n5_q30"])
    nothing = with_labels(reports["n5_q30"], positive=np.zeros_like(data.positive), num_above=0)
    assert "Labels n5_q30: dataset rollouts has no positive frame." in texts(label_warnings.warnings(results, [nothing]))


def test_a_task_without_positive_frames(results, reports):
    data = rollouts(reports["n5_q30"])
    half = len(data.episodes.length) // 2
    first = int(data.episodes.offsets[half])
    two_tasks = dataclasses.replace(
        data.episodes, tasks=["close it", "open it"], task_start=np.array([0, first]), task_code=np.array([0, 1], np.int32)
    )
    positive = data.positive & (np.arange(len(data.positive)) < first)
    report = dataclasses.replace(reports["n5_q30"], datasets=[dataclasses.replace(data, episodes=two_tasks, positive=positive)])
    assert any("open it" in text and "no positive frame" in text for text in texts(label_warnings.warnings(results, [report])))
    assert not any("close it" in text for text in texts(label_warnings.warnings(results, [report])))


def test_equal_scores(results, reports):
    equal = with_labels(reports["n5_q30"], score=np.full_like(rollouts(reports["n5_q30"]).score, 0.25))
    found = texts(label_warnings.warnings(results, [equal]))
    assert any(text.startswith("Labels n5_q30: all ") and text.endswith(" have the same score, 0.25.") for text in found)


@pytest.mark.parametrize(("above", "cause"), [(0.3, "Corrections"), (0.6, "Either many frames share")])
def test_a_rate_far_from_what_was_asked(results, reports, above, cause):
    data = rollouts(reports["n5_q30"])
    frames = np.arange(len(data.positive))
    far = with_labels(reports["n5_q30"], positive=frames < 0.6 * len(frames), num_above=int(above * len(frames)))
    (notice,) = [notice for notice in label_warnings.warnings(results, [far]) if "were asked for" in notice.text]
    assert notice.text.startswith("Labels n5_q30: 60 % of the frames of rollouts are positive, 30 % were asked for")
    assert notice.remedy.startswith(cause)


def test_critics_no_better_than_a_predictor_without_eyes(results, monkeypatch):
    evaluations = {
        "value": {"eval/mae": 0.2, "baseline_time/mae": 0.2, "eval/loss": 4.0, "baseline_time/loss": 3.0},
        "progress": {"eval/accuracy": 0.25, "baseline_majority/accuracy": 0.25},
    }
    monkeypatch.setattr(Results, "evaluations", lambda self, critics: [(tag, evaluations[tag]) for tag in critics])
    assert texts(label_warnings.warnings(results, [])) == [
        "Critic value: held-out MAE 0.200 is no better than the 0.200 of a predictor that knows only the time.",
        "Critic value: held-out loss 4.000 is no better than the 3.000 of a predictor that knows only the time.",
        "Critic progress: held-out bin accuracy 0.250 is no better than 0.250, always the most frequent bin.",
    ]


def test_every_warning_is_in_the_troubleshooting_page():
    """By the words that a reader will search for."""
    page = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text().lower()
    for words in (
        "time-only predictor",
        "most frequent bin",
        "the last tenth of the failures of",
        "the task … has no positive frame",
        "dataset … has no positive frame",
        "the same score",
        "were asked for",
    ):
        assert words in page, words
