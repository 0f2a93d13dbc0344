"""The drawing of the workflow's rules: every edge that Snakemake states, each rule once, cycles and shortcuts told apart."""

import re

import pytest

from recap_steam.report.rule_graph import BOX, draw_rule_graph, read_rule_graph
from recap_steam.report.run_times import RunTime, by_job, by_rule, duration, notes, read_run_times
from tests.experiments import RULE_GRAPH

EDGES = {
    ("train_policy", "build_report"),
    ("index_dataset", "build_report"),
    ("index_dataset", "train_policy"),
    ("collect_dataset", "index_dataset"),
    ("train_policy", "collect_dataset"),
}


def test_targets_are_left_out_and_nothing_else():
    graph = read_rule_graph(RULE_GRAPH)
    assert graph.rules == ["build_report", "train_policy", "index_dataset", "collect_dataset"] and graph.edges == EDGES


def test_every_edge_is_drawn_once():
    drawing = draw_rule_graph(read_rule_graph(RULE_GRAPH), {"train_policy": "7 jobs, 26 min"})
    drawn = re.findall(r'<path class="(\w*)" data-edge="(\w+) (\w+)"', drawing)
    assert sorted((start, end) for _, start, end in drawn) == sorted(EDGES)
    kinds = {(start, end): kind for kind, start, end in drawn}
    assert kinds["train_policy", "collect_dataset"] == "back"  # a policy that collects data
    assert kinds["index_dataset", "build_report"] == "implied"  # by way of the policy
    assert "7 jobs, 26 min" in drawing and drawing.count("<rect") == 4


def test_lines_run_downwards_between_boxes_that_do_not_overlap():
    drawing = draw_rule_graph(read_rule_graph(RULE_GRAPH), {})
    tops = [tuple(map(int, box)) for box in re.findall(r'<rect x="(\d+)" y="(\d+)"', drawing)]
    assert all(abs(x - u) >= BOX[0] or abs(y - v) >= BOX[1] for n, (x, y) in enumerate(tops) for u, v in tops[n + 1 :])
    for kind, start, end in re.findall(r'class="(\w*)" data-edge="[^"]*" d="M\d+ (\d+)C.* (\d+)"/>', drawing.replace("/><", "/>\n<")):
        assert (int(start) < int(end)) == (kind != "back")


def test_no_rules_no_drawing():
    assert draw_rule_graph(read_rule_graph(""), {}) == ""


def test_run_times_are_read_where_they_are(tmp_path):
    (tmp_path / "train_policy").mkdir()
    (tmp_path / "train_policy/recap.tsv").write_text("s\th:m:s\tmax_rss\n10.0\t0:00:10\t1024.0\n")
    (tmp_path / "compute_values").mkdir()
    (tmp_path / "compute_values/value@data").mkdir()
    (tmp_path / "compute_values/value@data/meta.tsv").write_text("s\th:m:s\tmax_rss\n0.4\t0:00:00\t-\n")
    files = ["train_policy/recap.tsv", "train_policy/deleted.tsv", "compute_values/value@data/meta.tsv"]
    assert read_run_times(tmp_path, files) == [
        RunTime("train_policy", "recap", 10.0, 1024.0),
        RunTime("compute_values", "value@data", 0.4, None),
    ]


def test_jobs_of_a_rule_are_summed():
    times = [RunTime("train_policy", "a", 3600, 2048), RunTime("train_policy", "b", 1800, 1024), RunTime("cache_frames", "c", 2, None)]
    assert by_rule(times).rows == [
        ["train_policy", "2", "90 min", "60 min", "2.0"],
        ["cache_frames", "1", "2 s", "2 s", "\N{EN DASH}"],
    ]
    assert notes(times) == {"train_policy": "2 jobs, 90 min", "cache_frames": "1 job, 2 s"}
    assert by_job(times).rows[1] == ["train_policy", "b", "30 min", "1.0"]


@pytest.mark.parametrize(("seconds", "text"), [(0.3, "0 s"), (99, "99 s"), (100, "2 min"), (6000, "1 h 40 min"), (90000, "25 h 00 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text
