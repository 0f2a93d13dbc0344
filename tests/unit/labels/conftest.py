"""A small experiment on real files: demonstrations and rollouts, and two label tags: by a critic's values, and by scores of an ensemble."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from recap_steam.config import Experiment, load_experiment
from recap_steam.critics.member_scores import certainly_back, ensemble_columns
from recap_steam.critics.pairs import look_ahead
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.inputs import critic_digest, ensemble_digest
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.returns import returns_stage
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.lineage import Lineage
from recap_steam.sidecar import write_sidecar
from tests.datasets import write_v21, write_v30

TASKS = ("open the drawer", "close the drawer")
SUCCESS = [True, False, True, False]
K, NUM_BINS, MEMBERS = 3, 6, 3


@dataclasses.dataclass
class Workspace:
    """Files of the experiment and one method for every stage; ``config`` is the raw experiment and may be changed."""

    root: Path
    config: dict
    tag: str = "n2"

    @property
    def experiment(self) -> Experiment:
        return load_experiment(self.config)

    @property
    def critic(self) -> Path:
        return self.root / "critic"

    @property
    def threshold(self) -> Path:
        return self.root / f"thresholds/{self.tag}.yaml"

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
        threshold_stage(self.experiment, self.tag, self.critic, self.root / "episodes", self.threshold)
        return self.threshold

    def advantages(self, name: str) -> Path:
        output = self.sidecar(name, f"advantages_{self.tag}")
        advantages_stage(self.experiment, name, self.tag, self.critic, self.episodes_path(name), self.threshold, output)
        return output

    def leftovers(self) -> list[str]:
        """Half-written files, wherever they are."""
        return [str(path) for path in self.root.rglob("*.tmp")]


class SteamWorkspace(Workspace):
    """The same files, labelled by scores."""

    @property
    def critic(self) -> Path:
        return self.root / "ensemble"

    @property
    def labels(self) -> dict:
        return self.config["advantages"][self.tag]

    def train_ensemble(self, **card: object) -> None:
        """Write what labels need of an ensemble's folder."""
        self.critic.mkdir(exist_ok=True)
        (self.critic / "config.json").write_text(json.dumps(card))
        (self.critic / "lineage.json").write_text(Lineage("merge_ensemble", "order", None, {}, {}, {}, "").to_json())

    def probabilities(self, name: str) -> np.ndarray:
        """Distributions of the members over bins, (members, F, num_bins): drawn, and certainly back where no look-ahead is full."""
        judged = self.look_ahead(name) > 0
        rng = np.random.default_rng([5, *name.encode()])
        found = rng.dirichlet(np.ones(NUM_BINS), (MEMBERS, len(judged)))
        found[:, ~judged] = certainly_back(MEMBERS, int((~judged).sum()), NUM_BINS)
        return found

    def look_ahead(self, name: str) -> np.ndarray:
        lengths = self.episodes(name).length
        return np.repeat(look_ahead(lengths, K, None), lengths)

    def scores(self, name: str, change: dict[str, np.ndarray] | None = None, **lineage: object) -> Path:
        """Write the scores of a dataset: drawn ones, with ``change`` of columns; ``lineage`` changes fields, or keys of parameters."""
        episodes, output = self.episodes(name), self.sidecar(name, "scores_order")
        columns = ensemble_columns(self.probabilities(name), K) | {"look_ahead": self.look_ahead(name)} | (change or {})
        columns = {name: np.ascontiguousarray(column) for name, column in columns.items()}
        parameters = {"k": K, "num_bins": NUM_BINS, "ensemble_size": MEMBERS, "cameras": {"c": "c"}, "length_scale": None}
        parameters |= {key: lineage.pop(key) for key in parameters if key in lineage}
        inputs = {"critic": ensemble_digest(self.critic)}
        made = Lineage("compute_scores", "order", episodes.fingerprint, parameters, inputs, {}, "")
        write_sidecar(output, "scores", columns, episodes, dataclasses.replace(made, **lineage))
        return output


@pytest.fixture
def scored(workspace) -> SteamWorkspace:
    critic = {key: value for key, value in workspace.config["critics"]["value"].items() if key != "returns_tag"}
    workspace.config["critics"]["order"] = {**critic, "method": "steam", "k": K, "model": {"image_size": 16, "num_bins": NUM_BINS}}
    labels = {"critic": "order", "datasets": ["demos", "rollouts"], "label_mode": "quantile", "rollout_quantile": 0.4}
    workspace.config["advantages"]["best40"] = labels
    made = SteamWorkspace(workspace.root, workspace.config, "best40")
    made.train_ensemble()
    for name in ("demos", "rollouts"):
        made.scores(name)
    return made


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
