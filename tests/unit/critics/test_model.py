import dataclasses
import json

import pytest
import torch
import yaml

from recap_steam.critics.architecture import Architecture
from recap_steam.critics.model import ValueCritic
from recap_steam.errors import UserError
from recap_steam.model_config import EXPERT_VARIANTS
from recap_steam.schema import SCHEMA_PATH
from tests.unit.critics.small import GEMMA3, SIGLIP, architecture, batch, critic


def logits(model: ValueCritic, *inputs) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs)


def test_padding_of_the_prompt_changes_nothing():
    *pictures, tokens, mask = batch()
    padded = torch.cat([tokens, torch.full((3, 4), 7)], 1)
    padded_mask = torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], 1)
    model = critic()
    torch.testing.assert_close(logits(model, *pictures, tokens, mask), logits(model, *pictures, padded, padded_mask))


def test_samples_do_not_see_each_other():
    images, places, *rest = batch()
    model = critic()
    alone = logits(model, images[2:4], places[:2], *(part[1:2] for part in rest))
    torch.testing.assert_close(logits(model, images, places, *rest)[1:2], alone)


def test_an_absent_camera_is_as_if_the_critic_did_not_have_it():
    """Sample 1 lacks the second of two cameras; its logits are those of a critic with one camera."""
    images, places, camera_mask, tokens, mask = batch()
    model, there = critic(), torch.arange(6) != 3
    camera_mask[1, 1] = False
    found = logits(model, images[there], places[there], camera_mask, tokens, mask)
    one_camera = logits(model, images[2:3], torch.tensor([0]), torch.ones(1, 1, dtype=torch.bool), tokens[1:2], mask[1:2])
    torch.testing.assert_close(found[1:2], one_camera)
    whole = logits(model, *batch())
    torch.testing.assert_close(found[[0, 2]], whole[[0, 2]])
    assert (found[1] - whole[1]).abs().max() > 1e-4


def test_defect_42_only_images_that_exist_are_encoded():
    images, places, camera_mask, tokens, mask = batch()
    model, encoded = critic(), []
    model.vision.register_forward_pre_hook(lambda module, args, kwargs: encoded.append(len(kwargs["pixel_values"])), with_kwargs=True)
    camera_mask[0, 1] = camera_mask[2, 0] = False
    there = camera_mask.flatten()
    logits(model, images[there], places[there], camera_mask, tokens, mask)
    assert encoded == [4]


def test_every_input_reaches_the_value():
    """The prefix is bidirectional: the first image token hears of the last word."""
    images, *pictures, tokens, mask = batch()
    images.requires_grad_()
    model = critic()
    hidden = model.text.embed(tokens).detach().requires_grad_()
    prefix = model.text(hidden, mask)
    keys = prefix[1][0]  # of layer 1, so after one round of attention
    assert torch.autograd.grad(keys[:, :, 0].sum(), hidden)[0][:, -1].abs().sum() > 0
    gradient = torch.autograd.grad(model(images, *pictures, tokens, mask).square().sum(), images)[0]
    assert (gradient.abs().sum((1, 2, 3)) > 0).all()  # each camera of each sample


@pytest.mark.parametrize("frozen", [(), ("text",), ("vision",), ("text", "vision")])
def test_defect_29_every_trained_parameter_gets_a_gradient(frozen):
    model = critic()
    for part in frozen:
        getattr(model, part).requires_grad_(False)
    model(*batch()).square().sum().backward()
    used = {name: p.grad is not None and p.grad.abs().max() > 0 for name, p in model.named_parameters()}
    assert {name for name, is_used in used.items() if is_used} == {name for name, p in model.named_parameters() if p.requires_grad}


def test_defect_29_queries_are_rotated_like_the_keys_that_they_meet():
    """Gemma3's sixth layer is global and has another base than the local ones."""
    model = critic(gemma3_config={**GEMMA3, "num_hidden_layers": 18}, critic_expert_variant="gemma_50m")
    assert [index for index, kind in enumerate(model.expert.layer_types) if kind == "full_attention"] == [5, 11, 17]
    assert model.expert.layer_types == model.text.layer_types
    rotations = model.text.rotations(torch.zeros(1, 1, 16), torch.tensor([[5]]))
    for kind, theta in {"sliding_attention": 1e4, "full_attention": 1e6}.items():
        angles = 5 / theta ** (torch.arange(0, 8, 2) / 8)
        torch.testing.assert_close(rotations[kind][0][0, 0], angles.repeat(2).cos())


def test_bf16_autocast_runs_and_agrees_roughly():
    model, inputs = critic(), batch()
    with torch.autocast("cpu", torch.bfloat16):
        low = logits(model, *inputs)
    assert low.dtype == torch.float32 and not torch.equal(low, low.bfloat16().float())  # the head itself is not in bf16
    torch.testing.assert_close(low, logits(model, *inputs), atol=0.02, rtol=0.1)


def test_the_whole_forward_compiles():
    """Into one graph: a break would split every layer. The backend does not matter for that."""
    model, inputs = critic(), batch()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(*inputs), model(*inputs))


def test_defect_30_initialisation_is_seeded():
    first, again, other = critic(seed=1).state_dict(), critic(seed=1).state_dict(), critic(seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["expert.token"], other["expert.token"])


def test_value_parameters_are_the_token_and_the_head():
    model = critic()
    names = {name for name, p in model.named_parameters() if any(p is q for q in model.value_parameters())}
    assert names == {"expert.token", "head.1.weight", "head.1.bias"}


def test_the_schema_offers_exactly_the_expert_variants():
    schema = yaml.safe_load(SCHEMA_PATH.read_text())
    assert schema["$defs"]["recap_model"]["properties"]["critic_expert_variant"]["enum"] == list(EXPERT_VARIANTS)


def test_architecture_survives_json():
    sizes = architecture()
    assert Architecture.from_json(json.loads(json.dumps(dataclasses.asdict(sizes)))) == sizes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"siglip_config": {**SIGLIP, "num_attention_heads": 3}},
            r"siglip_config\.hidden_size: 16 is not a multiple of num_attention_heads 3",
        ),
        ({"gemma3_config": {**GEMMA3, "num_attention_heads": 3}}, r"hidden size \(16\) is not a multiple of the number of attention heads"),
        ({"gemma3_config": {**GEMMA3, "num_attention_heads": 4, "num_key_value_heads": 3}}, "4 is not a multiple of num_key_value_heads 3"),
        ({"gemma3_config": {**GEMMA3, "num_key_value_heads": 2}, "critic_expert_variant": "gemma_1m"}, "has 1 heads, not a multiple"),
        ({"gemma3_config": {**GEMMA3, "head_dim": 7}}, r"gemma3_config\.head_dim: 7 is odd"),
        ({"gemma3_config": {**GEMMA3, "num_hidden_layers": 3}}, "reads 4 text layers, gemma3 has 3"),
        ({"image_size": 20}, "20 is not a multiple of the vision tower's patch size 8"),
        ({"siglip_config": None}, "needs siglip_path"),
        ({"gemma3_path": "/nowhere"}, "/nowhere/config.json: not found; gemma3_path must be a local folder"),
    ],
)
def test_parts_that_do_not_fit_are_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        architecture(**changes)
