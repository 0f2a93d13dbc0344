"""The critic at the size that users run, on the meta device: what it has, what it does not have, and that the numbers add up.

Counts are worked out by hand from the published sizes: d = 1152 or 640 is the width, m the feed-forward width.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from recap_steam.critics.model import ValueCritic
from recap_steam.model_config import EXPERT_VARIANTS
from tests.unit.critics.small import architecture

SIGLIP2_SO400M = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14}
GEMMA3_270M = {
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
}
VISION = (
    (3 * 14 * 14 + 1) * 1152  # patch embedding
    + 256 * 1152  # positions
    + 27 * (4 * (1152 + 1) * 1152 + (1152 + 1) * 4304 + (4304 + 1) * 1152 + 2 * 2 * 1152)  # attention, feed-forward, two norms
    + 2 * 1152  # last norm; no pooling head
)
TEXT_LAYER = 640 * (4 + 1 + 1 + 4) * 256 + 2 * 256 + 3 * 640 * 2048 + 4 * 640  # q, k, v, o; two head norms; feed-forward; four norms
LAST_TEXT_LAYER = 640 + 640 * (1 + 1) * 256 + 256  # norm, k, v, norm of k
EXPERTS = {  # depth * (q, o: 2 d heads 256; k, v: 2 d 256; feed-forward: 3 d m; norms: 2 d) + token and last norm: 2 d
    "dummy": 1_278_592,
    "gemma_1m": 1_213_696,
    "gemma_50m": 63_715_584,
    "gemma_100m": 99_109_888,
    "gemma_150m": 141_582_080,
    "gemma_300m": 311_465_984,
    "gemma_2b": 1_981_886_464,
}


@pytest.mark.parametrize("variant", EXPERT_VARIANTS)
def test_parameters_of_the_full_size_critic(variant):
    sizes = architecture(siglip_config=SIGLIP2_SO400M, gemma3_config=GEMMA3_270M, image_size=224, critic_expert_variant=variant)
    with torch.device("meta"):
        model = ValueCritic(sizes)
    expert = EXPERT_VARIANTS[variant]
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    assert counts == {
        "vision": VISION,
        "projection": (1152 + 1) * 640,
        "text": 262144 * 640 + (expert.depth - 1) * TEXT_LAYER + LAST_TEXT_LAYER,
        "expert": EXPERTS[variant],
        "head": (expert.width + 1) * 201,
    }
    assert VISION == 412_442_352 and 18 * TEXT_LAYER + 262144 * 640 + 640 == 268_098_176  # the whole of Gemma3-270M
    assert not any("text_model" in name or "lm_head" in name or "vision_model.head" in name for name in model.state_dict())
    assert len(model.text.layers) == expert.depth - 1 and len(model.expert.layers) == expert.depth  # no layer that nothing reads
    assert model.expert.token.shape == (1, expert.width) and model.expert.norm.weight.shape == (expert.width,)
    full_attention = [layer for layer, kind in enumerate(model.text.layer_types) if kind == "full_attention"]
    assert full_attention == [layer for layer in (5, 11, 17) if layer < expert.depth]


def test_shapes_of_a_forward_at_full_size():
    sizes = architecture(siglip_config=SIGLIP2_SO400M, gemma3_config=GEMMA3_270M, image_size=224, critic_expert_variant="gemma_100m")
    with FakeTensorMode():  # shapes without memory, and without a shape that depends on values
        model = ValueCritic(sizes)
        masks = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 20, dtype=torch.bool)
        tokens = torch.zeros(2, 20, dtype=torch.int64)
        prefix = []
        model.text.register_forward_hook(lambda module, args, output: prefix.extend(output))
        logits = model(torch.zeros(3, 3, 224, 224), torch.zeros(3, dtype=torch.int64), masks[0], tokens, masks[1])
    assert logits.shape == (2, 201) and logits.dtype == torch.float32
    assert len(prefix) == 18 and {keys.shape for keys, _ in prefix} == {(2, 1, 2 * 256 + 20, 256)}
