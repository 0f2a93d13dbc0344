import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.training.order import PERIOD, DataOrder, locate, sample_rngs, spread


def draw(order: DataOrder, steps: int, size: int) -> np.ndarray:
    return np.concatenate([order.batch(step, size) for step in range(steps)])


def test_one_epoch_sees_every_sample_once():
    samples = draw(DataOrder([97], [1.0], seed=3), steps=97 * 2, size=5)
    epochs = samples.reshape(10, 97)
    assert all(np.array_equal(np.sort(epoch), np.arange(97)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])


def test_defect_21_coverage_grows_with_every_epoch_of_a_mixture():
    samples = draw(DataOrder([100, 900], [100.0, 900.0], seed=0), steps=100, size=10)
    assert len(np.unique(samples)) >= 998  # an even interleave may be one draw ahead for one dataset; with replacement it would be 632


@pytest.mark.parametrize("world", [1, 2, 4])
def test_defect_21_every_epoch_sees_every_sample_once_however_many_processes_share_it(world):
    order, size = DataOrder([96], [1.0], seed=5), 8
    for epoch in range(3):
        seen = []
        for step in range(epoch * 12, (epoch + 1) * 12):
            for rank in range(world):  # each process asks for the whole batch and takes its part
                seen += list(order.batch(step, size)[rank * size // world : (rank + 1) * size // world])
        assert sorted(seen) == list(range(96))


def test_defect_31_order_is_a_pure_function_of_seed_and_step():
    first, second = DataOrder([50, 70], [1.0, 3.0], seed=7), DataOrder([50, 70], [1.0, 3.0], seed=7)
    draw(first, steps=40, size=16)
    assert np.array_equal(first.batch(41, 16), second.batch(41, 16))
    assert not np.array_equal(first.batch(41, 16), DataOrder([50, 70], [1.0, 3.0], seed=8).batch(41, 16))


def test_every_batch_holds_the_shares_of_the_mixture():
    order = DataOrder([10, 1000, 20], [1.0, 2.0, 1.0], seed=0)
    for step in (0, 5, 5000):
        batch = order.batch(step, 64)
        counts = np.histogram(batch, bins=[0, 10, 1010, 1030])[0]
        assert np.abs(counts - [16, 32, 16]).max() <= 1


def test_old_permutations_are_forgotten_even_where_a_batch_spans_many_epochs():
    order = DataOrder([2, 40], [1.0, 1.0], seed=0)
    draw(order, steps=50, size=64)
    assert len(order._permutations) <= 4


def test_samples_are_located_in_their_dataset():
    dataset, position = locate([3, 1, 4], np.array([0, 2, 3, 4, 7]))
    assert dataset.tolist() == [0, 0, 1, 2, 2] and position.tolist() == [0, 2, 0, 0, 3]


def test_evaluation_spreads_over_all_datasets():
    assert spread([10, 6], 4).tolist() == [0, 5, 10, 15]
    assert all(np.array_equal(np.unique(spread([total], 40)), spread([total], 40)) for total in range(1, 100))


def test_a_tiny_share_is_not_lost():
    order = DataOrder([5, 10**6], [1e-9, 1.0], seed=0)
    samples = order.batch(0, PERIOD)
    assert (samples < 5).sum() == 1


@pytest.mark.parametrize(("lengths", "weights"), [([], []), ([0], [1.0]), ([3, 3], [1.0, 0.0]), ([3], [float("nan")])])
def test_impossible_mixtures_are_errors(lengths, weights):
    with pytest.raises(UserError):
        DataOrder(lengths, weights, seed=0)


def test_draws_depend_on_the_position_not_on_the_micro_batch():
    whole = [rng.random() for rng in sample_rngs(1, 2, range(0, 6))]
    halves = [rng.random() for part in (range(0, 3), range(3, 6)) for rng in sample_rngs(1, 2, part)]
    assert whole == halves and len(set(whole)) == 6
