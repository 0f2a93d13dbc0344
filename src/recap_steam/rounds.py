"""Rounds of improvement, unrolled: each further round becomes ordinary entries of the experiment, so that no stage knows of rounds.

The first round is the experiment as it is written. Round r collects with the policy of round r - 1, appends that as a dataset of its own,
labels all data so far anew and trains from the same start as round 1 (source: pi*0.6, algorithm 1: each round restarts from the base).
Entries of earlier rounds are not touched, so that a larger count reruns nothing.
"""

import dataclasses
import os

from recap_steam.errors import config_error


@dataclasses.dataclass(frozen=True)
class RoundsConfig:
    """``count`` rounds of the policy that names the entry; ``dataset`` holds the rollouts of the first one. Further ones are collected from
    ``seed`` on, with ``cfgrl_guidance_scale``; None: as ``dataset`` says, and from the seeds after its own."""

    count: int
    dataset: str
    controls: list[str]
    cfgrl_guidance_scale: float | None
    seed: int | None


def of_round(name: str, loop: str, number: int) -> str:
    """Return the entry that takes the place of entry ``name`` in a round of ``loop``, the policy that is improved."""
    if number == 1:
        return name
    return f"{loop}_r{number}" if name == loop else f"{name}_{loop}_r{number}"


def unroll(filled: dict) -> dict:
    """Return the experiment ``filled`` (all sections and defaults there) with the entries of all rounds; again is the same.

    Raises:
        UserError: a name in ``rounds`` that does not exist or does not fit, or an entry that has the name of a round's.
    """
    whole = filled | {section: dict(filled[section]) for section in ("datasets", "critics", "advantages", "policies", "evaluations")}
    for loop, rounds in filled["rounds"].items():
        _check(filled, loop, rounds)
        for number in range(2, rounds["count"] + 1):
            _add_dataset(whole, loop, rounds, number)
            for policy in (loop, *rounds["controls"]):
                _add_policy(whole, loop, rounds["dataset"], policy, number)
            _add_arms(whole["evaluations"], loop, rounds, number)
    return whole


def _check(filled: dict, loop: str, rounds: dict) -> None:
    key, dataset = f"rounds.{loop}", rounds["dataset"]
    for policy in (loop, *rounds["controls"]):
        if policy not in filled["policies"]:
            raise config_error(key, f"'{policy}' is not an entry of policies; known: {', '.join(filled['policies']) or 'none'}")
    if dataset not in filled["datasets"]:
        raise config_error(f"{key}.dataset", f"'{dataset}' is not an entry of datasets; known: {', '.join(filled['datasets']) or 'none'}")
    if not filled["datasets"][dataset].get("collect"):
        raise config_error(f"{key}.dataset", f"'{dataset}' has no section collect, which says how further rounds are collected; add it")
    if filled["datasets"][dataset]["type"] != "rollout":
        problem = f"'{dataset}' is of type sft, in which whatever a policy does is labelled positive"
        raise config_error(f"{key}.dataset", f"{problem}; name one of type rollout")
    for policy in (loop, *rounds["controls"]):
        entry = filled["policies"][policy]
        if dataset not in entry["datasets"]:
            place, otherwise = ("dataset", "") if policy == loop else ("controls", ", or take it out here")
            remedy = f"add it to policies.{policy}.datasets{otherwise}"
            raise config_error(f"{key}.{place}", f"policy '{policy}' does not train on '{dataset}'; {remedy}")
        _check_labels(filled, key, dataset, entry["advantage_tag"])


def _check_labels(filled: dict, key: str, dataset: str, tag: str | None) -> None:
    """What another tool judged has no judgement of rollouts that are yet to come."""
    labels = filled["advantages"].get(tag)
    if labels is None:
        return  # imitation, or a name that the check of references finds
    if dataset not in labels["datasets"]:
        raise config_error(f"{key}.dataset", f"labels '{tag}' are not of '{dataset}'; add it to advantages.{tag}.datasets")
    returns = filled["returns"].get(filled["critics"].get(labels.get("critic"), {}).get("returns_tag"), {})
    if "imported" in labels or "imported" in returns:
        raise config_error(key, f"labels '{tag}' come from another tool, which has none of further rounds; use labels computed here")


def _add_dataset(whole: dict, loop: str, rounds: dict, number: int) -> None:
    """What the policy of the round before collects, from initial states that follow those of the rounds before."""
    name = rounds["dataset"]
    first, path = whole["datasets"][name], f"{os.path.normpath(whole['datasets'][name]['path'])}_{loop}_r{number}"
    collect = first["collect"] | {"policy": of_round(loop, loop, number - 1)}
    second = collect["seed"] + collect["num_episodes"] if rounds["seed"] is None else rounds["seed"]
    collect["seed"] = second + (number - 2) * collect["num_episodes"]
    if rounds["cfgrl_guidance_scale"] is not None:
        collect["cfgrl_guidance_scale"] = rounds["cfgrl_guidance_scale"]
    _put(whole, "datasets", of_round(name, loop, number), first | {"path": path, "collect": collect})


def _add_policy(whole: dict, loop: str, dataset: str, policy: str, number: int) -> None:
    """The policy on all data so far, with new labels; a new critic where the old one learned from rollouts."""
    entry = whole["policies"][policy]
    grown = _grown(entry, loop, dataset, number)
    if labels := whole["advantages"].get(entry["advantage_tag"]):
        tag = grown["advantage_tag"] = of_round(entry["advantage_tag"], loop, number)
        new_labels, critic = _grown(labels, loop, dataset, number), whole["critics"].get(labels["critic"])
        if critic and dataset in critic["datasets"] and critic.get("members") is None:
            new_labels["critic"] = of_round(labels["critic"], loop, number)
            _put(whole, "critics", new_labels["critic"], _grown(critic, loop, dataset, number))
        _put(whole, "advantages", tag, new_labels)
    _put(whole, "policies", of_round(policy, loop, number), grown)


def _grown(entry: dict, loop: str, dataset: str, number: int) -> dict:
    """An entry of round 1 with the data of all rounds so far."""
    return entry | {"datasets": [*entry["datasets"], *(of_round(dataset, loop, other) for other in range(2, number + 1))]}


def _add_arms(evaluations: dict, loop: str, rounds: dict, number: int) -> None:
    """Evaluations of a policy evaluate its further rounds, too, from the same initial states."""
    for tag, evaluation in evaluations.items():
        arms = [of_round(policy, loop, number) for policy in (loop, *rounds["controls"]) if policy in evaluation["policies"]]
        evaluations[tag] = evaluation | {"policies": list(dict.fromkeys([*evaluation["policies"], *arms]))}


def _put(whole: dict, section: str, name: str, entry: dict) -> None:
    if whole[section].setdefault(name, entry) != entry:
        raise config_error(f"{section}.{name}", "a further round needs this name for its own entry; rename this one")
