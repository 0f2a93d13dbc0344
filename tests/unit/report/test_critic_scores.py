"""The report reads what a critic's training writes."""

import matplotlib.image
import numpy as np
import pytest

from recap_steam.report import critic_scores, predicted_returns
from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING
from recap_steam.training.critic_stage import train_critic_stage
from tests.unit.critics.experiment import make


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Results:
    files = make(tmp_path_factory.mktemp("experiment")).with_critic(max_steps=1)
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, files.root / "state", files.root / "critics/value")
    return Results(files.experiment, files.root)


def test_every_number_of_the_tables_is_there(trained):
    rows = {row[1]: row[2:] for row in critic_scores.critic_table(trained).rows}
    assert MISSING not in rows["critic, held out"] + rows["time only, held out"]
    assert rows["constant, held out"].count(MISSING) == 1  # its rank correlation
    assert rows["critic, training frames"][-1] == MISSING and rows["critic, training frames"].count(MISSING) == 1  # success AUC is held out
    for group, values in {"outcome": ["failure", "success"], "task": ["Open the drawer.", "close_it"]}.items():
        table = critic_scores.group_table(trained, group)
        assert [row[1] for row in table.rows] == values and all(row[2:].count(MISSING) <= 1 for row in table.rows)


def test_curves_and_the_gap_are_there(trained):
    (curves,) = critic_scores.critic_curves(trained)
    assert np.isfinite([curves.value, curves.target]).all() and np.isfinite(curves.success_auc["critic, held out"]).any()
    (sentence,) = critic_scores.gap_sentences(trained)
    assert sentence.startswith("value: MAE ") and sentence.endswith((": the gap is small.", ": the critic over-fits."))


def frames(numbers: list[float], tasks: list[str]) -> predicted_returns._Frames:
    value = np.array(numbers)
    return predicted_returns._Frames(value, value - 0.1, np.arange(len(value)) % 3 > 0, np.array(tasks))


def test_predictions_stand_by_outcome_and_task():
    panels = predicted_returns._panels("value, held out", frames([-0.5, -0.4, -0.3, -0.2], ["b", "a", "a", "a"]))
    assert [panel.title.rpartition(": ")[2] for panel in panels] == ["all frames", "successes", "failures", "a", "b"]
    assert [len(panel.value) for panel in panels] == [4, 2, 2, 3, 1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("numbers", [[-0.5], [-0.5] * 20, np.linspace(-1, 0, 300).tolist()], ids=["one frame", "equal", "many"])
def test_predictions_are_drawn(numbers, tmp_path):
    panels = predicted_returns._panels("value, held out", frames(numbers, [f"task {n % 9}" for n in range(len(numbers))]))
    predicted_returns.draw_predicted_returns(tmp_path / "figure", panels)
    assert matplotlib.image.imread(tmp_path / "figure", format="png").shape[1] == 1350


def test_no_predictions_are_said_to_be_none(tmp_path):
    predicted_returns.draw_predicted_returns(tmp_path / "figure", [])
    assert matplotlib.image.imread(tmp_path / "figure", format="png").shape[:2] == (150, 1350)
