"""The examples at full size are complete: with data and weights in their places they plan, and say at once what is missing."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from recap_steam.config import load_experiment
from tests.workflow.tree import REPOSITORY, Tree, copy_workflow

EXAMPLES = {"recap": "config/experiments/full_size.yaml", "steam": "config/experiments/steam_full_size.yaml"}
SHARED = {
    "index_dataset": 3,
    "cache_frames": 3,
    "compute_threshold": 1,
    "compute_advantages": 2,
    "compute_norm_stats": 1,
    "train_policy": 1,
    "plot_diagnostics": 2,
    "draw_rule_graph": 1,
    "build_report": 1,
}
JOBS = {
    "recap": SHARED | {"compute_returns": 3, "train_critic": 1, "compute_values": 3},
    # frames of 384 pixels, and of 224 for the policy
    "steam": SHARED | {"cache_frames": 6, "train_member": 3, "merge_ensemble": 1, "compute_scores": 3},
}
WEIGHTS = {  # the files that are read at planning, with the sizes that are published in them
    "siglip2-so400m-patch14-224": {
        "config.json": {"vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}},
        "model.safetensors": {},
    },
    "siglip-so400m-patch14-384": {
        "config.json": {
            "vision_config": {"hidden_size": 1152, "image_size": 384, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}
        },
        "model.safetensors": {},
    },
    "gemma-3-270m": {
        "config.json": {
            "hidden_size": 640,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "num_hidden_layers": 18,
            "vocab_size": 262144,
        },
        "model.safetensors": {},
        "tokenizer.json": {},
    },
    "pi05_base": {"model.safetensors": {}},
    "paligemma-3b-pt-224": {"tokenizer.json": {}},
}


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A clone with data and weights where the example expects them, as far as planning reads them. Only for dry runs."""
    tree = copy_workflow(tmp_path_factory.mktemp("full_size"))
    for name in ("demonstrations", "rollouts", "heldout"):
        write(tree.path / f"data/libero/{name}/meta/info.json", {})
    for folder, files in WEIGHTS.items():
        for name, content in files.items():
            write(tree.path / "weights" / folder / name, content)
    return tree


def write(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("method", EXAMPLES)
def test_the_example_plans(equipped: Tree, method: str) -> None:
    assert equipped.plan("--configfile", EXAMPLES[method]) == JOBS[method]


@pytest.mark.parametrize(("method", "sizes"), [("recap", {224: 3}), ("steam", {384: 3, 224: 3})])
def test_cameras_are_decoded_by_the_names_of_the_datasets(equipped: Tree, method: str, sizes: dict[int, int]) -> None:
    status, output = equipped.snakemake("-n", "-p", "--configfile", EXAMPLES[method])
    assert status == 0, output
    for size, datasets in sizes.items():
        assert output.count(f"--cameras observation.image observation.wrist_image --image-size {size}") == datasets


@pytest.mark.parametrize("folder", WEIGHTS)
def test_missing_weights_are_one_line(equipped: Tree, folder: str) -> None:
    example = next(file for file in EXAMPLES.values() if f"weights/{folder}" in (REPOSITORY / file).read_text())
    kept = equipped.path / "kept"
    shutil.move(equipped.path / "weights" / folder, kept)
    try:
        status, output = equipped.snakemake("-n", "--configfile", example)
    finally:
        shutil.move(kept, equipped.path / "weights" / folder)
    assert status == 1
    assert output.splitlines()[-1].endswith(f"weights/{folder} is not a folder; give the local folder that holds it")


@pytest.mark.parametrize("method", EXAMPLES)
def test_the_example_fits_the_devices_that_the_readme_names(method: str) -> None:
    """8 devices on one node: global_batch_size is a multiple of micro_batch_size x devices."""
    experiment = load_experiment(yaml.safe_load((REPOSITORY / EXAMPLES[method]).read_text()))
    for config in (*experiment.critics.values(), *experiment.policies.values()):
        assert (config.devices, config.nodes) == (8, 1)
        assert config.global_batch_size % (config.devices * config.micro_batch_size) == 0
