"""How an ensemble judged a dataset: the numbers, the figures of usual and unusual judgements, and files that do not belong together."""

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
from recap_steam.errors import UserError
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.report import diagnostic_figures, diagnostics
from recap_steam.report.diagnostic_figures import Judgement
from recap_steam.report.diagnostics import FIGURES, diagnostics_stage
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


def label(**labels) -> dict:
    """Label the rollouts again under the tag ``again`` and plot them; return the summary."""
    config = small_config()
    config["advantages"]["again"] = config["advantages"]["steam_q40"] | labels
    experiment, critic, threshold = load_experiment(config), RESULTS / "critics/progress", THRESHOLDS / "again.yaml"
    threshold_stage(experiment, "again", critic, EPISODES, threshold)
    output = sidecar(experiment, "rollouts", "advantages_again")
    advantages_stage(experiment, "rollouts", "again", critic, EPISODES / "rollouts.parquet", threshold, output)
    diagnostics_stage(experiment, "rollouts", "again", EPISODES / "rollouts.parquet", threshold, Path("plots"))
    return json.loads(Path("plots/summary.json").read_text())


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
    summary = label(subtract_baseline=True, baseline_lookahead=2)
    (bins,) = columns("rollouts", "scores", "progress", "member_expected_bins")
    (advantage,) = columns("rollouts", "advantages", "again", "advantage_continuous")
    assert summary["baseline_bin"] == 2
    assert summary["stats"]["max"] == advantage.max() and summary["stats"]["mean"] == pytest.approx(advantage.mean())
    assert summary["member_means"] == pytest.approx(((bins - 2) / 2).mean(0))


def test_figures_are_drawn_by_the_command_to_the_same_bytes(here):
    parts = {name: part for name, part in with_defaults(small_config()).items() if name in ("datasets", "critics", "advantages")}
    arguments = ["--config", json.dumps(parts), "--dataset", "rollouts", "--tag", "steam_q40", "--output-dir", "again"]
    arguments += ["--episodes", str(EPISODES / "rollouts.parquet"), "--threshold", str(THRESHOLDS / "steam_q40.yaml")]
    subprocess.run([sys.executable, SCRIPT, *arguments], cwd=here, check=True)
    names = [*FIGURES, "summary.json"]
    assert sorted(path.name for path in (here / "again").iterdir()) == sorted(names)
    assert [(here / "again" / name).read_bytes() for name in names] == [(MADE / "rollouts" / name).read_bytes() for name in names]


def test_labels_of_another_threshold_are_refused(here):
    experiment, path = load_experiment(small_config()), THRESHOLDS / "steam_q40.yaml"
    path.write_text(path.read_text() + "# touched\n")
    with pytest.raises(UserError, match=r"advantages_steam_q40.parquet: .*threshold"):
        diagnostics_stage(experiment, "rollouts", "steam_q40", EPISODES / "rollouts.parquet", path, Path("plots"))
    assert not Path("plots").exists()


def judgement(lengths: list[int], members: int, spread: float) -> Judgement:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    scores = spread * np.random.default_rng(0).normal(size=(offsets[-1], members))
    success = np.arange(len(lengths)) % 2 == 0
    rows = np.repeat(success, lengths)
    groups = {group: mask for group, mask in (("success", rows), ("failure", ~rows)) if mask.any()}
    positive = scores.min(1) > 0
    return Judgement("tag, data", scores, positive, groups, 0.0, "threshold", offsets, 7 * np.arange(len(lengths)), success)


CASES = {
    "one frame": ([1], 1, 0.0),
    "scores that are all equal": ([4, 5], 3, 0.0),
    "many members": ([30] * 4, 12, 0.2),
    "many episodes": ([3] * 100, 2, 0.2),
    "many frames": ([900] * 30, 2, 0.2),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FIGURES)
def test_draws(name, case, tmp_path):
    FIGURES[name](tmp_path / "figure", judgement(*CASES[case]))
    picture = matplotlib.image.imread(tmp_path / "figure", format="png")
    assert picture.shape[1] == 1350 and picture.std() > 0.01


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
    diagnostic_figures.draw_positive_rates(tmp_path, Judgement(**{**vars(given), "positive": positive}))
    (axis,) = drawn[0].axes
    assert [patch.get_data().values.tolist() for patch in axis.patches] == [[75, 0], [0, 50]]
    assert [text.get_text() for text in axis.texts] == ["4", "2"]


def test_needs_neither_torch_nor_lerobot():
    code = f"import sys, {diagnostics.__name__}; print({{'torch', 'lerobot'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
