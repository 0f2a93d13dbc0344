"""A small RECAP experiment on datasets that are there: what a cluster computes in minutes, most of which start programs."""

from pathlib import Path

from tests.datasets import write_v30
from tests.unit.critics.small import GEMMA3, SIGLIP
from tests.workflow.tree import Tree, copy_workflow

CAMERA = "observation.images.front"
OPTIM = {"lr": 3e-3, "lr_warmup_steps": 2}
CRITIC = {
    "returns_tag": "fail",
    "datasets": ["demonstrations", "rollouts"],
    "cameras": [CAMERA],
    "model": {"image_size": 16, "siglip_config": SIGLIP, "gemma3_config": GEMMA3, "critic_expert_variant": "dummy", "max_token_len": 32},
    "optim": OPTIM,
    "max_steps": 16,
    "global_batch_size": 8,
    "micro_batch_size": 4,
    "save_interval": 3,
}
POLICY = {
    "datasets": ["demonstrations", "rollouts"],
    "cameras": [CAMERA],
    "advantage_tag": "labels",
    "model": {"image_size": 16, "chunk_size": 4, "n_action_steps": 2, "num_inference_steps": 2, "max_token_len": 48, "small": {}},
    "optim": OPTIM,
    "max_steps": 4,
    "global_batch_size": 8,
}
RECAP = {
    "experiment": "cluster",
    "datasets": {
        "demonstrations": {"path": "data/demonstrations", "type": "sft"},
        "rollouts": {"path": "data/rollouts", "type": "rollout"},
    },
    "returns": {"fail": {"failure_reward": -10}},
    "critics": {"value": CRITIC},
    "advantages": {"labels": {"critic": "value", "datasets": ["demonstrations", "rollouts"], "advantage_lookahead_step": 2}},
    "policies": {"recap": POLICY},
}


def make(path: Path) -> Tree:
    """A clone of the workflow with the experiment and its datasets: a few short episodes, images in Parquet."""
    tree = copy_workflow(path)
    options = {"cameras": [CAMERA], "size": (16, 16)}
    write_v30(path / "data/demonstrations", [8, 9], **options)
    write_v30(path / "data/rollouts", [12, 7, 12], success=[False, True, True], **options)
    tree.experiment("experiment", RECAP)
    return tree
