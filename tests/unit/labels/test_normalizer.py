import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.labels.normalizer import ReturnNormalizer, fit_normalizer

TASKS = ["open the drawer", "close the drawer"]
CODES = np.array([0, 0, 1, 1])


def test_global_scale_is_the_least_return_of_all_training_datasets():
    normalizer = fit_normalizer([(np.float32([-3, 0]), np.array([0, 0]), ["a"]), (np.float32([-8, -1]), np.array([0, 0]), ["b"])], "global")
    assert normalizer == ReturnNormalizer(-8.0)
    np.testing.assert_array_equal(normalizer.normalize(np.float32([-8, -4, 0, -2]), CODES, TASKS), [-1, -0.5, 0, -0.25])


def test_per_task_scale_joins_datasets_by_task_text():
    datasets = [
        (np.float32([-2, -4, -10, -1]), CODES, TASKS),
        (np.float32([-20, -1]), np.array([0, 0]), ["close the drawer"]),
    ]
    normalizer = fit_normalizer(datasets, "per_task")
    assert normalizer.return_min == {"open the drawer": -4.0, "close the drawer": -20.0}
    np.testing.assert_array_equal(normalizer.normalize(np.float32([-4, -1, -20, -5]), CODES, TASKS), [-1, -0.25, -1, -0.25])


def test_a_scale_of_zero_is_one():
    assert ReturnNormalizer(0.0).scale(CODES, TASKS) == 1.0
    np.testing.assert_array_equal(ReturnNormalizer({TASKS[0]: 0.0, TASKS[1]: -2.0}).scale(CODES, TASKS), [1, 1, 2, 2])


def test_a_task_unseen_in_training_is_named():
    with pytest.raises(UserError, match="'close the drawer' did not occur in its training data"):
        ReturnNormalizer({"open the drawer": -4.0}).normalize(np.zeros(4), CODES, TASKS)


@pytest.mark.parametrize("return_min", [-302.0, {"öffne die Schublade": -4.25, "b": 0.0}])
def test_saved_normalizer_loads_unchanged(tmp_path, return_min):
    ReturnNormalizer(return_min).save(tmp_path)
    assert ReturnNormalizer.load(tmp_path) == ReturnNormalizer(return_min)
    assert [path.name for path in tmp_path.iterdir()] == ["normalizer.json"]


def test_the_offset_is_added_after_scaling_and_saved(tmp_path):
    normalizer = fit_normalizer([(np.float32([-8, 0]), np.array([0, 0]), ["a"])], "global", offset=1.0)
    np.testing.assert_array_equal(normalizer.normalize(np.float32([-8, -4, 0]), np.zeros(3, int), ["a"]), [0, 0.5, 1])
    assert normalizer.scale(np.zeros(1, int), ["a"]) == 8.0  # of reward sums, which are differences
    normalizer.save(tmp_path)
    assert ReturnNormalizer.load(tmp_path).offset == 1.0


@pytest.mark.parametrize("content", [None, "", "{}", '{"return_min": -8.0}', '{"return_min": [1]}', '{"return_min": null}'])
def test_missing_or_broken_normalizer_is_one_clear_line(tmp_path, content):
    if content is not None:
        (tmp_path / "normalizer.json").write_text(content)
    with pytest.raises(UserError, match=r"normalizer\.json: .*train the critic again") as caught:
        ReturnNormalizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_defect_03_one_normalizer_for_targets_and_reward_sums():
    """An all-failure dataset: the reference's second, affine normaliser turned a two-step reward of -2 into +149."""
    normalizer = fit_normalizer([(np.float32([-302, -301, -300]), np.zeros(3, int), ["a"])], "global")
    np.testing.assert_allclose(normalizer.normalize(np.array([-2.0]), np.zeros(1, int), ["a"]), [-2 / 302])
