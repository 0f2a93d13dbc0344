import dataclasses

import pytest
import torch
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from safetensors.torch import save_file

from recap_steam.errors import UserError
from recap_steam.policy import pi05
from tests.policies import CONFIG, MODEL, SMALL, make_policy


@pytest.fixture
def weights(policy):
    return {f"model.{name}": tensor.clone() for name, tensor in policy.model.state_dict().items()}


def refused(policy, tensors, tmp_path):
    save_file(tensors, tmp_path / "model.safetensors")
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    with pytest.raises(UserError) as error:
        pi05.load_weights(policy, tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    return str(error.value)


def test_small_sizes_reach_every_part_and_the_stock_constructors_come_back():
    stock = modeling_pi05.get_gemma_config("gemma_2b").width
    trunk = pi05.build(CONFIG, SMALL).model.paligemma_with_expert
    assert modeling_pi05.get_gemma_config("gemma_2b").width == stock == 2048
    assert trunk.paligemma.model.language_model.embed_tokens.weight.shape == (SMALL.vocab_size, SMALL.width)
    assert trunk.gemma_expert.model.layers[0].mlp.gate_proj.weight.shape == (SMALL.expert_mlp_dim, SMALL.expert_width)
    assert trunk.paligemma.model.vision_tower.vision_model.embeddings.patch_embedding.weight.shape == (SMALL.vision_width, 3, 16, 16)
    assert sum(parameter.numel() for parameter in trunk.parameters()) < 200_000


def test_full_size_has_the_published_parameter_count():
    with torch.device("meta"), pi05.sizes(None):
        model = modeling_pi05.PI05Pytorch(CONFIG)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(4.14e9, rel=0.01)


def test_every_trained_parameter_gets_a_gradient(policy):
    torch.manual_seed(0)
    tokens, mask = torch.randint(0, 512, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
    actions, noise = torch.randn(2, 2, CONFIG.chunk_size, CONFIG.max_action_dim)
    loss = policy.model([torch.rand(2, 3, 32, 32)], [torch.ones(2, dtype=torch.bool)], tokens, mask, actions, noise, torch.rand(2))
    loss.mean().backward()
    without = [name for name, parameter in policy.named_parameters() if parameter.requires_grad and parameter.grad is None]
    assert without == []


@pytest.mark.parametrize("flag", ["train_expert_only", "freeze_vision_encoder"])
def test_frozen_parts_do_not_train(flag):
    policy = pi05.build(pi05.make_config(dataclasses.replace(MODEL, **{flag: True}), ["observation.images.front"], 3, 2), SMALL)
    trainable = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    assert trainable and not any("vision_tower" in name for name in trainable)
    assert any("language_model" in name for name in trainable) == (flag == "freeze_vision_encoder")


def test_weights_survive_the_round_trip_with_and_without_prefix(policy, weights, tmp_path):
    other = pi05.build(CONFIG, SMALL)
    for tensors in (weights, {name.removeprefix("model."): tensor for name, tensor in weights.items()}):
        save_file(tensors, tmp_path / "model.safetensors")
        pi05.load_weights(other, tmp_path / "model.safetensors")
        assert all(torch.equal(tensor, weights[name]) for name, tensor in other.state_dict().items())


def test_openpi_files_hold_the_embedding_as_language_model_head(weights, tmp_path):
    embedding = weights.pop(f"model.{pi05.EMBEDDING}")
    weights[f"model.{pi05.LM_HEAD}"] = embedding
    save_file(weights, tmp_path / "model.safetensors")
    other = pi05.build(CONFIG, SMALL)
    pi05.load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(other.model.get_parameter(pi05.EMBEDDING), embedding)


def test_missing_unknown_and_misshapen_tensors_are_errors_where_lerobot_goes_on_with_random_weights(policy, weights, tmp_path):
    name = "model.action_in_proj.weight"
    tensor = weights.pop(name)
    assert "missing tensor action_in_proj.weight" in refused(policy, weights, tmp_path)
    assert "unknown tensor extra" in refused(policy, {**weights, name: tensor, "model.extra": torch.zeros(1)}, tmp_path)
    assert "(32, 31)" in refused(policy, {**weights, name: tensor[:, :31].clone()}, tmp_path)
    CONFIG.save_pretrained(tmp_path)
    with pi05.sizes(SMALL):  # what the checks are for
        stock = PI05Policy.from_pretrained(tmp_path)
    assert not torch.equal(stock.model.action_in_proj.weight[:, :31], tensor[:, :31])


def test_unreadable_weights_are_one_line(policy, tmp_path):
    with pytest.raises(UserError, match=r"missing\.safetensors: not readable"):
        pi05.load_weights(policy, tmp_path / "missing.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not a tensor file")
    with pytest.raises(UserError, match=r"broken\.safetensors: not readable"):
        pi05.load_weights(policy, tmp_path / "broken.safetensors")


def test_initialisation_is_seeded():
    one, other = make_policy(), make_policy()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_impossible_sizes_name_the_key():
    with pytest.raises(UserError, match="at most 32"):
        pi05.make_config(MODEL, ["observation.images.front"], 40, 2)
