"""Rounds unroll into ordinary entries that leave those of earlier rounds as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from recap_steam.config import load_experiment, whole_experiment
from recap_steam.errors import UserError
from recap_steam.references import check_references
from tests.changes import with_changes

DEMO = yaml.safe_load((Path(__file__).parents[2] / "config/config.yaml").read_text())
RECAP = {"count": 3, "dataset": "rollouts", "controls": ["filtered", "recap_shuffled"]}
STEAM = {"count": 2, "dataset": "rollouts"}


def demo(**changes: Any) -> dict[str, Any]:
    return with_changes(DEMO, {"rounds.recap": RECAP, **{key.replace("__", "."): value for key, value in changes.items()}})


def test_a_round_learns_from_all_data_so_far_and_starts_where_the_first_one_did() -> None:
    experiment = load_experiment(demo())
    check_references(experiment)
    policy, first = experiment.policies["recap_r3"], experiment.policies["recap"]
    data = ["demonstrations", "rollouts", "rollouts_recap_r2", "rollouts_recap_r3"]
    labels = experiment.advantages[policy.advantage_tag]
    critic = experiment.critics[labels.critic]
    assert policy.datasets == labels.datasets == critic.datasets == data
    assert (policy.init_from, policy.model, policy.max_steps) == (first.init_from, first.model, first.max_steps)
    assert critic.eval_datasets == experiment.critics["value"].eval_datasets
    assert experiment.datasets["rollouts_recap_r2"].collect.policy == "recap"
    assert experiment.datasets["rollouts_recap_r3"].collect.policy == "recap_r2"


def test_every_round_has_a_folder_and_initial_states_of_its_own() -> None:
    datasets = load_experiment(demo()).datasets
    collected = [datasets[name] for name in ("rollouts", "rollouts_recap_r2", "rollouts_recap_r3")]
    assert [entry.path for entry in collected] == [f"data/demo/rollouts{suffix}" for suffix in ("", "_recap_r2", "_recap_r3")]
    assert [entry.collect.seed for entry in collected] == [2000, 2200, 2400]


def test_further_rounds_may_be_collected_with_other_guidance_and_from_other_seeds() -> None:
    datasets = load_experiment(demo(rounds__recap=RECAP | {"cfgrl_guidance_scale": 1.5, "seed": 7000})).datasets
    collected = [datasets[name].collect for name in ("rollouts", "rollouts_recap_r2", "rollouts_recap_r3")]
    assert [(collect.cfgrl_guidance_scale, collect.seed) for collect in collected] == [(1.0, 2000), (1.5, 7000), (1.5, 7200)]


def test_controls_learn_from_the_data_of_the_round() -> None:
    policies = load_experiment(demo()).policies
    assert policies["filtered_recap_r2"].datasets == policies["recap_r2"].datasets
    assert policies["filtered_recap_r2"].advantage_tag is None
    shuffled = policies["recap_shuffled_recap_r2"]
    assert (shuffled.advantage_tag, shuffled.label_control) == (policies["recap_r2"].advantage_tag, "shuffled")


def test_an_evaluation_of_a_policy_evaluates_its_further_rounds() -> None:
    arms = load_experiment(demo()).evaluations["paired"].policies
    assert arms[: len(DEMO["evaluations"]["paired"]["policies"])] == DEMO["evaluations"]["paired"]["policies"]
    assert {"recap_r2", "filtered_recap_r2", "recap_shuffled_recap_r2", "recap_r3"} <= set(arms)
    assert "recap_r2" not in load_experiment(demo(evaluations__paired__policies=["start", "filtered"])).evaluations["paired"].policies


def test_a_critic_that_learned_from_demonstrations_alone_is_kept() -> None:
    alone = {"critics.progress.datasets": ["demonstrations"], "critics.progress.train_on_rollouts": False}
    experiment = load_experiment(with_changes(DEMO, {"rounds.steam": STEAM, **alone}))
    check_references(experiment)
    labels = experiment.advantages[experiment.policies["steam_r2"].advantage_tag]
    assert labels.critic == "progress"
    assert labels.datasets[-1] == "rollouts_steam_r2"
    assert list(experiment.critics) == ["value", "progress"]


def test_more_rounds_leave_every_entry_that_was_there_as_it_was() -> None:
    few, many = whole_experiment(demo(rounds__steam=STEAM)), whole_experiment(demo(rounds__steam=STEAM | {"count": 4}, rounds__recap=RECAP))
    for section in ("datasets", "critics", "advantages", "policies"):
        assert few[section].items() <= many[section].items()
    assert len(many["policies"]) == len(few["policies"]) + 2


def test_a_whole_experiment_is_whole() -> None:
    whole = whole_experiment(demo(rounds__steam=STEAM))
    assert whole_experiment(json.loads(json.dumps(whole))) == whole


MISTAKES = {
    "no such policy": ({"rounds.recpa": RECAP}, "rounds.recpa: 'recpa' is not an entry of policies"),
    "no such control": ({"rounds.recap.controls": ["fltered"]}, "rounds.recap: 'fltered' is not an entry of policies"),
    "no such dataset": ({"rounds.recap.dataset": "rollout"}, "rounds.recap.dataset: 'rollout' is not an entry of datasets"),
    "data that nobody collects": ({"datasets.rollouts.collect": None}, "datasets.rollouts.collect: None is not of type 'object'"),
    "a dataset that the policy does not see": (
        {"rounds.recap.dataset": "heldout"},
        "rounds.recap.dataset: policy 'recap' does not train on",
    ),
    "a control that does not see the dataset": (
        {"rounds.recap.controls": ["start"]},
        "rounds.recap.controls: policy 'start' does not train on 'rollouts'; add it to policies.start.datasets, or take it out here",
    ),
    "demonstrations by a policy": ({"rounds.recap.dataset": "demonstrations"}, "rounds.recap.dataset: 'demonstrations' is of type sft"),
    "labels of other data": ({"advantages.n10_q20.datasets": ["demonstrations"]}, "add it to advantages.n10_q20.datasets"),
    "labels from elsewhere": (
        {"advantages.n10_q20": {"imported": {"column": "good"}, "datasets": ["demonstrations", "rollouts"]}},
        "rounds.recap: labels 'n10_q20' come from another tool",
    ),
    "a name that is taken": ({"policies.recap_r2": DEMO["policies"]["start"]}, "policies.recap_r2: a further round needs this name"),
    "seeds of an evaluation": ({"evaluations.paired.seed": 2500}, "seeds 2500 to 2699 overlap those of datasets.rollouts_recap_r3"),
    "seeds of other training data": (
        {"datasets.demonstrations.collect.seed": 2210},
        "rounds.recap: seeds 2200 to 2399 of 'rollouts_recap_r2' overlap those of 'demonstrations', 2210 to 2217",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        check_references(load_experiment(with_changes(demo(), changes)))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_existing_rollouts_need_a_way_to_be_collected() -> None:
    experiment = demo()
    del experiment["datasets"]["rollouts"]["collect"]
    with pytest.raises(UserError, match=r"rounds\.recap\.dataset: 'rollouts' has no section collect"):
        load_experiment(experiment)
