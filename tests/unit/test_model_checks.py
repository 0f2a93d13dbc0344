"""Sizes that fit each other and folders of weights that are whole."""

import json
import re
from pathlib import Path

import pytest

from recap_steam.errors import UserError
from tests.references import STEAM, assert_refused, check

SOUND = {
    "values from 0 to 1": {
        "critics.value.normalize_to_minus_one_zero": False,
        "critics.value.model.v_min": 0,
        "critics.value.model.v_max": 1,
    },
    "two bins at any stride": {f"{STEAM}.k": 7, f"{STEAM}.model.num_bins": 2},
    "bins of several strides": {f"{STEAM}.k": 8, f"{STEAM}.model.num_bins": 4},
}
BROKEN = {
    "vision tower that is not there": (
        {"critics.value.model.siglip_path": "no/siglip"},
        "critics.value.model.siglip_path: no/siglip is not a folder; give the local folder that holds it",
    ),
    "text model that is not there": ({"critics.value.model.gemma3_path": "no"}, "critics.value.model.gemma3_path: no is not a folder"),
    "critic's tokenizer": ({"critics.value.model.tokenizer_path": "no"}, "critics.value.model.tokenizer_path: no is not a folder"),
    "policy that is not there": ({"policies.start.model.pretrained_path": "no"}, "policies.start.model.pretrained_path: no is not"),
    "policy's tokenizer": ({"policies.start.model.tokenizer_path": "no"}, "policies.start.model.tokenizer_path: no is not a folder"),
    "support without the scale": (
        {"critics.value.model.v_min": -0.5},
        "critics.value.model.v_min: -0.5 to v_max 0.0 does not cover values from -1 to 0 (normalize_to_minus_one_zero is true); set",
    ),
    "support of the other scale": (
        {"critics.value.normalize_to_minus_one_zero": False},
        "critics.value.model.v_min: -1.0 to v_max 0.0 does not cover values from 0 to 1 (normalize_to_minus_one_zero is false); set",
    ),
    "expert deeper than the text model": (
        {"critics.value.model.gemma3_config.num_hidden_layers": 3},
        "critics.value.model.critic_expert_variant: dummy reads 4 text layers, gemma3 has 3; choose a shallower expert",
    ),
    "heads of expert and text model": (
        {"critics.value.model.critic_expert_variant": "gemma_1m", "critics.value.model.gemma3_config.num_key_value_heads": 2},
        "critics.value.model.critic_expert_variant: gemma_1m has 1 heads, not a multiple of gemma3's num_key_value_heads 2",
    ),
    "heads of the vision tower": (
        {"critics.value.model.siglip_config.num_attention_heads": 3},
        "critics.value.model.siglip_config.hidden_size: 64 is not a multiple of num_attention_heads 3",
    ),
    "vocabulary without room for every byte": (
        {"critics.value.model.gemma3_config.vocab_size": 100},
        "critics.value.model.gemma3_config.vocab_size: 100 is too small for a tokenizer; give 260 or more",
    ),
    "full-size policy without tokenizer": (
        {"policies.start.model.small": None, "policies.start.model.image_size": 224},
        "policies.start.model.tokenizer_path: a full-size policy needs PaliGemma's tokenizer; give its local folder",
    ),
    "no vision tower": ({"critics.value.model.siglip_config": None}, "critics.value.model: give siglip_path"),
    "no text model": ({"critics.value.model.gemma3_config": None}, "critics.value.model: give gemma3_path"),
    "support upside down": ({"critics.value.model.v_min": 0}, "critics.value.model.v_min: 0 is not below v_max 0.0"),
    "critic image and patches": (
        {"critics.value.model.image_size": 50},
        "critics.value.model.image_size: 50 is not a multiple of the vision tower's patch size 16",
    ),
    "policy image and patches": ({"policies.start.model.image_size": 50}, "policies.start.model.image_size: 50 is not a multiple"),
    "full-size policy image": (
        {"policies.start.model.small": None},
        "policies.start.model.image_size: 64 is not a multiple of the vision tower's patch size 14",
    ),
    "micro batch of a critic": (
        {"critics.value.micro_batch_size": 48},
        "critics.value.global_batch_size: 64 is not a multiple of micro_batch_size 48 x 1 processes (devices x nodes); change one of them",
    ),
    "micro batch of a policy": (
        {"policies.start.micro_batch_size": 5},
        "policies.start.global_batch_size: 32 is not a multiple of micro_batch_size 5",
    ),
    "more steps than a chunk": (
        {"policies.start.model.n_action_steps": 5},
        "policies.start.model.n_action_steps: 5 is more than chunk_size 4",
    ),
    "start of another shape": (
        {"policies.recap.init_from": "start", "policies.recap.model.chunk_size": 8},
        "policies.recap.init_from: the model of 'start' differs",
    ),
    "odd bins": (
        {f"{STEAM}.model.num_bins": 5},
        f"{STEAM}.model.num_bins: 5 is odd; half of the bins are for reversed pairs, give an even",
    ),
    "bins that no stride fills": (
        {f"{STEAM}.model.num_bins": 4},
        f"{STEAM}.model.num_bins: 4 does not divide 2k = 10; with k 5, give one of 2, 10",
    ),
    "vision tower of a progress critic": (
        {f"{STEAM}.model.siglip_config": None},
        f"{STEAM}.model: give siglip_path (a folder with weights) or siglip_config",
    ),
    "image and patches of a progress critic": ({f"{STEAM}.model.image_size": 50}, f"{STEAM}.model.image_size: 50 is not a multiple of the"),
    "heads of its text model": (
        {f"{STEAM}.model.gemma3_config.num_key_value_heads": 3},
        f"{STEAM}.model.gemma3_config.num_attention_heads: 4 is not a multiple of num_key_value_heads 3",
    ),
    "vocabulary of a progress critic": ({f"{STEAM}.model.gemma3_config.vocab_size": 9}, "vocab_size: 9 is too small for a tokenizer; give"),
    "micro batch of a member": (
        {f"{STEAM}.micro_batch_size": 48},
        f"{STEAM}.global_batch_size: 64 is not a multiple of micro_batch_size 48",
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_experiment_passes(case: str) -> None:
    check(SOUND[case])


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    assert_refused(*BROKEN[case])


CRITIC, POLICY = "critics.value.model", "policies.start.model"
SIGLIP = {"vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 16}}
GEMMA3 = {"num_hidden_layers": 18, "num_key_value_heads": 1, "head_dim": 256}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder that passes for any of the weights."""
    (tmp_path / "tokenizer").mkdir()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer/tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(json.dumps(SIGLIP | GEMMA3))
    return tmp_path


@pytest.mark.parametrize(
    "key",
    [
        f"{STEAM}.model.siglip_path",
        f"{CRITIC}.siglip_path",
        f"{CRITIC}.gemma3_path",
        f"{CRITIC}.tokenizer_path",
        f"{POLICY}.pretrained_path",
        f"{POLICY}.tokenizer_path",
    ],
)
def test_weights_that_are_there_pass(weights: Path, key: str) -> None:
    check({key: str(weights)})


@pytest.mark.parametrize(
    ("key", "file", "message"),
    [
        (f"{CRITIC}.siglip_path", "config.json", "has no config.json; copy the whole folder"),
        (f"{CRITIC}.siglip_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "config.json", "has no config.json; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "tokenizer.json", "has no tokenizer.json; give tokenizer_path"),
        (f"{CRITIC}.tokenizer_path", "tokenizer.json", "has no tokenizer.json; copy the whole folder"),
        (f"{POLICY}.pretrained_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{POLICY}.pretrained_path", "tokenizer/tokenizer.json", "has no tokenizer/tokenizer.json; give tokenizer_path"),
        (f"{POLICY}.tokenizer_path", "tokenizer.json", "has no tokenizer.json; copy the whole folder"),
    ],
)
def test_an_incomplete_folder_of_weights_is_one_line(weights: Path, key: str, file: str, message: str) -> None:
    (weights / file).unlink()
    with pytest.raises(UserError) as caught:
        check({key: str(weights)})
    assert str(caught.value) == f"config: {key}: {weights} {message}"


@pytest.mark.parametrize(
    ("changes", "found", "message"),
    [
        ({"siglip_path": "weights"}, {"patch_size": 14}, f"{CRITIC}.image_size: 64 is not a multiple of the vision tower's patch size 14"),
        (
            {"siglip_path": "weights"},
            {"image_size": 224},
            f"{CRITIC}.image_size: 64, but the vision tower was made for 224; set it to that",
        ),
        (
            {"gemma3_path": "weights", "critic_expert_variant": "gemma_50m"},
            {"num_hidden_layers": 12},
            f"{CRITIC}.critic_expert_variant: gemma_50m reads 18 text layers, gemma3 has 12; choose a shallower expert",
        ),
    ],
)
def test_sizes_are_read_from_the_folder_of_weights(weights: Path, changes: dict[str, str], found: dict[str, int], message: str) -> None:
    (weights / "config.json").write_text(json.dumps(found))
    sizes = {f"{CRITIC}.{key}": str(weights) if value == "weights" else value for key, value in changes.items()}
    with pytest.raises(UserError, match=re.escape(message)):
        check(sizes)


def test_a_vision_tower_may_be_made_for_a_size_that_is_no_multiple_of_its_patches(weights: Path) -> None:
    """As so400m-patch14-384 is."""
    (weights / "config.json").write_text(json.dumps({"image_size": 384, "patch_size": 14}))
    check({f"{STEAM}.model.siglip_path": str(weights), f"{STEAM}.model.image_size": 384})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a model's configuration; copy the folder of critics.value.model.siglip_path again"),
        ("[]", "not a model's configuration; copy the folder"),
        ('{"vision_config": null}', "not a model's configuration; copy the folder"),
        ('{"hidden_size": "32"}', "hidden_size is '32', not a size; copy the folder again"),
    ],
)
def test_a_damaged_configuration_of_weights_is_one_line(weights: Path, content: str, message: str) -> None:
    (weights / "config.json").write_text(content)
    with pytest.raises(UserError, match=f"config.json: {message}"):
        check({f"{CRITIC}.siglip_path": str(weights)})


def test_every_part_of_sharded_weights_is_there(weights: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    (weights / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(UserError, match=r"has no model-00002-of-00002.safetensors; copy the whole folder"):
        check({f"{CRITIC}.siglip_path": str(weights)})
