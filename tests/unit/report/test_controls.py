"""Which arms differ in one thing, and what is said of them."""

import copy

import numpy as np
import pytest

from recap_steam.config import load_experiment
from recap_steam.report.controls import comparisons, sentences
from recap_steam.report.results import Arm
from recap_steam.report.tables import controls_table
from tests.changes import with_changes
from tests.experiments import small_config

SHUFFLED = "control: the same share of positive labels, on frames drawn by chance"
FILTERED = "control: imitation of successes and interventions, no labels"


def arm(policy: str, solved: int, scale: float | None = None) -> Arm:
    return Arm(policy, scale, np.arange(50), np.arange(50) < solved, np.full(50, 40))


def pairs(config: dict, arms: list[Arm]) -> list[tuple[str, str, str]]:
    return [(found.treatment.label, found.other.label, found.what) for found in comparisons(load_experiment(config), arms)]


def test_arms_are_paired_at_one_scale_with_all_that_differ_in_one_thing():
    arms = [arm("start", 25), arm("filtered", 30)]
    arms += [arm(policy, 30, scale) for policy in ("recap", "steam", "shuffled") for scale in (1.0, 2.0)]
    found = pairs(small_config(), [*arms, arm("expert", 50)])
    assert found == [
        pair
        for policy in ("recap", "steam")
        for scale in (1, 2)
        for pair in [
            (f"{policy}, guidance {scale}", "filtered", FILTERED),
            *([("recap, guidance {}", "steam, guidance {}", "labels steam_q40 instead of n5_q30")] if policy == "recap" else []),
            *([("recap, guidance {}", "shuffled, guidance {}", SHUFFLED)] if policy == "recap" else []),
        ]
        for pair in [tuple(text.format(scale) for text in pair)]
    ]


@pytest.mark.parametrize(
    "change", [{"policies.shuffled.seed": 7}, {"policies.shuffled.advantage_tag": "steam_q40"}, {"policies.shuffled.max_steps": 99}]
)
def test_what_differs_in_more_is_no_control(change):
    arms = [arm("recap", 30, 1.0), arm("shuffled", 30, 1.0)]
    assert pairs(small_config(), arms) == [("recap, guidance 1", "shuffled, guidance 1", SHUFFLED)]
    assert pairs(with_changes(small_config(), change), arms) == []


def test_all_positive_and_plain_imitation_are_controls():
    config = small_config()
    config["policies"]["all_positive"] = {**copy.deepcopy(config["policies"]["recap"]), "label_control": "all_positive"}
    config["policies"]["plain"] = {key: value for key, value in config["policies"]["recap"].items() if key != "advantage_tag"}
    found = pairs(config, [arm("recap", 30, 1.0), arm("all_positive", 30, 1.0), arm("plain", 30), arm("start", 30)])
    assert [what for _, _, what in found] == [
        "control: every frame labelled positive",
        "control: imitation of all frames, no labels",
    ]  # the start policy saw other data


def test_labels_that_are_all_positive_are_a_control_of_every_tag():
    config = small_config()
    config["policies"]["all_positive"] = {**copy.deepcopy(config["policies"]["recap"]), "label_control": "all_positive"}
    found = pairs(config, [arm("steam", 30, 1.0), arm("all_positive", 30, 1.0)])
    assert found == [("steam, guidance 1", "all_positive, guidance 1", "control: every frame labelled positive")]


def test_guidance_is_compared_with_the_same_weights_under_the_plain_prompt():
    """So that one table says what the indicator gave, at each scale; of a control it would say nothing."""
    arms = [arm(policy, 30, scale) for policy in ("recap", "shuffled") for scale in (0.0, 1.0, 2.0)]
    found = pairs(small_config(), arms)
    assert [pair for pair in found if pair[2] != SHUFFLED] == [
        (f"recap, guidance {scale}", "recap, guidance 0", "the same weights under the plain prompt") for scale in (1, 2)
    ]
    assert len(found) == 3 + 2


def test_a_gain_that_the_control_has_too_is_not_called_one():
    arms = [arm("filtered", 45), arm("recap", 30, 1.0), arm("shuffled", 29, 1.0)]
    found = comparisons(load_experiment(small_config()), arms)
    (sentence,) = sentences("paired", found)
    assert sentence == (
        f"paired: recap, guidance 1 is significantly worse than filtered ({FILTERED}; -30 points, p < 0.001); "
        f"not told apart from shuffled, guidance 1 ({SHUFFLED}; +2 points, p = 1.00)."
    )
    assert controls_table(found).rows[1] == ["recap, guidance 1", "shuffled, guidance 1", SHUFFLED, "30", "29", "+2", "-3 to +7", "1.00"]


def test_the_level_is_divided_by_the_number_of_pairs():
    arms = [arm("recap", 31, 1.0), arm("shuffled", 25, 1.0), arm("filtered", 31), arm("steam", 31, 1.0)]  # p = 0.031
    experiment = load_experiment(small_config())
    assert "significantly better than shuffled" in sentences("paired", comparisons(experiment, arms[:2]))[0]
    assert "not told apart from shuffled" in sentences("paired", comparisons(experiment, arms))[0]
