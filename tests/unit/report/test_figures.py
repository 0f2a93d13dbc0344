"""Figures of unusual results: everything equal, a single episode, many pools, nothing at all."""

import matplotlib.image
import numpy as np
import pytest

from recap_steam.report import figures, training_figures
from recap_steam.report.figures import ArmPoint, PositiveRates, ScoreHistogram
from recap_steam.report.training_figures import CriticCurves, TrainingCurve, TrainingPanel, ValueCurve

TENTHS = np.linspace(-1, 0, 10)
NOTHING = np.full(10, np.nan)


def curve(length: int) -> ValueCurve:
    steps = np.arange(length)
    return ValueCurve("success, a episode 0", -0.5 + 0 * steps, -steps[::-1] / 100, steps > 1e9, None, steps[:1])


CASES = {
    "one arm that never succeeds": (figures.draw_success, {"paired": [ArmPoint("start", 0.0, 0.0, 0.07)]}),
    "two evaluations": (figures.draw_success, {"a": [ArmPoint("start", 0.5, 0.4, 0.6)] * 3, "b": [ArmPoint("start", 1.0, 0.9, 1.0)]}),
    "no failure, one frame, no camera": (training_figures.draw_values, {"value": [curve(1)]}),
    "critics with one and two episodes": (training_figures.draw_values, {"a": [curve(20)], "b": [curve(20), curve(30)]}),
    "equal advantages": (figures.draw_advantages, [ScoreHistogram("tag", {"failure": np.zeros(50)}, {"all": 0.0}, "score")]),
    "many thresholds": (
        figures.draw_advantages,
        [ScoreHistogram("tag", {"success": np.linspace(-1, 1, 99)}, {f"task {number}": number / 20 for number in range(12)}, "score")],
    ),
    "one dataset": (figures.draw_positive_rate, [PositiveRates("tag", {("rollouts", "failure"): (0.0, 7)})]),
    "one logged step": (
        training_figures.draw_training,
        [TrainingPanel("loss", "nats", [TrainingCurve("value", np.array([1.0]), np.array([5.3]))])],
    ),
    "a critic, and one whose held-out episodes all succeed": (
        training_figures.draw_critics,
        [CriticCurves("a", TENTHS, TENTHS / 2, {"critic": TENTHS + 1, "time": NOTHING + 0.5}), CriticCurves("b", TENTHS, TENTHS, {})],
    ),
    "a critic that says one thing": (training_figures.draw_critics, [CriticCurves("a", NOTHING * 0 - 0.5, TENTHS, {"critic": NOTHING})]),
    "no evaluation": (figures.draw_success, {}),
    "no values": (training_figures.draw_values, {}),
    "no advantages": (figures.draw_advantages, []),
    "no labels": (figures.draw_positive_rate, []),
    "no training": (training_figures.draw_training, []),
    "no critic": (training_figures.draw_critics, []),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", CASES)
def test_draws(case, tmp_path):
    draw, data = CASES[case]
    draw(tmp_path / "figure", data)
    height, width, _ = matplotlib.image.imread(tmp_path / "figure", format="png").shape
    assert width in (1350, 843) and height >= 150


def test_style_does_not_leak():
    before = dict(matplotlib.rcParams)
    figures.draw_success("/dev/null", {})
    assert dict(matplotlib.rcParams) == before
