"""A small real experiment on disk up to the critic's inputs: datasets, indices, frame caches and returns."""

import dataclasses
from pathlib import Path

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import index_stage
from recap_steam.dataset.frames import frames_stage
from recap_steam.labels.returns import returns_stage
from recap_steam.sidecar import sidecar_path
from tests.datasets import write_v30
from tests.unit.critics.small import GEMMA3, SIGLIP

CAMERA, WRIST = "observation.images.front", "observation.images.hand"
CRITIC = {
    "returns_tag": "fail",
    "datasets": ["demonstrations", "rollouts"],
    "eval_datasets": ["heldout"],
    "cameras": [CAMERA],
    "model": {"image_size": 16, "siglip_config": SIGLIP, "gemma3_config": GEMMA3, "critic_expert_variant": "dummy", "max_token_len": 32},
    "optim": {"lr": 3e-3, "value_lr": 5e-3, "lr_warmup_steps": 2},
    "max_steps": 6,
    "global_batch_size": 8,
    "eval_interval": 3,
    "save_interval": 3,
}
PROGRESS = {
    "method": "steam",
    "k": 2,
    "datasets": ["demonstrations"],
    "eval_datasets": ["heldout"],
    "cameras": [CAMERA],
    "model": {"image_size": 16, "siglip_config": SIGLIP, "gemma3_config": GEMMA3, "max_token_len": 32, "fusion_hidden_dim": 16},
    "optim": {"lr": 3e-3, "lr_warmup_steps": 2},
    "max_steps": 6,
    "global_batch_size": 8,
    "eval_interval": 3,
    "save_interval": 3,
}


@dataclasses.dataclass(frozen=True)
class Files:
    """Folders of an experiment; ``raw`` is its document."""

    root: Path
    raw: dict

    @property
    def experiment(self) -> Experiment:
        return load_experiment(self.raw)

    @property
    def episodes(self) -> Path:
        return self.root / "episodes"

    @property
    def frames(self) -> Path:
        return self.root / "frames"

    def sidecar(self, name: str, stem: str) -> Path:
        return sidecar_path(self.experiment.datasets[name], name, stem)

    def frame_cache(self, name: str) -> Path:
        return self.frames / f"{name}_16px.arrow"

    def with_critic(self, **changes) -> "Files":
        return dataclasses.replace(self, raw={**self.raw, "critics": {"value": {**CRITIC, **changes}}})

    def with_progress(self, **changes) -> "Files":
        """With a progress critic ``progress`` beside."""
        return dataclasses.replace(self, raw={**self.raw, "critics": {**self.raw["critics"], "progress": {**PROGRESS, **changes}}})

    def with_two_cameras(self, *front_only: str, **changes) -> "Files":
        """A critic that sees front and wrist; the robots of the datasets ``front_only`` lack the wrist camera."""
        maps = {"both": {"front": CAMERA, "wrist": WRIST}, "front_only": {"front": CAMERA, "wrist": None}}
        datasets = {
            name: {**dataset, "camera_map": "front_only" if name in front_only else "both"}
            for name, dataset in self.raw["datasets"].items()
        }
        files = dataclasses.replace(self, raw={**self.raw, "camera_maps": maps, "datasets": datasets})
        return files.with_critic(cameras=["front", "wrist"], **changes)


def make(root: Path) -> Files:
    """Three datasets of a few short episodes, with images in Parquet."""
    tasks = ["Open the drawer.", "close_it"]
    options = {"cameras": [CAMERA, WRIST], "size": (16, 16), "tasks": tasks}
    write_v30(root / "demonstrations", [8, 9], **options)
    write_v30(root / "rollouts", [12, 7, 12], success=[False, True, True], **options)
    write_v30(root / "heldout", [10, 6], success=[False, True], **options)
    datasets = {name: {"path": str(root / name), "type": "rollout"} for name in ("demonstrations", "rollouts", "heldout")}
    datasets["demonstrations"]["type"], datasets["heldout"]["split"] = "sft", "eval"
    raw = {"experiment": "test", "datasets": datasets, "returns": {"fail": {"failure_reward": -10}}, "critics": {"value": CRITIC}}
    files = Files(root, raw)
    for name in datasets:
        index = files.episodes / f"{name}.parquet"
        index_stage(files.experiment, name, index)
        frames_stage(files.experiment, name, index, [CAMERA, WRIST], 16, files.frame_cache(name))
        returns_stage(files.experiment, name, "fail", index, files.sidecar(name, "returns_fail"))
    return files
