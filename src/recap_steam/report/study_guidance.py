"""Guidance chosen for each replicate on the initial states of other evaluations, and what it gives on those of this one."""

import dataclasses
from collections.abc import Iterator

from recap_steam.report.results import Arm, ArmKey
from recap_steam.report.study import PooledComparison, Study, compare_arms, compared_with
from recap_steam.report.study_tables import joined, paired_cells, paired_head
from recap_steam.report.tables import MISSING, Table


@dataclasses.dataclass(frozen=True)
class ChosenGuidance:
    """What a policy solved at each of its guidance scales on initial states that its evaluation does not have.

    Attributes:
        solved: by seed of the replicate and guidance scale, initial states solved.
        num_states: of each replicate; all its scales were tried on the same ones.
    """

    policy: str
    solved: dict[int, dict[float, int]]
    num_states: dict[int, int]

    @property
    def scales(self) -> dict[int, float]:
        """By seed, the scale that solved most; of equal ones the least, which leaves the data least."""
        return {seed: max(sorted(solved), key=solved.get) for seed, solved in self.solved.items()}

    def arms(self, study: Study) -> dict[int, Arm]:
        """By seed, the arm of ``study`` with the chosen scale, where it is there."""
        keys = {seed: (self.policy, scale) for seed, scale in self.scales.items()}
        return {seed: study.arms[seed][key] for seed, key in keys.items() if key in study.arms[seed]}

    def compared(self, study: Study) -> Iterator[PooledComparison]:
        """Beside the arms of ``study`` without guidance that the policy is compared with at any scale."""
        policy_keys = [key for key in study.keys if key[0] == self.policy]
        plain = {other: what for key in policy_keys for other, what in compared_with(study, key).items() if other[1] is None}
        yield from filter(None, (compare_arms(self.arms(study), study.by_seed(other), what) for other, what in plain.items()))


def chosen_guidance(study: Study, studies: list[Study]) -> Iterator[ChosenGuidance]:
    """Of every policy that ``study`` has at several scales and that ``studies`` of the same experiment tried at all of them elsewhere, in
    the same environment; of the replicates where that is so."""
    for policy in dict.fromkeys(policy for policy, _ in study.keys):
        keys = [key for key in study.keys if key[0] == policy]
        if len(keys) == 1:
            continue
        solved, num_states = {}, {}
        for seed in study.results:
            elsewhere = {key[1]: _elsewhere(study, studies, seed, key) for key in keys}
            states = set.intersection(*(set(outcomes) for outcomes in elsewhere.values()))
            if states:
                solved[seed] = {scale: sum(outcomes[state] for state in states) for scale, outcomes in elsewhere.items()}
                num_states[seed] = len(states)
        if solved:
            yield ChosenGuidance(policy, solved, num_states)


def _elsewhere(study: Study, studies: list[Study], seed: int, key: ArmKey) -> dict[int, bool]:
    """Whether an arm of a replicate solved them: the initial states of other evaluations that are none of this one."""
    config = study.results[seed].experiment.evaluations[study.evaluation]
    own, outcomes = range(config.seed, config.seed + config.num_episodes), {}
    for other in studies:
        arm = other.arms[seed].get(key)
        if arm is not None and other.experiment.evaluations[other.evaluation].environment == config.environment:
            outcomes |= zip(arm.seed.tolist(), arm.success.tolist(), strict=True)
    return {state: success for state, success in outcomes.items() if state not in own}


def guidance_table(study: Study, studies: list[Study]) -> Table:
    """One row a policy whose guidance can be chosen elsewhere and arm that it is compared with."""
    rows = []
    for chosen in chosen_guidance(study, studies):
        scales = joined(f"{chosen.scales[seed]:g}" if seed in chosen.scales else MISSING for seed in study.results)
        cells = [chosen.policy, scales, "; ".join(_solved_elsewhere(chosen, seed) for seed in study.results)]
        rows += [[*cells, *paired_cells(study, found)] for found in chosen.compared(study)]
    return Table(["policy", "guidance, by seed", "solved elsewhere, by seed", *paired_head("policy")], rows)


def _solved_elsewhere(chosen: ChosenGuidance, seed: int) -> str:
    if seed not in chosen.solved:
        return MISSING
    counts = ", ".join(f"{count} at {scale:g}" for scale, count in chosen.solved[seed].items())
    return f"of {chosen.num_states[seed]} states {counts}"
