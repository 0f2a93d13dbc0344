import dataclasses

import pytest
import torch
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from safetensors.torch import load_file, save_file

from recap_steam.errors import UserError
from recap_steam.policy import pi05
from tests.policies import CONFIG, MODEL, SMALL, make_policy, perturb


def stock_layout(policy, folder):
    """As lerobot saves it."""
    policy.save_pretrained(folder)


def openpi_layout(policy, folder):
    """As openpi's converter saves it by default: bf16, without prefix, and the tied embedding under its head's name only."""
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in policy.model.state_dict().items()}
    tensors[pi05.LM_HEAD] = tensors.pop(pi05.EMBEDDING)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")


def damaged(policy, folder, change):
    stock_layout(policy, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_small_sizes_reach_every_part_and_the_stock_constructors_come_back():
    stock = modeling_pi05.get_gemma_config("gemma_2b").width
    trunk = pi05.build(CONFIG, SMALL, initialise=True).model.paligemma_with_expert
    assert modeling_pi05.get_gemma_config("gemma_2b").width == stock == 2048
    assert trunk.paligemma.model.language_model.embed_tokens.weight.shape == (SMALL.vocab_size, SMALL.width)
    assert trunk.gemma_expert.model.layers[0].mlp.gate_proj.weight.shape == (SMALL.expert_mlp_dim, SMALL.expert_width)
    assert trunk.paligemma.model.vision_tower.vision_model.embeddings.patch_embedding.weight.shape == (SMALL.vision_width, 3, 16, 16)
    assert sum(parameter.numel() for parameter in trunk.parameters()) < 200_000


def test_full_size_has_the_published_parameters():
    config = pi05.make_config(dataclasses.replace(MODEL, image_size=224), ["observation.images.front"], 32, 32)
    with torch.device("meta"):
        model = modeling_pi05.PI05Pytorch(config)
    trunk = model.paligemma_with_expert
    language, layer = trunk.paligemma.model.language_model, trunk.gemma_expert.model.layers[17]
    assert count(model) == 4_143_404_816  # of which the two heads that nothing reads:
    assert count(trunk.paligemma.lm_head) == 526_647_296 and count(trunk.gemma_expert.lm_head) == 263_323_648
    assert count(trunk.paligemma.model.vision_tower) == 412_442_352
    assert count(language) == 2_508_531_712 and len(language.layers) == 18
    assert count(trunk.gemma_expert.model) == 427_932_672
    assert language.embed_tokens.weight.shape == (257_152, 2048)
    assert language.layers[0].mlp.gate_proj.weight.shape == (16_384, 2048)
    assert layer.self_attn.q_proj.weight.shape == (2048, 1024) and layer.self_attn.k_proj.weight.shape == (256, 1024)
    assert model.action_in_proj.weight.shape == (1024, 32) and model.action_out_proj.weight.shape == (32, 1024)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_trained_parameter_gets_a_gradient(policy):
    flow_error(policy).mean().backward()
    without = [name for name, parameter in policy.named_parameters() if parameter.requires_grad and parameter.grad is None]
    assert without == []


def frozen(name, flags):
    """What must not train, by name: parts that nothing reads, and what the flags freeze."""
    last = f"language_model.layers.{SMALL.depth - 1}."
    unread = (
        "lm_head",
        "language_model.norm",
        f"{last}self_attn.q_proj",
        f"{last}self_attn.o_proj",
        f"{last}mlp",
        f"{last}post_attention_layernorm",
    )
    prefix = "paligemma_with_expert.paligemma." if flags.get("train_expert_only") else None
    vision = "vision_tower" if flags.get("freeze_vision_encoder") else None
    return any(part and part in name for part in (*unread, prefix, vision))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("flags", [{}, {"train_expert_only": True}, {"freeze_vision_encoder": True}], ids=str)
def test_exactly_the_right_parameters_change(flags, checkpointing):
    torch.manual_seed(0)
    config = pi05.make_config(dataclasses.replace(MODEL, **flags), ["observation.images.front"], 3, 2)
    policy = pi05.build(config, SMALL, initialise=True)
    perturb(policy)
    if checkpointing:
        pi05.enable_gradient_checkpointing(policy.model)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    optimizer = torch.optim.SGD([parameter for parameter in policy.parameters() if parameter.requires_grad], lr=0.1)
    policy.train()
    flow_error(policy).mean().backward()
    optimizer.step()
    changed = {name for name, parameter in policy.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if not frozen(name, flags)}


def test_defect_22_gradient_checkpointing_recomputes_on_every_step_with_equal_gradients(policy):
    """The reference switches it off at every step."""
    calls, trunk = [], policy.model.paligemma_with_expert
    watched = [
        trunk.gemma_expert.model.layers[1],
        trunk.paligemma.model.language_model.layers[0],
        trunk.paligemma.model.vision_tower.vision_model.encoder.layers[0],
    ]
    for layer in watched:
        layer.self_attn.q_proj.register_forward_hook(lambda *_: calls.append(1))
    gradients, counts = [], []
    for checkpointing in (False, True):
        if checkpointing:
            pi05.enable_gradient_checkpointing(policy.model)
        for _ in range(3):
            calls.clear()
            policy.train()
            policy.zero_grad()
            loss = flow_error(policy).mean()
            forward = len(calls)
            loss.backward()
            counts.append((forward, len(calls)))
            trained = {name: parameter.grad for name, parameter in policy.named_parameters() if parameter.requires_grad}
            gradients.append((loss.detach(), trained))
    assert counts == [(3, 3)] * 3 + [(3, 6)] * 3
    for loss, trained in gradients[1:]:
        assert torch.equal(loss, gradients[0][0])
        assert all(torch.equal(gradient, gradients[0][1][name]) for name, gradient in trained.items())


@pytest.mark.parametrize("layout", [stock_layout, openpi_layout])
@pytest.mark.parametrize("initialise", [True, False])
def test_both_layouts_load_whether_or_not_the_model_was_initialised(policy, tmp_path, layout, initialise):
    layout(policy, tmp_path)
    other = pi05.build(CONFIG, SMALL, initialise=initialise).eval()
    pi05.load_weights(other, tmp_path)
    expected = {
        name: tensor.to(torch.bfloat16).float() if layout is openpi_layout else tensor for name, tensor in policy.model.state_dict().items()
    }
    if layout is openpi_layout:
        expected[pi05.LM_HEAD] = expected[pi05.EMBEDDING]
    for name, tensor in other.model.state_dict().items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, expected[name]), name
    policy.model.load_state_dict(expected)
    for (name, buffer), (_, stock) in zip(other.named_buffers(), policy.named_buffers(), strict=True):
        assert torch.equal(buffer, stock), name  # rotary frequencies and embedding scale are in no file
    assert torch.equal(flow_error(other), flow_error(policy))


def flow_error(policy):
    generator = torch.Generator().manual_seed(0)
    actions, noise = torch.randn(2, 2, CONFIG.chunk_size, CONFIG.max_action_dim, generator=generator)
    tokens, mask = torch.randint(0, SMALL.vocab_size, (2, 8), generator=generator), torch.ones(2, 8, dtype=torch.bool)
    images, time = torch.rand(2, 3, 32, 32, generator=generator), torch.rand(2, generator=generator)
    return policy.model([images], [torch.ones(2, dtype=torch.bool)], tokens, mask, actions, noise, time)


@pytest.mark.parametrize("dropped", [pi05.EMBEDDING, pi05.LM_HEAD])
def test_one_name_of_a_tied_embedding_suffices_and_none_does_not(policy, tmp_path, dropped):
    folder = damaged(policy, tmp_path, lambda tensors: tensors.pop(f"model.{dropped}"))
    other = pi05.build(CONFIG, SMALL, initialise=False)
    pi05.load_weights(other, folder)
    kept = policy.model.get_parameter(({pi05.EMBEDDING, pi05.LM_HEAD} - {dropped}).pop())
    assert torch.equal(other.model.get_parameter(dropped), kept)
    folder = damaged(policy, tmp_path, lambda tensors: [tensors.pop(f"model.{name}") for name in (pi05.EMBEDDING, pi05.LM_HEAD)])
    with pytest.raises(UserError, match=f"lacks tensor {pi05.LM_HEAD} and 1 more"):
        pi05.load_weights(other, folder)


IN, EXPERT = "model.action_in_proj.weight", "model.paligemma_with_expert.gemma_expert"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(IN), "lacks tensor action_in_proj.weight"),
        (lambda t: t.pop(f"{EXPERT}.lm_head.weight"), "lacks tensor .*gemma_expert.lm_head.weight"),
        (lambda t: t.update({"model.extra": torch.zeros(1)}), "has an unknown tensor extra"),
        (lambda t: t.update({f"{EXPERT}.model.norm.weight": torch.zeros(32)}), "has an unknown tensor .*gemma_expert.model.norm.weight"),
        (
            lambda t: t.update({IN: t[IN][:, :31].clone()}),
            r"has a misshapen tensor action_in_proj.weight: \(32, 31\) instead of \(32, 32\)",
        ),
        (lambda t: t.update({"state_proj.bias": torch.zeros(32)}), "weights of pi0, this is pi0.5"),
        (lambda t: t.update({"model.action_time_mlp_in.bias": t.pop("model.time_mlp_in.bias")}), "weights of pi0, this is pi0.5"),
    ],
)
def test_what_lerobot_skips_renames_or_warns_of_is_an_error(policy, tmp_path, change, message):
    folder = damaged(policy, tmp_path, change)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    with pytest.raises(UserError, match=message):
        pi05.load_weights(policy, folder)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())


def test_where_lerobot_returns_random_weights(policy, tmp_path):
    folder = damaged(policy, tmp_path, lambda t: t.update({IN: t[IN][:, :31].clone()}))
    with pi05.sizes(SMALL):  # what the checks are for
        stock = PI05Policy.from_pretrained(folder)
    assert not torch.equal(stock.model.action_in_proj.weight[:, :31], policy.model.action_in_proj.weight[:, :31])


def test_initialisation_is_seeded():
    one, other = make_policy(), make_policy()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_impossible_sizes_name_the_key():
    with pytest.raises(UserError, match="at most 32"):
        pi05.make_config(MODEL, ["observation.images.front"], 40, 2)
