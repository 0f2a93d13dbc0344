"""The critic's text input: one cleaned sentence per task, tokenised once."""

import numpy as np
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from recap_steam.errors import UserError

TEMPLATE = "Task: {prompt}."
_TRAILING_PUNCTUATION = ".,;:!?"


def prompt_text(task: str, template: str = TEMPLATE) -> str:
    """The sentence of a task: lower case, underscores and newlines as spaces, one trailing punctuation mark dropped (as RLinf does)."""
    text = task.lower().replace("_", " ").replace("\n", " ").strip()
    return template.format(prompt=text[:-1] if text.endswith(tuple(_TRAILING_PUNCTUATION)) else text)


class PromptTable:
    """Token ids of every task of a dataset.

    Args:
        tasks: task texts; prompt codes index them.
        tokenizer: adds its own beginning-of-sequence token.
        max_token_len: longest prompt.
        template: with the place ``{prompt}``.

    Raises:
        UserError: a prompt is longer than ``max_token_len``; cutting it would make different tasks look alike.
    """

    def __init__(self, tasks: list[str], tokenizer: PreTrainedTokenizerFast, max_token_len: int, template: str = TEMPLATE):
        self._ids = [np.asarray(tokenizer(prompt_text(task, template))["input_ids"], np.int64) for task in tasks]
        for task, ids in zip(tasks, self._ids, strict=True):
            if len(ids) > max_token_len:
                raise UserError(f"task {task!r}: {len(ids)} tokens, but the critic's max_token_len is {max_token_len}; raise it")

    def take(self, codes: np.ndarray) -> list[np.ndarray]:
        """Token ids, int64, of each code's prompt."""
        return [self._ids[code] for code in codes]
