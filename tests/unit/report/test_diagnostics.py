"""How critics judged a dataset: the numbers, the figures of usual and unusual judgements, and files that do not belong together."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from recap_steam.config import load_experiment
from recap_steam.dataset.episode_table import Episodes
from recap_steam.errors import UserError
from recap_steam.label_config import DiagnosticsConfig
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.report import diagnostic_figures, diagnostics
from recap_steam.report.advantage_figures import draw_advantage_distribution
from recap_steam.report.chosen import choose
from recap_steam.report.diagnostics import SCORE_FIGURES, diagnostics_stage
from recap_steam.report.episode_curves import episode_curves
from recap_steam.report.episode_figures import draw_episode, key_steps
from recap_steam.report.judgement import EnsembleJudgement, Judgement, Labels, ValueJudgement, load_labels
from recap_steam.report.predicted_returns import PredictedReturns, draw_predicted_returns
from recap_steam.report.results import Results
from recap_steam.report.style import as_written
from recap_steam.schema import with_defaults
from recap_steam.sidecar import read_sidecar
from tests.experiments import RESULTS, K, episodes_of, sidecar, small_config

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/plot_diagnostics.py"
EPISODES, THRESHOLDS = RESULTS / "episodes", RESULTS / "thresholds"
MADE = RESULTS / "diagnostics/steam_q40"


@pytest.fixture
def here(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished experiment that a test may change, as the working directory."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def columns(dataset: str, kind: str, tag: str, *names: str) -> list[np.ndarray]:
    experiment = load_experiment(small_config())
    found = read_sidecar(sidecar(experiment, dataset, f"{kind}_{tag}"), kind, episodes_of(experiment, dataset), list(names))
    return [found.columns[name] for name in names]


def label(tag: str, **labels) -> Labels:
    """Label the rollouts again as ``tag`` does, with other parameters."""
    config = small_config()
    config["advantages"]["again"] = config["advantages"][tag] | labels
    experiment, threshold = load_experiment(config), THRESHOLDS / "again.yaml"
    critic = RESULTS / "critics" / config["advantages"][tag]["critic"]
    threshold_stage(experiment, "again", critic, EPISODES, threshold)
    output = sidecar(experiment, "rollouts", "advantages_again")
    advantages_stage(experiment, "rollouts", "again", critic, EPISODES / "rollouts.parquet", threshold, output)
    return load_labels(experiment, "rollouts", "again", EPISODES / "rollouts.parquet", threshold)


def test_summary_states_what_the_sidecars_hold(here):
    summary = json.loads((MADE / "rollouts/summary.json").read_text())
    fragment, episodes = read_fragment(THRESHOLDS / "steam_q40.yaml"), episodes_of(load_experiment(small_config()), "rollouts")
    score, positive = columns("rollouts", "advantages", "steam_q40", "ensemble_signed_score", "advantage")
    (members,) = columns("rollouts", "scores", "progress", "member_values")
    expected = {
        **{"dataset": "rollouts", "tag": "steam_q40", "label_mode": "quantile", "rollout_quantile": 0.4, "ensemble_size": 2, "k": K},
        **{"positive_threshold": fragment["thresholds"]["rollout"], "critic_digest": fragment["critic_digest"]},
        **{"total_anchors": len(score), "num_episodes": 30, "num_positive": int(positive.sum()), "without_look_ahead": 0},
        "dataset_fingerprint": episodes.fingerprint,
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["positive_rate"] == pytest.approx(positive.mean())
    assert summary["stats"]["mean"] == pytest.approx(score.mean()) and summary["stats"]["p50"] == np.median(score)
    assert summary["variance"]["mean"] == pytest.approx(members.var(1).mean())
    failures = ~episodes.row_success() & ~episodes.interventions()
    assert summary["groups"]["failure"]["num_positive"] == positive[failures].sum()
    by_episode = [members[start:stop].var(1).mean() for start, stop in zip(episodes.offsets[:-1], episodes.offsets[1:], strict=True)]
    assert summary["least_sure_episodes"] == episodes.episode_index[np.argsort(by_episode)[::-1][:5]].tolist()


def test_demonstrations_that_are_all_positive_show_the_threshold_of_rollouts(here):
    summary, rollouts = (json.loads((MADE / name / "summary.json").read_text()) for name in ("demonstrations", "rollouts"))
    assert summary["positive_threshold"] == rollouts["positive_threshold"]
    assert summary["positive_rate"] == 1.0 and list(summary["groups"]) == ["demonstration"]


def test_members_are_shown_on_the_scale_of_the_labels(here):
    """With a baseline, the worst member is the advantage that was compared with the threshold."""
    labels = label("steam_q40", subtract_baseline=True, baseline_lookahead=2)
    (bins,) = columns("rollouts", "scores", "progress", "member_expected_bins")
    (advantage,) = columns("rollouts", "advantages", "again", "advantage_continuous")
    assert labels.fragment["baseline_bin"] == 2
    assert np.array_equal(labels.judgement.members, (bins - 2) / 2)
    assert np.array_equal(labels.judgement.members.min(1), advantage)


@pytest.mark.parametrize(("tag", "pool"), [("n5_q30", "rollout"), ("n5_each", "rollouts")])
def test_labels_by_values_are_shown_with_what_they_came_from(here, tag, pool):
    experiment = load_experiment(small_config())
    labels = load_labels(experiment, "rollouts", tag, EPISODES / "rollouts.parquet", THRESHOLDS / f"{tag}.yaml")
    judgement, critic = labels.judgement, Results(experiment, RESULTS)
    value, returns = columns("rollouts", "values", "value", "value") + columns("rollouts", "returns", "fail40", "return")
    episodes = judgement.episodes
    assert np.array_equal(judgement.value, value.astype(np.float64))
    assert np.array_equal(judgement.target, critic.normalizer("value").normalize(returns, episodes.prompt_codes(), episodes.tasks))
    threshold = labels.fragment["thresholds"][pool]
    assert judgement.thresholds == {"threshold": threshold} and set(judgement.threshold) == {threshold}
    assert np.array_equal(judgement.positive, judgement.reached | episodes.interventions())
    assert np.array_equal(judgement.reached, judgement.score >= threshold)


def test_labels_by_values_have_the_same_numbers(here):
    folder = RESULTS / "diagnostics/n5_q30/rollouts"
    summary, fragment = json.loads((folder / "summary.json").read_text()), read_fragment(THRESHOLDS / "n5_q30.yaml")
    (positive,) = columns("rollouts", "advantages", "n5_q30", "advantage")
    assert summary["positive_threshold"] == fragment["thresholds"]["rollout"] and summary["num_positive"] == positive.sum()
    assert {path.name for path in folder.iterdir()} == {"advantage_distribution.png", "summary.json", "episodes"}


def test_every_task_has_its_threshold(here):
    labels = label("n5_q30", pool="per_task")
    assert labels.judgement.thresholds == {"threshold": labels.fragment["thresholds"]["open the drawer"]}
    assert len(labels.judgement.threshold) == labels.judgement.episodes.num_frames


def test_episodes_are_chosen_evenly_by_outcome_and_over_the_dataset():
    success = np.arange(200) % 4 > 0
    chosen = choose(success, DiagnosticsConfig(num_episodes=8, seed=0))
    assert (np.diff(chosen) > 0).all() and success[chosen].sum() == 4
    assert all(chosen[success[chosen] == outcome][0] < 100 < chosen[success[chosen] == outcome][-1] for outcome in (True, False))
    assert np.array_equal(chosen, choose(success, DiagnosticsConfig(8, 0)))
    assert not np.array_equal(chosen, choose(success, DiagnosticsConfig(8, 1)))


@pytest.mark.parametrize(
    ("success", "wanted", "counts"),
    [
        ([True] * 9, 4, (4, 0)),
        ([False] * 9, 4, (0, 4)),
        ([True] * 9 + [False], 4, (3, 1)),
        ([False] * 9 + [True], 4, (1, 3)),
        ([True, False, False], 10, (1, 2)),
        ([True, False], 1, (1, 0)),
    ],
)
def test_where_an_outcome_is_rare_the_other_fills_up(success, wanted, counts):
    chosen = choose(np.array(success), DiagnosticsConfig(wanted, 0))
    assert (int(np.array(success)[chosen].sum()), int((~np.array(success)[chosen]).sum())) == counts
    assert len(set(chosen.tolist())) == len(chosen)


def test_key_frames_are_spread_over_the_episode():
    assert [key_steps(length) for length in (1, 2, 4, 101)] == [[0], [0, 1], [0, 1, 2, 3], [0, 25, 50, 75, 100]]


def test_figures_are_drawn_by_the_command_to_the_same_bytes(here):
    sections = ("datasets", "camera_maps", "critics", "advantages", "diagnostics")
    parts = {name: part for name, part in with_defaults(small_config()).items() if name in sections}
    Path("again/episodes").mkdir(parents=True)
    Path("again/episodes/episode_000099.png").write_bytes(b"of an earlier choice")
    arguments = ["--config", json.dumps(parts), "--dataset", "rollouts", "--tag", "steam_q40", "--output-dir", "again"]
    arguments += ["--episodes", str(EPISODES / "rollouts.parquet"), "--threshold", str(THRESHOLDS / "steam_q40.yaml")]
    subprocess.run([sys.executable, SCRIPT, *arguments], cwd=here, check=True)
    made = [path.relative_to(MADE / "rollouts") for path in (MADE / "rollouts").rglob("*.*")]
    assert len(made) == len(SCORE_FIGURES) + 2  # an episode, and the numbers
    assert sorted(path.relative_to("again") for path in Path("again").rglob("*.*")) == sorted(made)
    assert [(Path("again") / name).read_bytes() for name in made] == [(MADE / "rollouts" / name).read_bytes() for name in made]


def test_labels_of_another_threshold_are_refused(here):
    experiment, path = load_experiment(small_config()), THRESHOLDS / "steam_q40.yaml"
    path.write_text(path.read_text() + "# touched\n")
    with pytest.raises(UserError, match=r"advantages_steam_q40.parquet: .*threshold"):
        diagnostics_stage(experiment, "rollouts", "steam_q40", EPISODES / "rollouts.parquet", path, Path("plots"))
    assert not Path("plots").exists()


def judgement(lengths: list[int], members: int, spread: float) -> EnsembleJudgement:
    scores = spread * np.random.default_rng(0).normal(size=(sum(lengths), members))
    judged = judged_by(lengths, scores.min(1), "worst-of-N score")
    return EnsembleJudgement(**vars(judged), members=scores)


def valued(lengths: list[int], spread: float) -> ValueJudgement:
    value, target = -np.abs(spread * np.random.default_rng(0).normal(size=(2, sum(lengths))))
    return ValueJudgement(**vars(judged_by(lengths, value - target, "advantage, normalised return")), value=value, target=target)


def judged_by(lengths: list[int], score: np.ndarray, quantity: str) -> Judgement:
    """Every other episode succeeds, episodes have every seventh index, frames are positive above 0, the first also by another rule."""
    success, rows = np.arange(len(lengths)) % 2 == 0, np.arange(len(score))
    starts = np.cumsum([0, *lengths])[:-1]
    episodes = Episodes(
        dataset="data",
        episode_index=7 * np.arange(len(lengths)),
        length=np.array(lengths),
        success=success,
        digest=[""] * len(lengths),
        tasks=["open the drawer"],
        task_start=starts,
        task_code=np.zeros(len(lengths), np.int32),
        intervention_span=np.array([[0, 1]]),
    )
    groups = {group: mask for group, mask in (("success", episodes.row_success()), ("failure", ~episodes.row_success())) if mask.any()}
    return Judgement(
        title="tag, data",
        quantity=quantity,
        score=score,
        threshold=np.zeros(len(score)),
        thresholds={"threshold": 0.0},
        reached=score > 0,
        positive=(score > 0) | (rows == 0),
        groups=groups,
        episodes=episodes,
    )


CASES = {
    "one frame": ([1], 1, 0.0),
    "scores that are all equal": ([4, 5], 3, 0.0),
    "many members": ([30] * 4, 12, 0.2),
    "many episodes": ([3] * 100, 2, 0.2),
    "many frames": ([900] * 30, 2, 0.2),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SCORE_FIGURES)
def test_draws(name, case, tmp_path):
    SCORE_FIGURES[name](tmp_path / "figure", judgement(*CASES[case]))
    picture = matplotlib.image.imread(tmp_path / "figure", format="png")
    assert picture.shape[1] == 1350 and picture.std() > 0.01


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", CASES)
def test_draws_values(case, tmp_path):
    lengths, _, spread = CASES[case]
    draw_advantage_distribution(tmp_path / "figure", valued(lengths, spread))
    assert matplotlib.image.imread(tmp_path / "figure", format="png").shape[1] == 1350


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", ["one frame", "scores that are all equal", "many members"])
@pytest.mark.parametrize("of_values", [True, False])
def test_draws_an_episode(case, of_values, tmp_path):
    lengths, members, spread = CASES[case]
    given = valued(lengths, spread) if of_values else judgement(lengths, members, spread)
    curves = episode_curves(given, 10.0, 0)
    images = [np.full((24, 32, 3), 128, np.uint8)] * len(key_steps(lengths[0]))
    draw_episode(tmp_path / "figure", curves, {"observation.images.front": images, "observation.images.wrist": images})
    assert matplotlib.image.imread(tmp_path / "figure", format="png").shape[1] == 1350


@pytest.mark.filterwarnings("error")
def test_any_task_text_is_shown_as_it_is(tmp_path):
    """To Matplotlib, text between dollars is a formula, which may be an error; and lengths of tasks have no limit."""
    task = "put the $5^$ note and\nthe <b>$10_$ note away, " + "carefully, " * 40
    given = valued([4, 5], 0.2)
    given = dataclasses.replace(given, episodes=dataclasses.replace(given.episodes, tasks=[task]), thresholds={task: 0.0, "other": 0.1})
    draw_advantage_distribution(tmp_path / "figure", given)
    draw_episode(tmp_path / "figure", episode_curves(given, 10.0, 0), {})
    draw_predicted_returns(tmp_path / "figure", [PredictedReturns(task, given.value, given.target)])
    assert as_written("a  $b\nc", 6) == "a \\$b c" and as_written("abcdef", 4) == "abc…"


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures that were saved."""
    figures: list[Figure] = []
    monkeypatch.setattr(diagnostic_figures, "save", lambda figure, _: figures.append(figure))
    return figures


def test_timelines_go_from_the_surest_episode_to_the_least_sure(drawn, tmp_path):
    given = judgement([20] * 33, 3, 0.3)
    diagnostic_figures.draw_timelines(tmp_path, given)
    order = 7 * np.argsort(given.by_episode(given.variance))
    titles = [int(axis.get_title(loc="left").split()[1].rstrip(",")) for axis in drawn[0].axes]
    assert titles == order[::4].tolist()  # 9 of 33


def test_rates_by_episode_are_coloured_by_one_half(drawn, tmp_path):
    given = judgement([4, 2], 1, 1.0)
    positive = np.array([True, True, True, False, True, False])
    diagnostic_figures.draw_positive_rates(tmp_path, dataclasses.replace(given, positive=positive))
    (axis,) = drawn[0].axes
    assert [patch.get_data().values.tolist() for patch in axis.patches] == [[75, 0], [0, 50]]
    assert [text.get_text() for text in axis.texts] == ["4", "2"]


def test_needs_neither_torch_nor_lerobot():
    code = f"import sys, {diagnostics.__name__}; print({{'torch', 'lerobot'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
