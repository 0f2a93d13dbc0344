"""Sampling with classifier-free guidance: lerobot's Euler sampler with a velocity that weighs two prompts."""

import torch
from lerobot.policies.common.flow_matching import euler_integrate
from lerobot.policies.common.vla_utils import make_att_2d_masks, prepare_attention_masks_4d
from lerobot.policies.pi05.modeling_pi05 import PI05Pytorch
from torch import Tensor

Prompt = tuple[Tensor, Tensor]  # tokens (B, L) int64, mask (B, L) bool


@torch.no_grad()
def sample_guided(
    model: PI05Pytorch,
    images: list[Tensor],
    image_masks: list[Tensor],
    plain: Prompt | None,
    conditional: Prompt | None,
    scale: float,
    noise: Tensor,
) -> Tensor:
    """Sample action chunks along ``v = v_plain + scale * (v_conditional - v_plain)``, applied at every denoising step.

    Args:
        images: per camera (B, 3, S, S) float32 in [-1, 1]; image_masks: per camera (B,) bool.
        plain, conditional: the two prompts; one that ``scale`` makes superfluous may be None.
        scale: 0 is the policy without indicator and 1 the conditional policy (both are lerobot's own sampler with one prefix pass); above 1
            extrapolates. The reference calls it ``cfgrl_guidance_scale``. Otherwise both branches are one batch of 2 B.
        noise: (B, chunk_size, max_action_dim) float32.

    Returns:
        (B, chunk_size, max_action_dim) float32 in the policy's normalised scale.
    """
    if scale in (0, 1):
        return model.sample_actions(images, image_masks, *(conditional if scale else plain), noise=noise)
    padding, cache = _prefixes(model, images, image_masks, plain, conditional)

    def velocity(x_t: Tensor, timestep: Tensor) -> Tensor:
        both = model.denoise_step(padding, cache, torch.cat([x_t, x_t]), torch.cat([timestep, timestep]))
        v_plain, v_conditional = both.chunk(2)
        return v_plain + scale * (v_conditional - v_plain)

    return euler_integrate(velocity, noise, model.config.num_inference_steps)


def _prefixes(model: PI05Pytorch, images: list[Tensor], image_masks: list[Tensor], plain: Prompt, conditional: Prompt) -> tuple:
    """Padding mask and key-value cache of both prompts' prefixes, (2 B, ...), the plain ones first, as the first half of
    ``PI05Pytorch.sample_actions`` computes them. Images are encoded once: the prompts are embedded one behind the other, then parted."""
    trunk, length = model.paligemma_with_expert, plain[0].shape[1]
    prompts = (torch.cat(parts, 1) for parts in zip(plain, conditional, strict=True))

    def parted(joint: Tensor) -> Tensor:
        pictures, *texts = joint.split([joint.shape[1] - 2 * length, length, length], 1)
        return torch.cat([torch.cat([pictures, text], 1) for text in texts])

    embeddings, padding, attention = map(parted, model.embed_prefix(images, image_masks, *prompts))
    trunk.paligemma.model.language_model.config._attn_implementation = "eager"
    _, cache = trunk.forward(
        attention_mask=prepare_attention_masks_4d(make_att_2d_masks(padding, attention)),
        position_ids=torch.cumsum(padding, dim=1) - 1,
        past_key_values=None,
        inputs_embeds=[embeddings, None],
        use_cache=True,
    )
    return padding, cache
