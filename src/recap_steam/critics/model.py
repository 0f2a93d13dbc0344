"""The value critic: SigLIP vision tower, Gemma3 text model and a critic expert with a categorical head.

The vision-language model reads image and text tokens, all attending to all. The expert is a smaller stack of Gemma layers that runs on
one learned token; its layer i attends to the keys and values of the text model's layer i, and to itself. This is RLinf's critic
(`ValueCriticModel`), with three differences that change no trained behaviour: the text model has only as many layers as the expert, since
nothing reads the others; of its last layer only keys and values exist, for the same reason; and the expert's queries are rotated with
the base of the layer that they look at.
"""

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaDecoderLayer, GemmaRMSNorm
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3DecoderLayer, Gemma3TextModel, apply_rotary_pos_emb
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from recap_steam.critics.architecture import Architecture
from recap_steam.model_config import ExpertSize

RECOMPUTATION = {"use_reentrant": False, "preserve_rng_state": False}  # nothing random happens in the layers
SMALL_STD = 0.02  # of the critic token and the head: training starts from an almost even distribution


class ValueCritic(nn.Module):
    """Predicts the distribution of the normalised return from camera images and a prompt.

    Args:
        architecture: sizes of every part. Weights are random until loaded; seed torch before.
    """

    def __init__(self, architecture: Architecture):
        super().__init__()
        vision, text = SiglipVisionConfig(**architecture.siglip), Gemma3TextConfig(**architecture.gemma3)
        vision.vision_use_head = False  # the pooled image is not read
        self.vision = SiglipVisionModel(vision)
        self.projection = nn.Linear(vision.hidden_size, text.hidden_size)
        self.text = TextPrefix(text, architecture.expert.depth)
        self.expert = CriticExpert(text, architecture.expert)
        self.head = nn.Sequential(
            nn.Dropout(architecture.value_dropout), nn.Linear(architecture.expert.width, architecture.support.num_bins)
        )
        for part in (self.projection, self.expert):
            part.apply(_init_linear)
        nn.init.normal_(self.head[1].weight, std=SMALL_STD)

    def forward(self, images: Tensor, places: Tensor, camera_mask: Tensor, tokens: Tensor, token_mask: Tensor) -> Tensor:
        """Return logits (n, num_bins) in fp32.

        Args:
            images: (m, 3, S, S) float32 in [-1, 1], those that exist.
            places: (m,) int64, sample * cameras + camera of each image, cameras in the order of the configuration.
            camera_mask: (n, cameras) bool, True where there is an image.
            tokens: (n, L) int64; token_mask: (n, L) bool, True where there is a token. Padding is on the right.
        """
        patches = self.projection(self.vision(pixel_values=images).last_hidden_state)  # (m, patches, width)
        pictures = place(patches, places, camera_mask.numel())
        pictures = pictures.unflatten(0, camera_mask.shape).flatten(1, 2)  # (n, cameras * patches, width)
        hidden = torch.cat([pictures, self.text.embed(tokens).to(pictures.dtype)], 1)
        valid = torch.cat([camera_mask[:, :, None].expand(-1, -1, patches.shape[1]).flatten(1), token_mask], 1)
        prefix = self.text(hidden, valid)
        rotations = self.text.rotations(hidden, valid.sum(1, keepdim=True))  # the critic token stands behind the last valid one
        state = self.expert(prefix, valid, rotations)
        with torch.autocast(state.device.type, enabled=False):  # the head stays fp32, as RLinf's: bf16 has 8 bits for a logit
            return self.head(state.float())

    def enable_gradient_checkpointing(self) -> None:
        """While training, recompute the activations of vision and text layers in the backward pass instead of keeping them.

        The expert's layers read one token; theirs are kept.
        """
        self.vision.gradient_checkpointing_enable(RECOMPUTATION)
        self.text.recompute = True

    def value_parameters(self) -> list[nn.Parameter]:
        """The critic token and the head, which learn at ``value_lr``."""
        return [self.expert.token, *self.head.parameters()]


def place(rows: Tensor, places: Tensor, size: int) -> Tensor:
    """(size, ...) zeros with ``rows`` (m, ...) at ``places`` (m,). Moved as fp32, which is exact: not every device moves bf16 so."""
    return rows.new_zeros(size, *rows.shape[1:], dtype=torch.float32).index_copy(0, places, rows.float()).to(rows.dtype)


KeysValues = tuple[Tensor, Tensor]  # each (n, key-value heads, tokens, head_dim), keys rotated
Rotations = dict[str, tuple[Tensor, Tensor]]  # cosine and sine by layer type


class TextPrefix(nn.Module):
    """The first ``depth`` layers of a Gemma3 text model over a bidirectional prefix; yields each layer's keys and values."""

    def __init__(self, config: Gemma3TextConfig, depth: int):
        super().__init__()
        model = Gemma3TextModel(
            Gemma3TextConfig(**{**config.to_dict(), "num_hidden_layers": depth, "layer_types": config.layer_types[:depth]})
        )
        self.layer_types = model.config.layer_types
        self.embed = model.embed_tokens  # scales by sqrt(width) itself; image tokens are not scaled
        self.rotary = model.rotary_emb
        self.recompute = False
        self.layers = nn.ModuleList(PrefixLayer(layer) for layer in model.layers[:-1])
        self.last = KeyValueLayer(model.layers[-1])

    def forward(self, hidden: Tensor, valid: Tensor) -> list[KeysValues]:
        """``hidden`` (n, P, width) and ``valid`` (n, P) bool to ``depth`` keys and values of the prefix."""
        mask = valid[:, None, None, :]  # every token sees every valid one: neither causal nor sliding
        rotations = self.rotations(hidden, valid.cumsum(1) - 1)  # counted over valid tokens: an absent camera leaves no gap
        prefix = []
        for layer, kind in zip(self.layers, self.layer_types, strict=False):
            arguments = (hidden, mask, rotations[kind])
            hidden, keys_values = checkpoint(layer, *arguments, **RECOMPUTATION) if self.recompute and self.training else layer(*arguments)
            prefix.append(keys_values)
        return [*prefix, self.last(hidden, rotations[self.layer_types[-1]])]

    def rotations(self, hidden: Tensor, positions: Tensor) -> Rotations:
        """Rotary embeddings of ``positions`` (1 or n, tokens) with each layer type's own base."""
        return {kind: self.rotary(hidden, positions, kind) for kind in dict.fromkeys(self.layer_types)}


class PrefixLayer(nn.Module):
    """A Gemma3 layer that also returns its keys and values."""

    def __init__(self, layer: Gemma3DecoderLayer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Tensor, mask: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, KeysValues]:
        recorder = _Recorder()
        hidden = self.layer(hidden, attention_mask=mask, position_embeddings=rotation, past_key_values=recorder)
        return hidden, recorder.keys_values


class KeyValueLayer(nn.Module):
    """What is left of a Gemma3 layer of which only the keys and values are read."""

    PLACES: ClassVar = {"norm": "input_layernorm", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj", "k_norm": "self_attn.k_norm"}

    def __init__(self, layer: Gemma3DecoderLayer):
        super().__init__()
        for name, place in self.PLACES.items():
            self.add_module(name, layer.get_submodule(place))
        self.head_dim = layer.self_attn.head_dim

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> KeysValues:
        hidden = self.norm(hidden)
        keys, values = (projection(hidden).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for projection in (self.k_proj, self.v_proj))
        keys = self.k_norm(keys)
        return apply_rotary_pos_emb(keys, keys, *rotation)[1], values


class CriticExpert(nn.Module):
    """Gemma layers over one learned token that reads the prefix; without embedding table and language-model head."""

    def __init__(self, text: Gemma3TextConfig, size: ExpertSize):
        super().__init__()
        config = GemmaConfig(
            hidden_size=size.width,
            intermediate_size=size.mlp_dim,
            num_hidden_layers=size.depth,
            num_attention_heads=size.num_heads,
            num_key_value_heads=text.num_key_value_heads,  # keys and values of both are concatenated, so heads and head_dim agree
            head_dim=text.head_dim,
            attn_implementation="sdpa",
        )
        self.layer_types = text.layer_types[: size.depth]
        self.token = nn.Parameter(torch.randn(1, size.width) * SMALL_STD)
        self.layers = nn.ModuleList(GemmaDecoderLayer(config, index) for index in range(size.depth))
        self.norm = GemmaRMSNorm(size.width, eps=config.rms_norm_eps)

    def forward(self, prefix: list[KeysValues], valid: Tensor, rotations: Rotations) -> Tensor:
        """Return the token's final state (n, width)."""
        mask = torch.cat([valid, valid.new_ones(len(valid), 1)], 1)[:, None, None, :]
        hidden = self.token.expand(len(valid), 1, -1)
        for layer, kind, keys_values in zip(self.layers, self.layer_types, prefix, strict=True):
            hidden = layer(hidden, attention_mask=mask, position_embeddings=rotations[kind], past_key_values=_Prefix(keys_values))
        return self.norm(hidden)[:, 0]


def _init_linear(module: nn.Module) -> None:
    """Keep the scale of activations. Gemma's 0.02 is right for its own widths only; at 64 the tokens drown in their average."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class _Recorder:
    """Remembers one layer's keys and values; has the one method of a transformers cache that attention calls."""

    def update(self, keys: Tensor, values: Tensor, *_) -> KeysValues:
        self.keys_values = keys, values
        return self.keys_values


@dataclasses.dataclass(frozen=True)
class _Prefix:
    """Puts a prefix before one layer's own keys and values; has the one method of a transformers cache that attention calls."""

    keys_values: KeysValues

    def update(self, keys: Tensor, values: Tensor, *_) -> KeysValues:
        return torch.cat([self.keys_values[0].to(keys.dtype), keys], 2), torch.cat([self.keys_values[1].to(values.dtype), values], 2)
