"""A study: replicates of an experiment, read and pooled. They share no initial state, so that the pairs of all of them are one sample."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recap_steam.config import Experiment, evaluation_arms, read_experiment
from recap_steam.errors import UserError, config_error
from recap_steam.lineage import digest_json
from recap_steam.references import check_names
from recap_steam.report.controls import differing_in_one_thing, has_own_labels
from recap_steam.report.results import Arm, ArmKey, Results
from recap_steam.report.verdict import PairedTest, in_common, tested
from recap_steam.rounds import of_round

RESULTS = Path("results")


@dataclasses.dataclass(frozen=True)
class Study:
    """One evaluation of the experiment ``name``.

    Attributes:
        results: of every replicate that was asked for, by its seed.
        arms: by the same seeds, the arms that are there.
    """

    name: str
    evaluation: str
    results: dict[int, Results]
    arms: dict[int, dict[ArmKey, Arm]]

    @property
    def title(self) -> str:
        """What it is called on pages and in figures: an experiment may have several evaluations."""
        return f"{self.name}, evaluation {self.evaluation}"

    @property
    def experiment(self) -> Experiment:
        """Of the first replicate; the others differ from it in seeds and folders only."""
        return next(iter(self.results.values())).experiment

    @property
    def keys(self) -> list[ArmKey]:
        """The arms that every replicate has when it is finished; the first is the reference."""
        return evaluation_arms(self.experiment, self.evaluation)

    @property
    def task(self) -> str:
        """What the simulator calls it."""
        return self.experiment.environments[self.experiment.evaluations[self.evaluation].environment].task_name

    def by_seed(self, key: ArmKey) -> dict[int, Arm]:
        """An arm of the replicates that have it."""
        return {seed: arms[key] for seed, arms in self.arms.items() if key in arms}

    def missing(self) -> dict[int, list[ArmKey]]:
        """Arms that are not there, of each replicate that lacks some."""
        lacking = {seed: [key for key in self.keys if key not in arms] for seed, arms in self.arms.items()}
        return {seed: keys for seed, keys in lacking.items() if keys}


def read_studies(files: list[Path], seeds: list[int]) -> list[Study]:
    """Every evaluation of the experiment ``files``, with the replicates ``seeds`` as far as they are here.

    Raises:
        UserError: a file that is no experiment or evaluates nothing, arms that may stop early, results in another environment or of other
            initial states than its, or evaluations of a policy with other weights.
    """
    studies = []
    for file in files:
        written, results = read_experiment(file), {}
        check_names(written)  # the replicates' are the same
        for seed in seeds:
            experiment = read_experiment(file, seed)
            results[seed] = Results(experiment, RESULTS / experiment.experiment)
            _check_lineages(results[seed])
        if not written.evaluations:
            raise config_error("evaluations", f"{file}: there are none, so there is nothing to summarise; add one")
        for evaluation, config in written.evaluations.items():
            if config.stop_below is not None:
                raise config_error(f"evaluations.{evaluation}.stop_below", f"{file}: arms that stop early cannot be pooled; set it to null")
            arms = {seed: _arms(found, evaluation) for seed, found in results.items()}
            studies.append(Study(written.experiment, evaluation, results, arms))
    return studies


def _check_lineages(results: Results) -> None:
    """Arms of one policy belong together, in whatever evaluations: they have one set of weights, and act where the file says."""
    weights: dict[str, dict[str, str]] = {}
    for evaluation, config in results.experiment.evaluations.items():
        environment = digest_json(dataclasses.asdict(results.experiment.environments[config.environment]))
        for path, lineage in results.arm_lineages(evaluation):
            policy = lineage.parameters["policy"]
            if digest_json(lineage.parameters["environment"]) != environment:
                raise UserError(f"{path}: was run in another environment than the experiment file says; run the replicate again")
            if weights.setdefault(policy, lineage.inputs) != lineage.inputs:
                raise UserError(f"{path}: was run with other weights of '{policy}' than another arm; run the replicate again")


def _arms(results: Results, evaluation: str) -> dict[ArmKey, Arm]:
    config, found = results.experiment.evaluations[evaluation], results.arms(evaluation)
    for arm in found:
        if not np.array_equal(arm.seed, np.arange(config.seed, config.seed + config.num_episodes)):
            place = results.root / "evaluations" / evaluation
            raise UserError(f"{place}: {arm.label} has other initial states than the experiment file says; run the replicate again")
    return {arm.key: arm for arm in found}


def pooled(arms: list[Arm]) -> Arm:
    """One arm over the initial states of several replicates."""
    return dataclasses.replace(
        arms[0], **{name: np.concatenate([getattr(arm, name) for arm in arms]) for name in ("seed", "success", "num_frames")}
    )


@dataclasses.dataclass(frozen=True)
class PooledComparison:
    """An arm beside another over the replicates that have both.

    Attributes:
        what: how the other differs.
        by_seed: difference of the success rates in each replicate.
        only_arm, only_other: initial states that one of them alone solved, of all replicates.
        test: exact McNemar over the pairs of all replicates.
    """

    arm: Arm
    other: Arm
    what: str
    by_seed: dict[int, float]
    only_arm: int
    only_other: int
    test: PairedTest

    @property
    def agreeing(self) -> int:
        """Replicates whose difference has the sign of the pooled one."""
        return sum(np.sign(difference) == np.sign(self.test.difference.estimate) for difference in self.by_seed.values())


def compare(study: Study, key: ArmKey, other_key: ArmKey, what: str) -> PooledComparison | None:
    """An arm beside another; None if no replicate has both."""
    return compare_arms(study.by_seed(key), study.by_seed(other_key), what)


def compare_arms(mine: dict[int, Arm], others: dict[int, Arm], what: str) -> PooledComparison | None:
    """An arm of each replicate beside another one; None if no replicate has both."""
    both = [seed for seed in mine if seed in others]
    if not both:
        return None
    arm, other = (pooled([arms[seed] for seed in both]) for arms in (mine, others))
    ours, theirs = in_common(arm, other)
    by_seed = {seed: float(mine[seed].success.mean() - others[seed].success.mean()) for seed in both}
    return PooledComparison(arm, other, what, by_seed, int(np.sum(ours & ~theirs)), int(np.sum(theirs & ~ours)), tested(other, arm))


def comparisons(study: Study) -> Iterator[PooledComparison]:
    """Every arm with labels of its own beside what it is compared with."""
    for key in study.keys:
        yield from filter(None, (compare(study, key, other, what) for other, what in compared_with(study, key).items()))


def compared_with(study: Study, key: ArmKey) -> dict[ArmKey, str]:
    """The reference and each arm that differs from ``key`` in one thing, and what differs; nothing for an arm without labels of its own."""
    policies = study.experiment.policies
    if not has_own_labels(policies, key):
        return {}
    others = {other: what for arm, other, what in differing_in_one_thing(policies, study.keys) if arm == key}
    return {other: what for other, what in ({study.keys[0]: "the reference of the evaluation"} | others).items() if other != key}


def round_numbers(experiment: Experiment) -> dict[str, int]:
    """The round of every policy: 0 if it learned from no rollouts, 1 if from those of the first round."""
    rollouts = {name for name, dataset in experiment.datasets.items() if dataset.type == "rollout"}
    numbers = {tag: int(not rollouts.isdisjoint(policy.datasets)) for tag, policy in experiment.policies.items()}
    for loop, rounds in experiment.rounds.items():
        numbers |= {of_round(tag, loop, number): number for tag in (loop, *rounds.controls) for number in range(2, rounds.count + 1)}
    return numbers
