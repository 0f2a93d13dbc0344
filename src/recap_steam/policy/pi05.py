"""lerobot's pi0.5, built at full size or small, and loaded strictly.

Forward pass, sampling and processors are lerobot's own. A small pi0.5 is the same classes with shrunken configurations: lerobot fixes the
sizes inside its constructors, so the three names that supply them are replaced while a model is constructed, and only then.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi05 import modeling_pi05
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from safetensors import SafetensorError

from recap_steam.config import PolicyModelConfig, SmallPi05Config
from recap_steam.errors import UserError

ATTENTION_HEADS = 8  # fixed in lerobot's attention
EMBEDDING = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
LM_HEAD = "paligemma_with_expert.paligemma.lm_head.weight"


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


def build(config: PI05Config, small: SmallPi05Config | None) -> PI05Policy:
    """A randomly initialised policy on the CPU (from torch's global generator). Parameters whose result nothing reads do not train."""
    with sizes(small):
        policy = PI05Policy(config)
    for parameter in unread_parameters(policy):
        parameter.requires_grad_(False)
    return policy


def unread_parameters(policy: PI05Policy) -> list[torch.nn.Parameter]:
    """Parameters that no loss reaches: the two language-model heads, and the prefix's last layer after its keys and values (the prefix
    output itself is never read)."""
    trunk = policy.model.paligemma_with_expert
    language = trunk.paligemma.model.language_model
    last = language.layers[-1]
    modules = [
        trunk.paligemma.lm_head,
        trunk.gemma_expert.lm_head,
        last.self_attn.o_proj,
        last.mlp,
        last.post_attention_layernorm,
        language.norm,
    ]
    return [parameter for module in modules for parameter in module.parameters()]


def load_weights(policy: PI05Policy, path: str | Path) -> None:
    """Fill ``policy`` from a safetensors file in lerobot's layout, or openpi's converted one (no ``model.`` prefix, tied embedding).

    lerobot's own ``from_pretrained`` prints a warning and returns random weights where this raises.

    Raises:
        UserError: the file is missing or unreadable, or a tensor is missing, unknown or of another shape; it names the first of them.
    """
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not readable as policy weights ({error}); give a folder with model.safetensors of a pi0.5") from error
    found = {name.removeprefix("model."): tensor for name, tensor in found.items()}
    if EMBEDDING not in found and LM_HEAD in found:
        found[EMBEDDING] = found[LM_HEAD]
    expected = policy.model.state_dict()
    problems = [f"missing tensor {name}" for name in expected if name not in found]
    problems += [f"unknown tensor {name}" for name in found if name not in expected]
    problems += [
        f"{name} has shape {tuple(found[name].shape)}, the model {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if problems:
        more = f" and {len(problems) - 1} more differences" if len(problems) > 1 else ""
        raise UserError(f"{path}: does not fit this pi0.5: {problems[0]}{more}; compare policies.*.model with that model's sizes")
    policy.model.load_state_dict(found)
