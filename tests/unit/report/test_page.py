"""The report of a finished experiment, of parts of one, and of results that do not belong together."""

import base64
import dataclasses
import html
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from recap_steam.config import load_experiment
from recap_steam.dataset.episodes import index_stage
from recap_steam.errors import UserError
from recap_steam.report import critic_scores, document, label_tables, page, predicted_returns, provenance, series, tables
from recap_steam.report.groups import frame_groups
from recap_steam.report.label_report import label_reports
from recap_steam.report.results import Results
from recap_steam.report.verdict import summarise
from tests.datasets import image, write_v21
from tests.experiments import CAMERA, LOGS, RESULTS, RUN_TIMES, K, config_of, small_config

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/build_report.py"
FIGURES = (
    *("success.png", "critic_evaluation.png", "predicted_returns.png", "critic_training.png", "values.png", "ensemble_training.png"),
    *("advantages.png", "positive_rate.png", "positive_rate_over_time.png", "policy_training.png", "guidance.png"),
)


@pytest.fixture
def here(finished, tmp_path, monkeypatch):
    """A copy of the finished experiment that a test may damage, as the working directory."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def results(finished, monkeypatch) -> Results:
    monkeypatch.chdir(finished)
    return Results(load_experiment(small_config()), RESULTS)


def build(config: dict, folder) -> str:
    times = [file for file in RUN_TIMES if Path(file).stem in (*config.get("critics", ()), *config.get("policies", ()))]
    page.report_stage(load_experiment(config), RESULTS, RESULTS / "rule_graph.dot", LOGS, times, folder)
    return (folder / "index.html").read_text()


def sections(page_text: str) -> list[str]:
    return re.findall(r"<h2 id[^>]*>([^<]+)", page_text)


@pytest.fixture(scope="module")
def built(finished, tmp_path_factory) -> tuple[Path, str]:
    """The report as the rule's command builds it: its folder, and what the command printed."""
    root = tmp_path_factory.mktemp("built")
    shutil.copytree(finished, root, dirs_exist_ok=True)
    arguments = ["--config", json.dumps(small_config()), "--results", RESULTS, "--rule-graph", RESULTS / "rule_graph.dot"]
    arguments += ["--logs-dir", LOGS, "--run-times", *RUN_TIMES, "--output-dir", RESULTS / "report"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return root / RESULTS / "report", done.stdout


def test_page_holds_everything(built):
    folder, _ = built
    text = (folder / "index.html").read_text()
    plots = len(list(Path(folder.parent, "diagnostics").rglob("*.png")))
    assert text.count("<img") == len(FIGURES) + plots
    assert [text.count(f'<img src="data:image/{kind};base64,') for kind in ("png", "webp")] == [len(FIGURES), plots]
    assert all(link.startswith(("#", "data:")) for link in re.findall(r'(?:href|src)="([^"]+)"', text))
    assert "http" not in text and "<script" not in text and "@import" not in text and "url(" not in text
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FIGURES, "index.html", "summary.txt"])
    for name in FIGURES:
        assert matplotlib.image.imread(folder / name).std() > 0.01  # something is drawn


def test_embedded_figures_are_the_figures(built):
    kind, _, data = document.embedded(built[0] / "success.png", exact=True).partition(",")
    assert kind == "data:image/png;base64" and base64.b64decode(data) == (built[0] / "success.png").read_bytes()
    _, _, data = document.embedded(built[0] / "success.png", exact=False).partition(",")
    with Image.open(io.BytesIO(base64.b64decode(data))) as shown, Image.open(built[0] / "success.png") as drawn:
        assert shown.size == drawn.size
        assert np.abs(np.asarray(shown, float) - np.asarray(drawn.convert("RGB"), float)).mean() < 2


def test_summary_is_printed_and_kept(built):
    folder, printed = built
    summary = (folder / "summary.txt").read_text()
    assert printed.strip() == summary.strip()
    (sentence,) = re.findall(r"^\* (paired: recap, guidance 2 solved .*)$", summary, re.MULTILINE)
    text = (folder / "index.html").read_text()
    assert html.escape(sentence) in text and 'class="warnings"' not in text
    for shown in ("value: MAE 0.081 held out", "the critic over-fits."):
        assert shown in text and shown in summary


def test_same_results_give_the_same_bytes(built, here):
    build(small_config(), RESULTS / "again")
    for name in (*FIGURES, "index.html", "summary.txt"):
        assert (RESULTS / "again" / name).read_bytes() == (built[0] / name).read_bytes(), name


def test_experiment_of_returns_only(here):
    config = {key: value for key, value in small_config().items() if key in ("experiment", "datasets", "returns")}
    page_text = build(config, here / "report")
    assert all((here / "report" / name).exists() for name in FIGURES)  # declared outputs, though there is nothing to show
    assert "<img" not in page_text and sections(page_text) == ["Data", "Workflow", "Lineage"]


@pytest.mark.parametrize("critic", ["value", "progress"])
def test_either_method_alone(here, critic):
    page_text = build(config_of(critic), here / "report")
    other = {"value": ("progress", "steam"), "progress": ("value", "recap", "n5_q30", "shuffled")}[critic]
    cells = re.findall(r"<t[dh][^>]*>([^<]*)", page_text)
    assert critic in cells and not {*other} & {*cells}
    assert all((here / "report" / name).exists() for name in FIGURES)


def test_demonstrations_without_outcome_are_noted(tmp_path):
    path = write_v21(tmp_path / "data", [4, 5])
    experiment = load_experiment({"experiment": "noted", "datasets": {"demonstrations": {"path": str(path), "type": "sft"}}})
    index_stage(experiment, "demonstrations", tmp_path / "episodes/demonstrations.parquet")
    [row] = provenance.data_table(Results(experiment, tmp_path)).rows
    assert row[-1] == "no column 'is_success': all count as successes"


def test_what_is_not_computed_yet_is_left_out(here):
    shutil.rmtree(RESULTS / "evaluations")
    shutil.rmtree(RESULTS / "policies")
    page_text = build(small_config(), here / "report")
    assert sections(page_text) == ["Rounds", "Critic", "Labels", "Data", "Workflow", "Lineage"]


def test_the_expert_can_be_an_arm(here):
    arms = RESULTS / "evaluations/paired"
    shutil.copyfile(arms / "start_plain.parquet", arms / "expert_plain.parquet")
    config = small_config()
    config["evaluations"]["paired"]["policies"].append("expert")
    build(config, here / "report")
    assert re.search(r"^\* paired: expert solved ", (here / "report/summary.txt").read_text(), re.MULTILINE)


def test_labels_without_their_threshold_file_are_shown(here):
    shutil.rmtree(RESULTS / "thresholds")
    assert "n5_q30" in build(small_config(), here / "report")


def test_arms_on_other_initial_states_are_refused(here):
    path = RESULTS / "evaluations/paired/recap_w1.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "seed", [np.arange(50)]), path)
    with pytest.raises(UserError, match="recap, guidance 1 and start were run on different initial states"):
        build(small_config(), here / "report")
    assert not (here / "report/index.html").exists()


def test_an_arm_that_stopped_early_has_a_part_of_the_states_where_arms_may_stop(here):
    path = RESULTS / "evaluations/paired/recap_w2.parquet"
    pq.write_table(pq.read_table(path).slice(0, 25), path)
    with pytest.raises(UserError, match="recap, guidance 2 and start were run on different initial states"):
        Results(load_experiment(small_config()), RESULTS).arms("paired")
    config = small_config()
    config["evaluations"]["paired"]["stop_below"] = 0.01
    arms = {arm.label: arm for arm in Results(load_experiment(config), RESULTS).arms("paired")}
    assert len(arms["recap, guidance 2"].success) == 25 and len(arms["start"].success) == 50
    assert all(arm.may_stop for arm in arms.values())


def test_changed_dataset_is_refused(here):
    for folder in ("data", "meta/episodes"):
        (path,) = (here / "data/rollouts" / folder).rglob("*.parquet")
        pq.write_table(pq.read_table(path, filters=[("episode_index", "!=", 4)]), path)
    with pytest.raises(UserError, match="rollouts changed since it was indexed: episodes removed: 4"):
        build(small_config(), here / "report")


def test_shown_episodes_are_the_first_of_each_outcome(results):
    episodes = results.episodes("heldout")
    success, failure = series.value_curves(results)["value"]
    for curve, outcome in ((success, True), (failure, False)):
        first = episodes.episode_index[np.flatnonzero(episodes.success == outcome)[0]]
        assert curve.title == f"{'success' if outcome else 'failure'}, heldout episode {first}"
    assert success.target[-1] == 0 and failure.target.min() >= -1


def test_predictions_are_those_of_all_held_out_frames(results):
    panels = {panel.title: panel for panel in predicted_returns.predicted_returns(results)}
    assert list(panels) == ["value, held out: all frames", "value, held out: successes", "value, held out: failures"]
    pooled, success, failure = panels.values()
    assert np.array_equal(pooled.value, results.sidecar("heldout", "values", "value", ["value"]).columns["value"])
    assert len(pooled.value) == len(success.value) + len(failure.value)
    assert success.target.max() == 0 and failure.target.max() <= -40 / 79 and pooled.target.min() >= -1


def test_frames_above_the_curve_are_those_of_its_steps(results):
    for curve in series.value_curves(results)["value"]:
        episode = int(curve.title.rpartition(" ")[2])
        drawn = [image(episode, step, size=(16, 16)) for step in curve.frame_steps]
        assert np.array_equal(curve.frames, drawn)
        assert curve.frame_steps[[0, -1]].tolist() == [0, len(curve.value) - 1]


def test_frames_are_of_the_first_camera_that_the_robot_has(results):
    config = small_config()
    config["camera_maps"] = {"one_arm": {"wrist": None, "front": CAMERA}}
    config["datasets"]["heldout"]["camera_map"] = "one_arm"
    config["critics"]["value"]["cameras"] = ["wrist", "front"]
    mapped = series.value_curves(Results(load_experiment(config), RESULTS))["value"]
    for curve, plain in zip(mapped, series.value_curves(results)["value"], strict=True):
        assert np.array_equal(curve.frames, plain.frames)


def test_groups_of_frames_are_disjoint_and_complete(results):
    for dataset, kind in (("demonstrations", "sft"), ("rollouts", "rollout")):
        groups = frame_groups(kind, results.episodes(dataset))
        assert np.array_equal(sum(mask.astype(int) for mask in groups.values()), np.ones(results.episodes(dataset).num_frames))


def test_positive_rates_are_those_of_the_labels(results):
    rates, *_ = series.positive_rates(results)
    labels = results.sidecar("rollouts", "advantages", "n5_q30", ["advantage"]).columns["advantage"]
    shares = [share * frames for (dataset, _), (share, frames) in rates.rates.items() if dataset == "rollouts"]
    assert sum(shares) == pytest.approx(labels.sum())
    assert rates.rates["rollouts", "intervention"][0] == 1.0
    assert label_tables.labels_table(label_reports(results)).rows[0][-1] == tables.percent(labels.mean())


def test_stage_table_states_what_feeds_what(results):
    rows = {row[0]: row[1:] for row in provenance.stage_table(results).rows}
    none = tables.MISSING
    assert rows["heldout"] == ["given", none, "value, progress", none, none, none]
    assert [row[1] for row in rows.values()] == ["value, progress", "value", none]
    assert rows["demonstrations"][3:5] == ["n5_each", "n5_q30, n5_each, steam_q40"]  # the others take their threshold from rollouts only
    assert rows["rollouts"][3] == "n5_q30, n5_each, steam_q40"
    assert rows["rollouts"][-1] == "filtered (successes and interventions), recap, steam, shuffled"


def test_critic_stands_beside_its_baselines(results):
    mae = {row[1]: row[3] for row in critic_scores.critic_table(results).rows}
    expected = {
        "critic, held out": "0.081",
        "time only, held out": "0.177",
        "constant, held out": "0.240",
        "critic, training frames": "0.060",
    }
    assert mae == expected


def test_outcomes_stand_beside_the_same_baselines(results):
    table = critic_scores.group_table(results, "outcome")
    columns = [table.head.index(name) for name in ("MAE, normalised return", "MAE, time only", "MAE, constant")]
    assert {row[1]: [row[column] for column in columns] for row in table.rows} == {
        "failure": ["0.100", "0.200", "0.300"],
        "success": ["0.060", "0.150", "0.180"],
    }
    assert critic_scores.group_table(results, "task").rows == []  # there is one task only


def test_controls_are_marked_in_table_and_figure(results):
    summaries = summarise(results.arms("paired"), fps=16)
    marked = [row[0] for row in tables.success_table(summaries).rows if row[0].endswith("(control)")]
    assert marked == ["shuffled, guidance 1 (control)", "shuffled, guidance 2 (control)"]
    assert [point.label for point in series.arm_points(summaries) if point.control] == ["shuffled, guidance 1", "shuffled, guidance 2"]


def test_score_labels_state_what_was_asked_and_what_came_out(results):
    (row,) = label_tables.score_labels_table(results, label_reports(results)).rows
    labels = {name: results.sidecar(name, "advantages", "steam_q40", ["advantage"]) for name in ("demonstrations", "rollouts")}
    threshold = results.thresholds("steam_q40")["rollout"]
    rates = [
        np.concatenate([sidecar.columns["advantage"] for sidecar in labels.values()]).mean(),
        labels["rollouts"].columns["advantage"].mean(),
    ]
    none = tables.MISSING
    assert row[:7] == ["steam_q40", "progress", str(K), "quantile", "40 %", none, "none"]
    assert [row[7], *row[9:]] == [tables.number(threshold), none, none, *map(tables.percent, rates)]
    low, _, high = row[8].partition(" to ")
    assert float(low) < threshold < float(high)


def test_task_texts_are_taken_as_they_are(here):
    path = RESULTS / "critics/value/evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eval/mae/task=open a/b=c": 0.5}))
    [row] = critic_scores.group_table(Results(load_experiment(small_config()), RESULTS), "task").rows
    assert row[1] == "open a/b=c" and "0.500" in row


@pytest.mark.parametrize(
    ("held_out", "training", "end"),
    [
        (0.081, 0.06, "gap +0.021 (26 % of the held-out error): the critic over-fits."),
        (0.081, 0.07, "gap +0.011 (14 % of the held-out error): the gap is small."),
        (0.05, 0.06, "gap -0.010 (held out no worse): the gap is small."),
        (0.0, 0.0, "gap +0.000 (held out no worse): the gap is small."),
    ],
)
def test_over_fitting_is_said_in_a_sentence(here, held_out, training, end):
    metrics = {"eval/mae": held_out, "eval_train/mae": training, "gap/mae": held_out - training}
    (RESULTS / "critics/value/evaluation.json").write_text(json.dumps(metrics))
    (sentence,) = critic_scores.gap_sentences(Results(load_experiment(small_config()), RESULTS))
    assert sentence == f"value: MAE {held_out:.3f} held out, {training:.3f} on training frames, {end}"


def test_warnings_stand_at_the_head(here):
    path = RESULTS / "critics/value/evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eval/mae": 0.2}))
    text, summary = build(small_config(), here / "report"), (here / "report/summary.txt").read_text()
    warning = "Critic value: held-out MAE 0.200 is no better than the 0.177 of a predictor that knows only the time."
    assert "<h2>1 warning</h2>" in text and warning in text.partition("<h2 id=")[0]
    assert f"* warning: {warning} Labels from such a critic" in summary.partition("Evaluation: ")[0]


def test_critic_curves_are_the_metrics_of_each_tenth(results):
    (curves,) = critic_scores.critic_curves(results)
    assert np.allclose(curves.value, -1 + np.arange(10) / 10) and np.allclose(curves.target, -0.9 + np.arange(10) / 11)
    assert np.allclose(curves.success_auc["critic, held out"], 0.6 + np.arange(10) / 30)
    assert np.allclose(curves.success_auc["time only, held out"], 0.5)


def test_a_critic_without_held_out_data_has_no_curves_and_no_judgement(here):
    (RESULTS / "critics/value/evaluation.json").write_text(json.dumps({"eval_train/mae": 0.06, "eval_train/loss": 3.0}))
    text = build(small_config(), here / "report")
    assert "Calibration and success" not in text and "over-fits." not in text and "critic, training frames" in text


def test_learning_curves_show_held_out_beside_training_frames(results):
    panels = {panel.title: [curve.label for curve in panel.curves] for panel in series.training_panels(results, "critics")}
    assert panels["loss"] == ["value, held out", "value, training frames"]
    assert panels["error"] == ["value, held out", "value, training frames", "value, time only"]
    assert "training loss by branch" in {panel.title for panel in series.training_panels(results, "policies")}


def test_policies_state_their_start_and_what_each_branch_saw(results):
    starts = {row[0]: row[2] for row in tables.policy_table(results).rows}
    assert starts == dict.fromkeys(("start", "filtered", "recap", "steam", "shuffled"), "random weights")
    labels = [row[1] for row in tables.policy_table(results).rows]
    assert labels == ["none", "none", "n5_q30", "steam_q40", "n5_q30, control: labels shuffled"]
    rows = tables.branch_table(results).rows
    assert rows[:3] == [  # imitation has no branches
        ["recap", "positive, indicator shown", "2,800", "28 %", "0.228"],
        ["recap", "positive, indicator dropped", "1,200", "12 %", "0.212"],
        ["recap", "negative, plain prompt", "6,000", "60 %", "0.260"],
    ]
    assert [row[-1] for row in tables.policy_table(results).rows] == [tables.MISSING] * 2 + ["training frames"] * 3


def test_start_of_training_is_the_policy_or_the_base(results):
    policy = results.experiment.policies["recap"]
    base = dataclasses.replace(policy, model=dataclasses.replace(policy.model, pretrained_path="weights/pi05_base"))
    assert tables.starts_from(base) == "base pi05_base"
    assert tables.starts_from(dataclasses.replace(policy, init_from="start")) == "policy start"


def test_branch_loss_is_over_samples_not_steps(here):
    rows = [{"step": step, "train/loss": 1.0} for step in range(1, 101)]
    rows[98] |= {"train/count_positive_conditional": 9, "train/loss_positive_conditional": 1.0}
    rows[99] |= {"train/count_positive_conditional": 1, "train/loss_positive_conditional": 2.0}
    (RESULTS / "policies/recap/metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    row, *_ = tables.branch_table(Results(load_experiment(small_config()), RESULTS)).rows
    assert row[2:] == ["10", "100 %", "1.100"]


def test_lineage_of_every_artefact(results):
    lineages = results.lineages()
    kinds = {"index_dataset": 3, "compute_returns": 3, "compute_values": 3, "compute_scores": 3, "compute_advantages": 6}
    kinds |= {"train_critic": 1, "train_member": 2, "merge_ensemble": 1, "compute_threshold": 3, "train_policy": 5, "evaluate_policy": 8}
    assert {stage: sum(item.stage == stage for item in lineages.values()) for stage in kinds} == kinds


def test_needs_neither_torch_nor_lerobot():
    code = "import sys, recap_steam.report.page, recap_steam.report.catalogue; print({'torch', 'lerobot'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
