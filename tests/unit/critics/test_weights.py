import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from recap_steam.critics.weights import load_pretrained
from recap_steam.errors import UserError
from tests.unit.critics.small import SIX_LAYERS, TEXT_TOWER, VISION, architecture, batch, critic


def loaded(folders, siglip: str | None = None, gemma: str | None = None, seed: int = 0):
    root, _ = folders
    model = critic(seed, **({"siglip_path": str(root / siglip)} if siglip else {}), **({"gemma3_path": str(root / gemma)} if gemma else {}))
    load_pretrained(model, siglip and str(root / siglip), gemma and str(root / gemma))
    return model


@pytest.mark.parametrize("name", ["siglip", "tower"])
def test_vision_tower_computes_what_the_pretrained_one_does(folders, name):
    tower = folders[1][name] if name == "tower" else folders[1][name].vision_model
    images = batch()[0]
    with torch.no_grad():
        assert torch.equal(loaded(folders, siglip=name).vision(pixel_values=images).last_hidden_state, tower(images).last_hidden_state)


@pytest.mark.parametrize("name", ["gemma", "text"])
def test_keys_and_values_are_those_of_the_pretrained_text_model(folders, name):
    from transformers.cache_utils import DynamicCache

    whole = folders[1][name] if name == "text" else folders[1][name].model
    text = loaded(folders, gemma=name).text
    tokens, cache = batch()[3], DynamicCache()
    everything = torch.ones(3, 1, 5, 5, dtype=torch.bool)
    with torch.no_grad():
        whole(tokens, attention_mask=dict.fromkeys(("full_attention", "sliding_attention"), everything), past_key_values=cache)
        prefix = text(text.embed(tokens), torch.ones(3, 5, dtype=torch.bool))
    assert len(prefix) == 4
    for (keys, values), layer in zip(prefix, cache.layers, strict=False):
        torch.testing.assert_close(keys, layer.keys)
        torch.testing.assert_close(values, layer.values)


def test_only_the_given_parts_are_loaded_and_all_of_them(folders):
    before, after = critic(seed=5, siglip_path=None), loaded(folders, "siglip", "gemma", seed=5)
    same = {name for name, tensor in after.state_dict().items() if torch.equal(tensor, before.state_dict()[name])}
    fresh = {name for name in after.state_dict() if name.startswith(("projection", "expert", "head"))}
    constant = {name for name in after.state_dict() if "norm" in name or name.endswith("bias")}  # equal in every fresh model
    assert fresh <= same <= fresh | constant
    assert not any("text_model" in name or "lm_head" in name or ".head." in name for name in after.state_dict())


def damaged(folders, tmp_path, name, change):
    root = folders[0]
    target = tmp_path / name
    target.mkdir()
    (target / "config.json").write_bytes((root / name / "config.json").read_bytes())
    tensors = load_file(root / name / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    return str(target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), "lacks tensor model.layers.1.mlp.up_proj.weight"),
        (lambda t: t.update(surprise=torch.zeros(2)), "has an unknown tensor surprise"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(3)}), "has a misshapen tensor model.norm.weight"),
    ],
)
def test_defect_15_every_missing_extra_or_misshapen_tensor_is_an_error(folders, tmp_path, change, message):
    path = damaged(folders, tmp_path, "gemma", change)
    with pytest.raises(UserError, match=message):
        load_pretrained(critic(gemma3_path=path), None, path)


def test_defect_15_a_folder_without_weights_is_an_error(folders, tmp_path):
    (tmp_path / "config.json").write_bytes((folders[0] / "siglip/config.json").read_bytes())
    with pytest.raises(UserError, match="there are no weights to load"):
        load_pretrained(critic(siglip_path=str(tmp_path)), str(tmp_path), None)


def test_other_architectures_are_refused(folders, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(UserError, match="architecture LlamaForCausalLM; gemma3_path must hold one of"):
        load_pretrained(critic(), None, str(tmp_path))


HUB_SIGLIP2 = {  # as the hub's folder has it: what is transformers' default is left out
    "architectures": ["SiglipModel"],
    "initializer_factor": 1.0,
    "model_type": "siglip",
    "text_config": {**TEXT_TOWER, "model_type": "siglip_text_model", "projection_size": 16},
    "torch_dtype": "float32",
    "transformers_version": "4.49.0.dev0",
    "vision_config": {**VISION, "model_type": "siglip_vision_model"},
}
HUB_GEMMA3 = {
    **SIX_LAYERS,
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 8,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "rope_theta": 2000000.0,
    "sliding_window": 512,
    "torch_dtype": "bfloat16",
}
LAYER_TYPES = ["sliding_attention"] * 5 + ["full_attention"]


def hub_folder(path, config: dict, model) -> str:
    """A folder with these configuration and the model's tensors in bf16, under the names of the hub's files."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    names = [name for name in model.state_dict() if name != "lm_head.weight"]  # tied, so the file does not have it
    assert {name.split(".")[0] for name in names} <= {"model", "vision_model", "text_model", "logit_scale", "logit_bias"}
    save_file({name: model.state_dict()[name].bfloat16().contiguous() for name in names}, path / "model.safetensors")
    return str(path)


def test_a_folder_of_siglip2_as_it_is_published_loads(folders, tmp_path):
    path = hub_folder(tmp_path / "siglip2", HUB_SIGLIP2, folders[1]["siglip"])
    model = critic(siglip_path=path, siglip_config=None)
    load_pretrained(model, path, None)
    expected = folders[1]["siglip"].vision_model.state_dict()
    assert all(
        torch.equal(tensor, expected[name.removeprefix("vision_model.")].bfloat16().float())
        for name, tensor in model.vision.state_dict().items()
    )


@pytest.mark.parametrize(
    "layers", [{"layer_types": LAYER_TYPES, "_sliding_window_pattern": 6}, {"sliding_window_pattern": 6}], ids=["new", "old"]
)
def test_a_folder_of_gemma3_as_it_is_published_loads(folders, tmp_path, layers):
    path = hub_folder(tmp_path / "gemma3", HUB_GEMMA3 | layers, folders[1]["gemma"])
    model = critic(gemma3_path=path, gemma3_config=None)
    load_pretrained(model, None, path)
    assert architecture(gemma3_path=path, gemma3_config=None).gemma3["layer_types"] == LAYER_TYPES
    expected = folders[1]["gemma"].model.embed_tokens.weight.bfloat16().float()
    assert torch.equal(model.text.embed.weight, expected) and model.text.layer_types == LAYER_TYPES[:4]
    cosine = model.text.rotations(torch.zeros(1, 1, 16), torch.tensor([[5]]))["sliding_attention"][0]
    torch.testing.assert_close(cosine[0, 0, :4], (5 / 1e4 ** (torch.arange(0, 8, 2) / 8)).cos())
    rope = architecture(gemma3_path=path, gemma3_config=None).gemma3["rope_parameters"]
    assert rope["full_attention"]["rope_theta"] == 2e6 and rope["sliding_attention"]["rope_theta"] == 1e4
