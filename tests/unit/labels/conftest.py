"""A small experiment on real files: demonstrations and rollouts, returns, a critic's folder and its values, one label tag."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.inputs import critic_digest
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.returns import returns_stage
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.lineage import Lineage
from recap_steam.sidecar import write_sidecar
from tests.datasets import write_v21, write_v30

TASKS = ("open the drawer", "close the drawer")
SUCCESS = [True, False, True, False]


@dataclasses.dataclass
class Workspace:
    """Files of the experiment and one method for every stage; ``config`` is the raw experiment and may be changed."""

    root: Path
    config: dict

    @property
    def experiment(self) -> Experiment:
        return load_experiment(self.config)

    @property
    def critic(self) -> Path:
        return self.root / "critic"

    @property
    def threshold(self) -> Path:
        return self.root / "thresholds/n2.yaml"

    def episodes_path(self, name: str) -> Path:
        return self.root / f"episodes/{name}.parquet"

    def episodes(self, name: str):
        return load_episodes(self.episodes_path(name), open_dataset(name, self.root / name))

    def sidecar(self, name: str, stem: str) -> Path:
        return self.root / name / "meta" / f"{stem}.parquet"

    def index(self, name: str) -> None:
        index_stage(self.experiment, name, self.episodes_path(name))

    def returns(self, name: str, tag: str = "fail9") -> Path:
        output = self.sidecar(name, f"returns_{tag}")
        returns_stage(self.experiment, name, tag, self.episodes_path(name), output)
        return output

    def train_critic(self, return_min: float | dict = -15.0, offset: float = 0.0, **returns: float) -> None:
        """Write a critic's folder as training would, with a made-up scale."""
        self.critic.mkdir(exist_ok=True)
        ReturnNormalizer(return_min, offset).save(self.critic)
        parameters = {"returns": {"gamma": 1.0, "failure_reward": -9.0} | returns}
        (self.critic / "lineage.json").write_text(Lineage("train_critic", "value", None, parameters, {}, {}, "").to_json())

    def values(self, name: str, value: np.ndarray | None = None, **lineage: object) -> Path:
        """Write the values sidecar of a dataset: the given values, or drawn ones."""
        episodes, output = self.episodes(name), self.sidecar(name, "values_value")
        if value is None:
            value = -np.random.default_rng(0).random(episodes.num_frames, np.float32)
        columns = {"value": value, "value_std": np.full_like(value, 0.1), "value_entropy": np.full_like(value, 1.0)}
        made = Lineage("compute_values", "value", episodes.fingerprint, {}, {"critic": critic_digest(self.critic)}, {}, "")
        write_sidecar(output, "values", columns, episodes, dataclasses.replace(made, **lineage))
        return output

    def label_threshold(self) -> Path:
        threshold_stage(self.experiment, "n2", self.critic, self.root / "episodes", self.threshold)
        return self.threshold

    def advantages(self, name: str) -> Path:
        output = self.sidecar(name, "advantages_n2")
        advantages_stage(self.experiment, name, "n2", self.critic, self.episodes_path(name), self.threshold, output)
        return output

    def leftovers(self) -> list[str]:
        """Half-written files, wherever they are."""
        return [str(path) for path in self.root.rglob("*.tmp")]


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    write_v30(tmp_path / "demos", [3, 4], tasks=TASKS)
    write_v21(tmp_path / "rollouts", [5, 4, 7, 1], success=SUCCESS, tasks=TASKS, interventions=[(1, 2, 4)])
    critic = {"returns_tag": "fail9", "datasets": ["demos"], "cameras": ["c"], "model": {"image_size": 16}, "optim": {"lr": 1.0}}
    config = {
        "experiment": "small",
        "datasets": {
            "demos": {"path": str(tmp_path / "demos"), "type": "sft"},
            "rollouts": {"path": str(tmp_path / "rollouts"), "type": "rollout", "weight": 2.0},
        },
        "returns": {"fail9": {"failure_reward": -9}, "fail20": {"failure_reward": -20, "gamma": 0.9}},
        "critics": {"value": {**critic, "max_steps": 1, "global_batch_size": 1}},
        "advantages": {"n2": {"critic": "value", "datasets": ["demos", "rollouts"], "advantage_lookahead_step": 2}},
    }
    made = Workspace(tmp_path, config)
    made.train_critic()
    for name in ("demos", "rollouts"):
        made.index(name)
        made.returns(name)
        made.values(name)
    return made
