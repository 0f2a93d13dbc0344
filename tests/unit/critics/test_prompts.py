import numpy as np
import pytest

from recap_steam.critics.frames import collate_tokens
from recap_steam.critics.prompts import PromptTable, prompt_text
from recap_steam.errors import UserError
from recap_steam.tokenizer import train_tokenizer

TOKENIZER = train_tokenizer(["Task: open the drawer.", "Task: go."], 300)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("Open the Drawer.", "Task: open the drawer."),
        (" pick_up\nthe cup!", "Task: pick up the cup."),
        ("say 'go'", "Task: say 'go'."),
        ("really?!", "Task: really?."),  # one mark only
    ],
)
def test_tasks_are_cleaned(task, text):
    assert prompt_text(task) == text


def test_defect_42_prompts_are_padded_to_the_batch():
    table = PromptTable(["open the drawer", "go"], TOKENIZER, 48)
    batch = collate_tokens(table.take(np.array([1, 0, 1])))
    long, short = TOKENIZER("Task: open the drawer.")["input_ids"], TOKENIZER("Task: go.")["input_ids"]
    assert batch["tokens"].shape == (3, len(long)) and len(short) < len(long)
    assert batch["tokens"][1].tolist() == long and batch["token_mask"][1].all()
    assert batch["tokens"][0, : len(short)].tolist() == short
    assert batch["token_mask"][0].tolist() == [True] * len(short) + [False] * (len(long) - len(short))
    alone = collate_tokens(table.take([1]))
    assert batch["tokens"].dtype.itemsize == 8 and alone["tokens"].shape[1] == len(short)


def test_too_long_a_prompt_is_an_error_not_a_cut():
    with pytest.raises(UserError, match=r"task 'open the drawer': \d+ tokens, but the critic's max_token_len is 4; raise it"):
        PromptTable(["open the drawer"], TOKENIZER, 4)
