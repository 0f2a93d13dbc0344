import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from recap_steam.critics.architecture import ProgressArchitecture
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.critics.weights import load_pretrained
from recap_steam.errors import UserError
from tests.unit.critics.small import SIX_LAYERS, VISION, batch, pair_batch, progress_architecture, progress_critic

NARROW = {**SIX_LAYERS, "sliding_window": 2}  # narrower than the prompts here; the sixth layer sees all


def logits(model: ProgressCritic, *inputs) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs)


def test_pairs_of_a_call_are_judged_as_if_alone():
    """Frames and prompts are shared by the pairs of a call, which do not see each other."""
    images, _, camera_mask, first, second, tokens, mask, prompt = pair_batch()
    model = progress_critic()
    together = logits(model, *pair_batch())
    assert together.dtype == torch.float32 and together.shape == (6, 4)
    for pair in range(6):
        rows = torch.stack([first[pair], second[pair]])
        pictures = images.unflatten(0, camera_mask.shape)[rows].flatten(0, 1)
        own = pictures, torch.arange(4), camera_mask[rows], torch.tensor([0]), torch.tensor([1])
        alone = logits(model, *own, tokens[prompt[pair]][None], mask[prompt[pair]][None], torch.tensor([0]))
        torch.testing.assert_close(together[pair : pair + 1], alone)


def test_the_order_of_the_frames_and_the_prompt_matter():
    images, places, camera_mask, first, second, tokens, mask, prompt = pair_batch()
    model = progress_critic()
    found = logits(model, *pair_batch())
    swapped = logits(model, images, places, camera_mask, second, first, tokens, mask, prompt)
    assert (found - swapped).abs().min(1).values.max() > 1e-4
    other = logits(model, images, places, camera_mask, first, second, tokens, mask, 1 - prompt)
    assert (found - other).abs().max(1).values.min() > 1e-5


def test_a_frame_is_the_mean_over_its_cameras():
    images, places, camera_mask, *_ = pair_batch()
    model = progress_critic()
    with torch.no_grad():
        both = model.encode_frames(images, places, camera_mask)
        single = model.encode_frames(images, torch.arange(8), torch.ones(8, 1, dtype=torch.bool)).unflatten(0, (4, 2))
        torch.testing.assert_close(both, single.mean(1))
        there = torch.arange(8) != 3
        camera_mask[1, 1] = False
        found = model.encode_frames(images[there], places[there], camera_mask)
    torch.testing.assert_close(found[1], single[1, 0])
    torch.testing.assert_close(found[[0, 2, 3]], both[[0, 2, 3]])


def test_padding_of_the_prompt_changes_nothing():
    *_, tokens, mask, _ = pair_batch()
    padded = torch.cat([tokens, torch.full((2, 4), 7)], 1)
    padded_mask = torch.cat([mask, torch.zeros(2, 4, dtype=torch.bool)], 1)
    model = progress_critic(gemma3_config=NARROW)
    with torch.no_grad():
        torch.testing.assert_close(model.encode_prompts(tokens, mask), model.encode_prompts(padded, padded_mask))
    assert all(sees.any(-1).all() for sees in model._text_masks(padded_mask).values())  # also where the window holds padding only


def test_text_is_what_gemma_computes():
    """With its own masks, causal in every layer and within a window in some; mean over the tokens."""
    tokens, mask = batch()[3:]
    mask[1, 3:] = False
    model = progress_critic(gemma3_config=NARROW)
    with torch.no_grad():
        hidden = model.text(tokens, attention_mask=mask.long()).last_hidden_state
        expected = torch.stack([hidden[row, mask[row]].mean(0) for row in range(3)])
        torch.testing.assert_close(model.encode_prompts(tokens, mask), model.text_projector(expected))


@pytest.mark.parametrize("frozen", [(), ("text",), ("vision",), ("text", "vision")])
def test_defect_29_every_trained_parameter_gets_a_gradient(frozen):
    model = progress_critic()
    for part in frozen:
        getattr(model, part).requires_grad_(False)
    model(*pair_batch()).square().sum().backward()
    used = {name: p.grad is not None and p.grad.abs().max() > 0 for name, p in model.named_parameters()}
    assert {name for name, is_used in used.items() if is_used} == {name for name, p in model.named_parameters() if p.requires_grad}


def test_recomputed_activations_give_the_same_gradients():
    found = []
    for recompute in (False, True):
        model = progress_critic().train()
        if recompute:
            model.enable_gradient_checkpointing()
        model(*pair_batch()).square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in found[0].items():
        assert torch.equal(gradient, found[1][name]), name


def test_the_whole_forward_compiles():
    model, inputs = progress_critic(), pair_batch()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(*inputs), model(*inputs))


def test_bf16_autocast_agrees_roughly_and_the_logits_stay_exact():
    model, inputs = progress_critic(), pair_batch()
    with torch.autocast("cpu", torch.bfloat16):
        low = logits(model, *inputs)
    assert low.dtype == torch.float32 and not torch.equal(low, low.bfloat16().float())
    torch.testing.assert_close(low, logits(model, *inputs), atol=0.02, rtol=0.1)


def test_a_new_head_leaves_the_backbone():
    model = progress_critic()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    model.reset_head()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.1.weight", "head.1.bias", "head.4.weight", "head.4.bias"}


def test_there_is_nothing_that_is_not_read():
    names = progress_critic().state_dict()
    assert not any("lm_head" in name or "text_model" in name for name in names)
    assert {name.split(".")[0] for name in names} == {"vision", "vision_projector", "text", "text_projector", "head"}


def test_architecture_survives_json():
    sizes = progress_architecture()
    assert ProgressArchitecture(**json.loads(json.dumps(dataclasses.asdict(sizes)))) == sizes


def test_parameters_at_full_size():
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14}
    text = {"hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1}
    text |= {"head_dim": 256, "vocab_size": 262144}
    sizes = progress_architecture(siglip_config=vision, gemma3_config=text, image_size=224, fusion_hidden_dim=512, num_bins=32)
    with torch.device("meta"):
        model = ProgressCritic(sizes)
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    pooling = 1152 + (4 * 1152 + 4) * 1152 + (1152 + 1) * 4304 + (4304 + 1) * 1152 + 2 * 1152  # probe, attention, feed-forward, norm
    assert counts == {
        "vision": 412_442_352 + pooling,  # without its pooling head: see test_full_size
        "vision_projector": (1152 + 1) * 512,
        "text": 268_098_176,
        "text_projector": (640 + 1) * 512,
        "head": 2 * 3 * 512 + (3 * 512 + 1) * 512 + (512 + 1) * 32,
    }


@pytest.mark.parametrize(("siglip", "gemma"), [("siglip", "gemma"), ("tower", "text")])
def test_pretrained_parts_compute_what_they_did(folders, siglip, gemma):
    root, models = folders
    paths = {"siglip_path": str(root / siglip), "gemma3_path": str(root / gemma)}
    model = progress_critic(**paths, siglip_config=None, gemma3_config=None)
    load_pretrained(model, *paths.values())
    images, _, _, tokens, _ = batch()
    vision = models["siglip"].vision_model if siglip == "siglip" else models["tower"]
    text = models["gemma"].model if gemma == "gemma" else models["text"]
    with torch.no_grad():
        assert torch.equal(model.vision(pixel_values=images).pooler_output, vision(pixel_values=images).pooler_output)
        assert torch.equal(model.text(tokens).last_hidden_state, text(tokens).last_hidden_state)


def test_defect_15_a_tower_without_pooling_head_is_refused(folders, tmp_path):
    """The tensors are those of its architecture, but the head that the critic reads would stay random."""
    SiglipVisionModel(SiglipVisionConfig(**VISION, vision_use_head=False)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"SiglipVisionModel without tensor vision_model\.head\.attention"):
        load_pretrained(progress_critic(siglip_path=str(tmp_path), siglip_config=None), str(tmp_path), None)
    tensors = load_file(folders[0] / "siglip/model.safetensors")
    (tmp_path / "config.json").write_bytes((folders[0] / "siglip/config.json").read_bytes())
    save_file({name: tensor for name, tensor in tensors.items() if name != "vision_model.head.probe"}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"lacks tensor vision_model\.head\.probe"):
        load_pretrained(progress_critic(siglip_path=str(tmp_path), siglip_config=None), str(tmp_path), None)
