"""Labels from the values of a critic of returns (RECAP)."""

from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment
from recap_steam.labels.advantages import Advantages
from recap_steam.labels.decision import decide
from recap_steam.labels.inputs import LabelInputs, load_critic, load_label_inputs, score
from recap_steam.labels.parameters import label_parameters
from recap_steam.labels.thresholds import ScoredFrames, Thresholds, scored_frames


class RecapLabels:
    """One RECAP tag of an experiment; see ``stages.LabelRule``.

    Raises:
        UserError: what ``load_critic`` raises.
    """

    def __init__(self, experiment: Experiment, tag: str, critic_dir: Path | str):
        self._experiment, self._config = experiment, experiment.advantages[tag]
        self._critic = load_critic(experiment, tag, critic_dir)
        self.critic_digest = self._critic.digest
        scale = {"returns_tag": self._critic.returns_tag, "return_min": self._critic.normalizer.return_min}
        self.parameters = label_parameters(experiment, tag) | scale

    def read(self, dataset: str, episodes_path: Path | str) -> LabelInputs:
        return load_label_inputs(self._experiment, dataset, self._critic, episodes_path)

    def frames(self, inputs: LabelInputs) -> ScoredFrames:
        return self._frames(inputs, self._score(inputs))

    def facts(self, datasets: list[LabelInputs], thresholds: Thresholds) -> dict[str, Any]:
        return_max = max(float(inputs.returns.max()) for inputs in datasets)
        return {"return_max": return_max, "failure_reward": self.parameters.get("failure_reward")}  # imported returns do not say it

    def columns(self, inputs: LabelInputs, thresholds: Thresholds) -> dict[str, np.ndarray | str]:
        advantages = self._score(inputs)
        return {
            "advantage_continuous": advantages.advantage,
            "return": inputs.returns.astype(np.float64),
            "value_current": inputs.values.astype(np.float64),
            "value_next": advantages.value_next,
            "reward_sum": advantages.reward_sum,
            "reward_sum_raw": advantages.reward_sum_raw,
            "num_valid_rewards": advantages.num_valid_rewards,
            "dataset_name": inputs.name,
            "advantage": decide(self._config, self._frames(inputs, advantages), thresholds),
        }

    def _score(self, inputs: LabelInputs) -> Advantages:
        return score(inputs, self._critic, self._config.advantage_lookahead_step, self._config.discount_next_value)

    def _frames(self, inputs: LabelInputs, advantages: Advantages) -> ScoredFrames:
        judged = np.ones(len(advantages.advantage), bool)
        return scored_frames(inputs.episodes, self._experiment.datasets[inputs.name].type, advantages.advantage, judged)
