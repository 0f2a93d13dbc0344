import numpy as np
import pytest

from recap_steam.policy.processors import make_processors
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.tokenizer import train_tokenizer
from tests.policies import ACTION_DIM, CAMERA, CONFIG, SMALL, STATE_DIM, make_policy, make_statistics


@pytest.fixture
def policy():
    return make_policy()


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(tokenizer_corpus(["open the drawer"]), SMALL.vocab_size)


@pytest.fixture(scope="session")
def statistics():
    rng = np.random.default_rng(0)
    return make_statistics(rng.normal(2, 3, (500, STATE_DIM)), rng.uniform(-0.5, 2, (500, ACTION_DIM)))


@pytest.fixture(scope="session")
def processors(statistics, tokenizer):
    return make_processors(CONFIG, statistics, tokenizer)


@pytest.fixture(scope="session")
def observations():
    """Two raw observations: images uint8, states in environment units, tasks."""
    rng = np.random.default_rng(1)
    images = {CAMERA: rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)}
    return images, rng.normal(2, 3, (2, STATE_DIM)).astype(np.float32), ["open the drawer", "push_the button"]
