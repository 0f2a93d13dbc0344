"""lerobot's pi0.5 pre- and postprocessing with a local tokenizer and our statistics, and the prompt tokens that it makes."""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.processor_pi05 import Pi05PrepareStateTokenizerProcessorStep
from lerobot.processor import NormalizerProcessorStep, PolicyProcessorPipeline, TokenizerProcessorStep
from lerobot.processor.factory import make_default_policy_processor_steps, make_policy_processor_pipelines
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from transformers import PreTrainedTokenizerBase

from recap_steam.errors import UserError
from recap_steam.policy.norm_stats import quantile_range
from recap_steam.policy.prompts import with_indicator
from recap_steam.policy.samples import Source

ENCODE_ROWS = 4096  # prompts tokenised at once


def make_processors(
    config: PI05Config, statistics: dict[str, dict[str, list]], tokenizer: PreTrainedTokenizerBase
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """The pipelines of lerobot's ``make_pi05_pre_post_processors`` for absolute actions, ``tokenizer`` replacing a gated download.

    ``statistics``: as ``norm_stats.load_statistics`` returns them.
    """
    tensors = {
        feature: {name: torch.tensor(values, dtype=torch.float32) for name, values in quantile_range(table).items()}
        for feature, table in statistics.items()
    }
    steps = make_default_policy_processor_steps(config, tensors)
    inputs = [
        steps.rename_observations,
        steps.add_batch_dim,
        steps.normalize,
        Pi05PrepareStateTokenizerProcessorStep(max_state_dim=config.max_state_dim),
        TokenizerProcessorStep(tokenizer=tokenizer, max_length=config.tokenizer_max_length),
        steps.to_device,
    ]
    return make_policy_processor_pipelines(inputs, [steps.unnormalize, steps.to_cpu])


def load_processors(config: PI05Config, folder: Path) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """The pipelines saved in a policy folder, the way any lerobot user loads them."""
    overrides = {"tokenizer_processor": {"tokenizer_name": str(folder / "tokenizer")}}
    return make_pre_post_processors(config, pretrained_path=str(folder), preprocessor_overrides=overrides)


def statistics_of(preprocessor: PolicyProcessorPipeline) -> dict[str, dict[str, list]]:
    """The statistics inside a loaded preprocessor, as ``make_processors`` takes them."""
    normalize = next(step for step in preprocessor.steps if isinstance(step, NormalizerProcessorStep))
    return {feature: {name: np.asarray(values).tolist() for name, values in table.items()} for feature, table in normalize.stats.items()}


def encode(preprocessor: PolicyProcessorPipeline, states: np.ndarray, tasks: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompt tokens of states in environment units.

    Args:
        states: (n, d) float32.
        tasks: n task texts, indicator included.

    Returns:
        tokens (n, max_token_len) int64 and their mask (n, max_token_len) bool.

    Raises:
        UserError: a prompt is longer than ``max_token_len`` (lerobot would cut it, and the cut part may be the indicator or the state).
    """
    batch = preprocessor({"observation.state": torch.from_numpy(np.ascontiguousarray(states)), "task": tasks})
    mask = batch[OBS_LANGUAGE_ATTENTION_MASK]
    _check_lengths(preprocessor, [text for text, full in zip(batch["task"], mask.all(1).tolist(), strict=True) if full], mask.shape[1])
    return batch[OBS_LANGUAGE_TOKENS], mask


@dataclasses.dataclass(frozen=True)
class PromptTable:
    """The prompts of all n samples, tokenised once, padded only to the longest of them.

    Attributes:
        tokens: by prompt kind, (n, L) int32; lengths: by prompt kind, (n,) int16.
    """

    tokens: dict[int, np.ndarray]
    lengths: dict[int, np.ndarray]

    @classmethod
    def of(cls, preprocessor: PolicyProcessorPipeline, sources: list[Source], kinds: list[int]) -> "PromptTable":
        states = np.concatenate([source.states[source.selected] for source in sources])
        tasks = [task for source in sources for task in source.tasks()]
        tokens, lengths = {}, {}
        for kind in kinds:
            texts = [with_indicator(task, kind) for task in tasks]
            slices = [slice(start, start + ENCODE_ROWS) for start in range(0, len(states), ENCODE_ROWS)]
            parts = [encode(preprocessor, states[part], texts[part]) for part in slices]
            tokens[kind] = np.concatenate([part.numpy().astype(np.int32) for part, _ in parts])
            lengths[kind] = np.concatenate([mask.sum(1).numpy().astype(np.int16) for _, mask in parts])
        longest = max(int(table.max()) for table in lengths.values())
        return cls({kind: table[:, :longest].copy() for kind, table in tokens.items()}, lengths)

    def take(self, kinds: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (n, L) int64 and mask (n, L) bool of ``samples`` (n,) under ``kinds`` (n,)."""
        width = next(iter(self.tokens.values())).shape[1]
        tokens, lengths = np.empty((len(samples), width), np.int64), np.empty(len(samples), np.int64)
        for kind in np.unique(kinds).tolist():
            hit = kinds == kind
            tokens[hit], lengths[hit] = self.tokens[kind][samples[hit]], self.lengths[kind][samples[hit]]
        return tokens, np.arange(width) < lengths[:, None]


def _check_lengths(preprocessor: PolicyProcessorPipeline, texts: list[str], limit: int) -> None:
    """``texts``: those that fill the token window, so that they may have been cut."""
    if not texts:
        return
    tokenizer = next(step.input_tokenizer for step in preprocessor.steps if isinstance(step, TokenizerProcessorStep))
    longest = max(len(ids) for ids in tokenizer(texts)["input_ids"])
    if longest > limit:
        raise UserError(f"policy model: max_token_len is {limit}, but a prompt has {longest} tokens ({texts[0]!r}); raise max_token_len")


def normalize_actions(preprocessor: PolicyProcessorPipeline, actions: np.ndarray) -> np.ndarray:
    """(n, d) float32 actions in environment units to the policy's scale, by the pipeline's own normaliser."""
    normalize = next(step for step in preprocessor.steps if isinstance(step, NormalizerProcessorStep))
    return normalize({TransitionKey.ACTION: torch.from_numpy(actions)})[TransitionKey.ACTION].numpy()
