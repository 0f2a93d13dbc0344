"""lerobot's pi0.5, built at full size or small, and loaded strictly.

Forward pass, sampling and processors are lerobot's own. A small pi0.5 is the same classes with shrunken configurations: lerobot fixes the
sizes inside its constructors, so the three names that supply them are replaced while a model is constructed, and only then.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.modeling_pi05 import PI05Policy, PI05Pytorch
from transformers.initialization import no_init_weights

from recap_steam.errors import UserError
from recap_steam.model_config import PolicyModelConfig, SmallPi05Config
from recap_steam.weights import TensorFolder, shapes_of

ATTENTION_HEADS = 8  # fixed in lerobot's attention
EMBEDDING = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
LM_HEAD = "paligemma_with_expert.paligemma.lm_head.weight"
PI0_ONLY = ("state_proj.", "action_time_mlp_")  # modules that pi0.5 does not have; lerobot skips or renames them, and goes on


@contextlib.contextmanager
def sizes(small: SmallPi05Config | None) -> Iterator[None]:
    """While active, lerobot constructs pi0.5 with the sizes of ``small``; with None, at full size."""
    if small is None:
        yield
        return
    names = ("get_gemma_config", "PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM")
    stock = {name: getattr(modeling_pi05, name) for name in names}

    def gemma_sizes(variant: str) -> modeling_pi05.GemmaConfig:
        width, mlp_dim = (small.width, small.mlp_dim) if variant == "gemma_2b" else (small.expert_width, small.expert_mlp_dim)
        return modeling_pi05.GemmaConfig(width, small.depth, mlp_dim, ATTENTION_HEADS, 1, small.head_dim)

    def vision_language(config):
        config.text_config.vocab_size = config._vocab_size = config.image_token_index = small.vocab_size
        config.hidden_size = config.projection_dim = config.vision_config.projection_dim = small.width
        config.vision_config.hidden_size = small.vision_width
        config.vision_config.intermediate_size = small.vision_mlp_dim
        config.vision_config.num_hidden_layers = small.vision_depth
        config.vision_config.num_attention_heads = small.vision_heads
        config.vision_config.patch_size = small.patch_size
        return stock["PaliGemmaForConditionalGenerationWithPiGemma"](config=config)

    def expert(config):
        config.vocab_size = small.vocab_size
        return stock["PiGemmaForCausalLM"](config=config)

    replacements = dict(zip(names, (gemma_sizes, vision_language, expert), strict=True))
    for name, replacement in replacements.items():
        setattr(modeling_pi05, name, replacement)
    try:
        yield
    finally:
        for name, original in stock.items():
            setattr(modeling_pi05, name, original)


def make_config(config: PolicyModelConfig, cameras: list[str], state_dim: int, action_dim: int) -> PI05Config:
    """lerobot's configuration of the policy. Cameras keep their dataset names; images are square, ``image_size`` pixels.

    Raises:
        UserError: sizes that pi0.5 cannot have, naming the key.
    """
    _check_sizes(config.small, state_dim, action_dim)
    image = PolicyFeature(FeatureType.VISUAL, (3, config.image_size, config.image_size))
    return PI05Config(
        device="cpu",  # where a stock user loads it first; training and serving move the module
        dtype="float32",
        chunk_size=config.chunk_size,
        n_action_steps=config.n_action_steps,
        num_inference_steps=config.num_inference_steps,
        tokenizer_max_length=config.max_token_len,
        image_resolution=(config.image_size, config.image_size),
        freeze_vision_encoder=config.freeze_vision_encoder,
        train_expert_only=config.train_expert_only,
        input_features={**dict.fromkeys(cameras, image), "observation.state": PolicyFeature(FeatureType.STATE, (state_dim,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (action_dim,))},
    )


def _check_sizes(small: SmallPi05Config | None, state_dim: int, action_dim: int) -> None:
    most = PI05Config.max_action_dim
    wrong = [(max(state_dim, action_dim) > most, f"state has {state_dim} and action {action_dim} dimensions; pi0.5 takes at most {most}")]
    if small:
        heads, width = small.vision_heads, small.vision_width
        wrong += [
            (width % heads, f"small.vision_width {width} is not a multiple of small.vision_heads {heads}"),
            (small.head_dim % 2, f"small.head_dim {small.head_dim} is odd; rotary embeddings need an even number"),
            (small.expert_width % 2, f"small.expert_width {small.expert_width} is odd; the time embedding needs an even number"),
        ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise UserError(f"policy model: {message}; change it in the experiment file")


def build(config: PI05Config, small: SmallPi05Config | None, initialise: bool) -> PI05Policy:
    """A policy on the CPU, or under ``devices.blueprint`` its shapes. Parameters whose result nothing reads do not train.

    Args:
        initialise: draw random weights from torch's global generator; false where ``load_weights`` fills every one of them anyway: at full
            size, drawing takes minutes.
    """
    with sizes(small), contextlib.nullcontext() if initialise else no_init_weights():
        policy = PI05Policy(config)
    for parameter in unread_parameters(policy):
        parameter.requires_grad_(False)
    return policy


def enable_gradient_checkpointing(model: PI05Pytorch) -> None:
    """While training, recompute the activations of every layer in the backward pass instead of keeping them.

    lerobot's own switch also recomputes the stack of layers as a whole, so each layer twice, and under FSDP2 gathers all of them at once.
    """
    trunk = model.paligemma_with_expert
    trunk.gemma_expert.model.gradient_checkpointing = True  # what the joint loop over prefix and expert layers asks
    trunk.paligemma.model.vision_tower.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})


def unread_parameters(policy: PI05Policy) -> list[torch.nn.Parameter]:
    """Parameters that no loss reaches: the two language-model heads, and all but keys and values of the prefix's last layer (the
    prefix output itself is never read)."""
    trunk = policy.model.paligemma_with_expert
    language = trunk.paligemma.model.language_model
    last = language.layers[-1]
    modules = [
        trunk.paligemma.lm_head,
        trunk.gemma_expert.lm_head,
        last.self_attn.q_proj,
        last.self_attn.o_proj,
        last.mlp,
        last.post_attention_layernorm,
        language.norm,
    ]
    return [parameter for module in modules for parameter in module.parameters()]


def load_weights(policy: PI05Policy, folder: str | Path) -> None:
    """Fill ``policy`` tensor by tensor from the safetensors files of ``folder``, in its own precision whatever theirs.

    Read are lerobot's layout and openpi's converted one, which has no ``model.`` prefix and, its embedding being tied to the language-model
    head, only one of the two: the other gets its copy. Where both are there, each gets its own, as the embedding is what training changed.
    Nothing else may be absent, not even the heads that nothing reads: both layouts have them. lerobot's own ``from_pretrained`` prints a
    warning and returns random weights where this raises.

    Raises:
        UserError: a file is missing or unreadable, the weights are pi0's, or a tensor is missing, unknown or of another shape; it names the
            first of them, and no weight was changed.
    """
    tensors, targets = TensorFolder(folder, prefix="model."), policy.model.state_dict()
    if any(name.startswith(PI0_ONLY) for name in tensors.shapes):
        raise UserError(f"{folder}: these are weights of pi0, this is pi0.5; give a folder with weights of pi0.5")
    tied = {EMBEDDING, LM_HEAD}
    absent = tied - tensors.shapes.keys()
    tensors.check(shapes_of(targets), optional=frozenset(absent if absent != tied else ()))
    tensors.copy_into(targets)
    for name in absent:
        (other,) = tied - absent
        targets[name].copy_(targets[other])
