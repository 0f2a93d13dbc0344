"""The progress critic, one member of an ensemble: SigLIP's pooled images, Gemma3's prompt, a classifier of how far apart frames lie.

A frame is encoded by itself, so that scoring a dataset reads each frame once and classifies pairs of features.
"""

import torch
from torch import Tensor, nn
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextModel
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from recap_steam.critics.architecture import ProgressArchitecture
from recap_steam.critics.model import RECOMPUTATION, SMALL_STD, place


class ProgressCritic(nn.Module):
    """Predicts the distribution of the signed stride between two frames from their camera images and a prompt.

    Args:
        architecture: sizes of every part. Weights are random until loaded; seed torch before.
    """

    def __init__(self, architecture: ProgressArchitecture):
        super().__init__()
        vision, text = SiglipVisionConfig(**architecture.siglip), Gemma3TextConfig(**architecture.gemma3)
        vision.vision_use_head = True  # the pooled image is all that is read
        width, dropout = architecture.fusion_hidden_dim, architecture.dropout
        self.vision = SiglipVisionModel(vision)
        self.vision_projector = _projector(vision.hidden_size, width, dropout)
        self.text = Gemma3TextModel(text)
        self.text_projector = _projector(text.hidden_size, width, dropout)
        self.head = nn.Sequential(
            nn.LayerNorm(3 * width), nn.Linear(3 * width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, architecture.num_bins)
        )
        self.reset_head()

    def reset_head(self) -> None:
        """Draw the classifier's weights anew, from an almost even distribution: members of an ensemble differ by it at the start."""
        for part in self.head:
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        nn.init.normal_(self.head[-1].weight, std=SMALL_STD)

    def forward(
        self,
        images: Tensor,
        places: Tensor,
        camera_mask: Tensor,
        first: Tensor,
        second: Tensor,
        tokens: Tensor,
        token_mask: Tensor,
        prompt: Tensor,
    ) -> Tensor:
        """Return logits (p, num_bins) in fp32 of p pairs among n frames under q prompts.

        Args:
            images, places, camera_mask: see ``encode_frames``; tokens, token_mask: see ``encode_prompts``.
            first, second: (p,) int64, the pair's frames among the n.
            prompt: (p,) int64, the pair's prompt among the q.
        """
        frames, prompts = self.encode_frames(images, places, camera_mask), self.encode_prompts(tokens, token_mask)
        return self.classify(frames.index_select(0, first), frames.index_select(0, second), prompts.index_select(0, prompt))

    def encode_frames(self, images: Tensor, places: Tensor, camera_mask: Tensor) -> Tensor:
        """Return (n, H) fp32 features, each the mean over a frame's cameras.

        Args:
            images: (m, 3, S, S) float32 in [-1, 1], those that exist.
            places: (m,) int64, frame * cameras + camera of each image.
            camera_mask: (n, cameras) bool, True where there is an image; at least one of each frame.
        """
        pooled = self.vision_projector(self.vision(pixel_values=images).pooler_output).float()
        pictures = place(pooled, places, camera_mask.numel())
        return pictures.unflatten(0, camera_mask.shape).sum(1) / camera_mask.sum(1, keepdim=True)

    def encode_prompts(self, tokens: Tensor, token_mask: Tensor) -> Tensor:
        """Return (q, H) fp32 features of ``tokens`` (q, L) int64, padded on the right where ``token_mask`` (q, L) is False."""
        hidden = self.text(tokens, attention_mask=self._text_masks(token_mask), use_cache=False).last_hidden_state.float()
        weight = token_mask[:, :, None].float()
        return self.text_projector((hidden * weight).sum(1) / weight.sum(1)).float()

    def _text_masks(self, token_mask: Tensor) -> dict[str, Tensor]:
        """Gemma3's attention masks by layer type, (q, 1, L, L) bool. Made here, as transformers would ask the device whether any is needed.

        Padding sees padding: a row that sees nothing would be NaN where its window has no token.
        """
        position = torch.arange(token_mask.shape[1], device=token_mask.device)
        distance = position[:, None] - position
        causal = (distance >= 0) & (token_mask[:, None, None, :] | ~token_mask[:, None, :, None])
        return {"full_attention": causal, "sliding_attention": causal & (distance < self.text.config.sliding_window)}

    def classify(self, first: Tensor, second: Tensor, text: Tensor) -> Tensor:
        """Return logits (n, num_bins) in fp32 of pairs of features, all (n, H)."""
        with torch.autocast(first.device.type, enabled=False):  # bf16 has 8 bits for a logit
            return self.head(torch.cat([first, second, text], 1))

    def enable_gradient_checkpointing(self) -> None:
        """While training, recompute the activations of vision and text layers in the backward pass instead of keeping them."""
        for tower in (self.vision, self.text):
            tower.gradient_checkpointing_enable(RECOMPUTATION)

    def value_parameters(self) -> list[nn.Parameter]:
        """The classifier, which learns at ``value_lr``."""
        return list(self.head.parameters())


def _projector(width: int, out: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Dropout(dropout))
