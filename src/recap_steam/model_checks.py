"""The check of models before anything runs: sizes, folders of weights and batches that would only fail after hours of upstream work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recap_steam.config import CriticConfig, Experiment, ProgressCriticConfig, TrainingConfig
from recap_steam.errors import config_error
from recap_steam.model_config import (
    EXPERT_VARIANTS,
    WEIGHTS,
    CriticModelConfig,
    PolicyModelConfig,
    TowersConfig,
    read_config,
    weight_files,
    weight_folders,
)

CHECKED_SIZES = {"image_size", "patch_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}
SMALLEST_VOCABULARY = 260  # of a tokenizer trained on the prompts: 256 bytes and 4 special tokens


def check_models(experiment: Experiment) -> None:
    """Check every critic and policy as far as that needs no tensor.

    Raises:
        UserError: naming the key, what is wrong and the remedy.
    """
    for tag, critic in experiment.critics.items():
        _check_folders(f"critics.{tag}.model", critic.model)
        _check_towers(f"critics.{tag}.model", critic.model)
        if isinstance(critic, ProgressCriticConfig):
            _check_bins(f"critics.{tag}", critic)
        else:
            _check_value_range(f"critics.{tag}.model", critic)
        _check_batch(f"critics.{tag}", critic)
    for tag, policy in experiment.policies.items():
        _check_folders(f"policies.{tag}.model", policy.model)
        _check_policy(f"policies.{tag}.model", policy.model)
        _check_batch(f"policies.{tag}", policy)
        if policy.init_from and policy.model != experiment.policies[policy.init_from].model:
            raise config_error(f"policies.{tag}.init_from", f"the model of '{policy.init_from}' differs; both need the same model section")


def _check_folders(key: str, model: TowersConfig | PolicyModelConfig) -> None:
    """Weights and tokenizers that training starts from are there."""
    for name, folder, needed in weight_folders(model):
        path = Path(folder)
        if not path.is_dir():
            raise config_error(f"{key}.{name}", f"{path} is not a folder; give the local folder that holds it")
        for file in [part for entry in needed for part in (weight_files(path) if entry == WEIGHTS else [path / entry])]:
            if not file.is_file():
                given_elsewhere = file.name == "tokenizer.json" and name != "tokenizer_path"
                remedy = "give tokenizer_path" if given_elsewhere else "copy the whole folder"
                raise config_error(f"{key}.{name}", f"{path} has no {file.relative_to(path)}; {remedy}")


def _check_towers(key: str, model: TowersConfig) -> None:
    for tower in ("siglip", "gemma3"):
        if getattr(model, f"{tower}_path") is None and getattr(model, f"{tower}_config") is None:
            raise config_error(key, f"give {tower}_path (a folder with weights) or {tower}_config (sizes of a model made from scratch)")
    siglip, gemma3 = (_stated_sizes(key, model, tower) for tower in ("siglip", "gemma3"))
    for name, message in size_problems(model, siglip, gemma3):
        raise config_error(f"{key}.{name}", message)
    if not (model.tokenizer_path or model.gemma3_path) and gemma3["vocab_size"] < SMALLEST_VOCABULARY:
        raise config_error(
            f"{key}.gemma3_config.vocab_size", f"{gemma3['vocab_size']} is too small for a tokenizer; give {SMALLEST_VOCABULARY} or more"
        )


def _stated_sizes(key: str, model: TowersConfig, tower: str) -> dict[str, Any]:
    """The sizes of a tower in its folder, whose file leaves out transformers' defaults, or those that are given."""
    folder = getattr(model, f"{tower}_path")
    if folder is None:
        return getattr(model, f"{tower}_config")
    found = read_config(folder, f"{key}.{tower}_path")
    stated = found.get("vision_config", found)
    for name in CHECKED_SIZES & stated.keys():
        if type(stated[name]) is not int or stated[name] < 1:
            raise config_error(
                f"{key}.{tower}_path", f"{folder}/config.json: {name} is {stated[name]!r}, not a size; copy the folder again"
            )
    return stated


def size_problems(model: TowersConfig, siglip: dict[str, Any], gemma3: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key below the model, what is wrong) where the parts of a critic do not fit together.

    Args:
        siglip, gemma3: sizes of the towers by transformers' names; what is not stated is not checked.
    """
    size, made_for, kv_heads = model.image_size, siglip.get("image_size"), gemma3.get("num_key_value_heads", 1)
    if made_for not in (size, None):
        yield "image_size", f"{size}, but the vision tower was made for {made_for}; set it to that"
    pretrained = model.siglip_path is not None and made_for == size  # so400m-patch14-384 works with a size that is no multiple
    if not pretrained and size % siglip.get("patch_size", 1):
        yield "image_size", f"{size} is not a multiple of the vision tower's patch size {siglip['patch_size']}"
    if siglip.get("hidden_size", 0) % siglip.get("num_attention_heads", 1):
        yield (
            "siglip_config.hidden_size",
            f"{siglip['hidden_size']} is not a multiple of num_attention_heads {siglip['num_attention_heads']}",
        )
    if gemma3.get("num_attention_heads", 0) % kv_heads:
        yield "gemma3_config.num_attention_heads", f"{gemma3['num_attention_heads']} is not a multiple of num_key_value_heads {kv_heads}"
    if gemma3.get("head_dim", 0) % 2:
        yield "gemma3_config.head_dim", f"{gemma3['head_dim']} is odd; rotary embeddings need an even number"
    if isinstance(model, CriticModelConfig):
        yield from _expert_problems(model.critic_expert_variant, gemma3)


def _expert_problems(name: str, gemma3: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong between a critic expert and the text model that it attends to."""
    expert = EXPERT_VARIANTS[name]
    layers, kv_heads = gemma3.get("num_hidden_layers", expert.depth), gemma3.get("num_key_value_heads", 1)
    if layers < expert.depth:
        yield "critic_expert_variant", f"{name} reads {expert.depth} text layers, gemma3 has {layers}; choose a shallower expert"
    if expert.num_heads % kv_heads:
        yield "critic_expert_variant", f"{name} has {expert.num_heads} heads, not a multiple of gemma3's num_key_value_heads {kv_heads}"


def _check_value_range(key: str, critic: CriticConfig) -> None:
    """The bins of a value critic cover the scale of its values."""
    model = critic.model
    if model.v_min >= model.v_max:
        raise config_error(f"{key}.v_min", f"{model.v_min} is not below v_max {model.v_max}")
    low, high = (-1, 0) if critic.normalize_to_minus_one_zero else (0, 1)
    if model.v_min > low or model.v_max < high:
        scale = f"values from {low} to {high} (normalize_to_minus_one_zero is {str(critic.normalize_to_minus_one_zero).lower()})"
        raise config_error(f"{key}.v_min", f"{model.v_min} to v_max {model.v_max} does not cover {scale}; set v_min {low} and v_max {high}")


def _check_bins(key: str, critic: ProgressCriticConfig) -> None:
    """Bins of equal width hold the strides from -k to -1 and from 1 to k: half of them each."""
    bins, strides = critic.model.num_bins, 2 * critic.k
    if bins % 2:
        raise config_error(f"{key}.model.num_bins", f"{bins} is odd; half of the bins are for reversed pairs, give an even number")
    if bins > 2 and strides % bins:
        possible = ", ".join(str(number) for number in range(2, strides + 1, 2) if strides % number == 0)
        raise config_error(f"{key}.model.num_bins", f"{bins} does not divide 2k = {strides}; with k {critic.k}, give one of {possible}")


def _check_policy(key: str, model: PolicyModelConfig) -> None:
    if model.n_action_steps > model.chunk_size:
        raise config_error(f"{key}.n_action_steps", f"{model.n_action_steps} is more than chunk_size {model.chunk_size}")
    patch_size = model.small.patch_size if model.small else 14
    if model.image_size % patch_size:
        raise config_error(f"{key}.image_size", f"{model.image_size} is not a multiple of the vision tower's patch size {patch_size}")
    if model.small is None and not (model.tokenizer_path or model.pretrained_path):
        raise config_error(f"{key}.tokenizer_path", "a full-size policy needs PaliGemma's tokenizer; give its local folder")


def _check_batch(key: str, config: TrainingConfig) -> None:
    total, micro, processes = config.global_batch_size, config.micro_batch_size or 1, config.devices * config.nodes
    if total % (micro * processes):
        problem = f"{total} is not a multiple of micro_batch_size {micro} x {processes} processes (devices x nodes); change one of them"
        raise config_error(f"{key}.global_batch_size", problem)
