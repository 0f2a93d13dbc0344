import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from recap_steam.critics.folder import load_critic
from recap_steam.errors import UserError
from recap_steam.labels.normalizer import ReturnNormalizer
from tests.unit.critics.experiment import CAMERA
from tests.unit.critics.small import batch


@pytest.fixture
def copy(critic_dir, tmp_path):
    return shutil.copytree(critic_dir, tmp_path / "copy")


def test_the_folder_alone_suffices(copy):
    critic = load_critic(copy)
    assert critic.card.camera_maps == {"demonstrations": {CAMERA: CAMERA}, "rollouts": {CAMERA: CAMERA}}
    assert critic.card.cameras == [CAMERA] and critic.card.image_size == 16 and critic.card.prompt_template == "Task: {prompt}."
    assert ReturnNormalizer.load(copy).return_min == -21.0  # 11 steps and the failure reward
    tokens = critic.card.prompts(["open the drawer"], critic.tokenizer).take([0])
    assert tokens[0][0] == critic.tokenizer.bos_token_id
    weights = load_file(copy / "model.safetensors")
    assert weights.keys() == critic.model.state_dict().keys() and {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert not critic.model.training
    with torch.no_grad():
        assert critic.model(*batch(cameras=1)).shape == (3, 201)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("expert.token"), "lacks tensor expert.token"),
        (lambda weights: weights.update(extra=torch.zeros(1)), "has an unknown tensor extra"),
        (
            lambda weights: weights.update({"head.1.bias": torch.zeros(101)}),
            r"misshapen tensor head.1.bias: \(101,\) instead of \(201,\)",
        ),
    ],
)
def test_defect_15_a_damaged_folder_never_labels(copy, change, message):
    weights = load_file(copy / "model.safetensors")
    change(weights)
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(UserError, match=message):
        load_critic(copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer/tokenizer.json"])
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(UserError, match=f"{name}: not found"):
        load_critic(copy)


@pytest.mark.parametrize("content", ["{", "{}", '{"model_type": "pi05"}'])
def test_another_configuration_is_refused(copy, content):
    (copy / "config.json").write_text(content)
    with pytest.raises(UserError, match="not a critic's configuration"):
        load_critic(copy)


def test_truncated_weights_are_refused(copy):
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_critic(copy)


def test_evaluation_is_valid_json_with_baselines(critic_dir):
    evaluation = json.loads((critic_dir / "evaluation.json").read_text(), parse_constant=pytest.fail)
    values = {"loss", "mae", "cat_acc_best", "cat_acc_neighbor", "spearman"}
    groups = {"outcome=success", "outcome=failure", "task=Open the drawer.", "task=close_it"}
    judged = values | {f"{name}/{group}" for name in values for group in groups}
    judged |= {"success_auc"} | {f"success_auc/time={k}" for k in range(10)}
    expected = {f"{title}/{name}" for title in ("eval", "baseline_constant", "baseline_time") for name in judged}
    expected |= {f"eval/calibration_{side}/decile={k}" for side in ("value", "return") for k in range(10)}
    assert evaluation.keys() == expected | {f"eval_train/{name}" for name in values} | {"gap/loss", "gap/mae"}
    assert evaluation["baseline_constant/spearman"] is None and evaluation["baseline_time/spearman"] is not None
    assert evaluation["baseline_constant/success_auc"] == 0.5
