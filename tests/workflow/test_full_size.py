"""The examples at full size are complete: with data and weights in their places they plan, and say at once what is missing."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from recap_steam.config import load_experiment, load_slice
from tests.workflow.tree import REPOSITORY, Tree, copy_workflow

EXAMPLES = {
    name: f"config/experiments/{file}.yaml"
    for name, file in {
        "recap": "full_size",
        "steam": "steam_full_size",
        "libero10_task0": "libero10_task0",
        "steam_realrobot": "steam_realrobot",
    }.items()
}
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
RECAP = SHARED | {"compute_returns": 3, "train_critic": 1, "compute_values": 3}
STEAM = SHARED | {"cache_frames": 6, "train_member": 3, "merge_ensemble": 1, "compute_scores": 3}  # 384 pixels, and 224 for the policy
JOBS = {"recap": RECAP, "steam": STEAM, "libero10_task0": RECAP | {"evaluate_policy": 1}, "steam_realrobot": STEAM}
CAMERAS = {
    "recap": "observation.image observation.wrist_image",
    "steam": "observation.image observation.wrist_image",
    "libero10_task0": "image wrist_image",
    "steam_realrobot": "observation.images.face_view observation.images.left_wrist_view observation.images.right_wrist_view",
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
    for example in EXAMPLES.values():
        for dataset in yaml.safe_load((REPOSITORY / example).read_text())["datasets"].values():
            write(tree.path / dataset["path"] / "meta/info.json", {})
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


@pytest.mark.parametrize("method", EXAMPLES)
def test_cameras_are_decoded_by_the_names_of_the_datasets(equipped: Tree, method: str) -> None:
    status, output = equipped.snakemake("-n", "-p", "--configfile", EXAMPLES[method])
    assert status == 0, output
    for size in (384, 224) if JOBS[method]["cache_frames"] == 6 else (224,):
        assert output.count(f"--cameras {CAMERAS[method]} --image-size {size}") == 3


def test_only_its_target_downloads(equipped: Tree) -> None:
    """One job a dataset, of which nothing else depends; without the data, the plan says what fetches them."""
    example = EXAMPLES["libero10_task0"]
    assert equipped.plan("--configfile", example, "--cores", "1", "download") == {"download_dataset": 3}
    status, output = equipped.snakemake("-n", "-p", "--configfile", example, "--cores", "1", "download")
    (command,) = (shlex.split(line) for line in output.splitlines() if "--dataset rollouts" in line and "python " in line)
    config = load_slice(json.loads(command[command.index("--config") + 1])).datasets["rollouts"]
    assert (config.download.folder, config.download.num_episodes) == ("libero10_task0_train", 4096)
    assert command[command.index("--output") + 1] == "results/libero10_task0/downloads/rollouts.json"
    folder = equipped.path / "data/libero10_task0"
    shutil.move(folder, equipped.path / "kept")
    try:
        status, output = equipped.snakemake("-n", "--configfile", example)
        assert equipped.plan("--configfile", example, "--cores", "1", "download") == {"download_dataset": 3}
    finally:
        shutil.move(equipped.path / "kept", folder)
    assert status == 1
    assert output.splitlines()[-1].endswith("(meta/info.json is missing); fetch it with the target `download`, or correct the path")


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
