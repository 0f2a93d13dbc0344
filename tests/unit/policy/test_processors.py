import dataclasses

import numpy as np
import pytest
import torch
from lerobot.policies.pi05 import processor_pi05
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS

from recap_steam.errors import UserError
from recap_steam.policy import pi05
from recap_steam.policy.processors import encode, make_processors, normalize_actions
from recap_steam.policy.prompts import NEGATIVE, PLAIN, POSITIVE, with_indicator
from tests.policies import ACTION_DIM, CAMERA, CONFIG, MODEL, STATE_DIM


@pytest.fixture
def stock(statistics, tokenizer, monkeypatch):
    """lerobot's own factory; only the download of its tokenizer is replaced."""
    step = processor_pi05.TokenizerProcessorStep
    monkeypatch.setattr(processor_pi05, "TokenizerProcessorStep", lambda tokenizer_name, **rest: step(tokenizer=tokenizer, **rest))
    tensors = {feature: {name: torch.tensor(values) for name, values in table.items()} for feature, table in statistics.items()}
    return processor_pi05.make_pi05_pre_post_processors(CONFIG, tensors)


def test_tokens_actions_and_their_inverse_are_those_of_lerobots_factory(processors, stock):
    rng = np.random.default_rng(0)
    states, actions = rng.normal(2, 6, (50, STATE_DIM)).astype(np.float32), rng.uniform(-1, 3, (50, ACTION_DIM)).astype(np.float32)
    tasks = [with_indicator("open the drawer", kind) for kind in (PLAIN, POSITIVE, NEGATIVE) for _ in range(17)][:50]
    expected = stock[0]({"observation.state": torch.from_numpy(states), "task": tasks, "action": torch.from_numpy(actions)})
    tokens, mask = encode(processors[0], states, tasks)
    assert torch.equal(tokens, expected[OBS_LANGUAGE_TOKENS]) and torch.equal(mask, expected[OBS_LANGUAGE_ATTENTION_MASK])
    normalised = normalize_actions(processors[0], actions)
    np.testing.assert_array_equal(normalised, expected["action"].numpy())
    np.testing.assert_allclose(processors[1](torch.from_numpy(normalised)).numpy(), actions, atol=1e-5)


def test_the_model_reads_the_indicator_after_the_task(processors, tokenizer):
    state = np.full((1, STATE_DIM), 2.0, np.float32)
    tokens, mask = encode(processors[0], state, [with_indicator("open the drawer", POSITIVE)])
    text = tokenizer.decode(tokens[0][mask[0]], skip_special_tokens=True)
    assert text.startswith("Task: open the drawer Advantage: positive, State: ") and text.endswith(";\nAction: ")


def test_a_prompt_that_lerobot_would_cut_is_an_error(statistics, tokenizer):
    state = np.full((3, STATE_DIM), 2.0, np.float32)
    wide = make_processors(CONFIG, statistics, tokenizer)[0]
    longest = int(encode(wide, state, ["open"] * 3)[1].sum(1).max())
    for limit in (longest, longest - 1):
        config = pi05.make_config(dataclasses.replace(MODEL, max_token_len=limit), [CAMERA], STATE_DIM, ACTION_DIM)
        narrow = make_processors(config, statistics, tokenizer)[0]
        if limit == longest:
            assert encode(narrow, state, ["open"] * 3)[1].all()
        else:
            with pytest.raises(UserError, match=f"max_token_len is {limit}, but a prompt has {longest} tokens"):
                encode(narrow, state, ["open"] * 3)
