"""Which frames a policy trains on."""

import numpy as np

from recap_steam.dataset.vectors import read_vectors
from recap_steam.policy.samples import Source, select_rows
from recap_steam.training.policy_samples import evenly
from tests.datasets import index, write_v30


def test_a_corrected_success_counts_only_its_correction(tmp_path):
    root = write_v30(tmp_path / "rollouts", [3, 4, 5, 2], success=[True, True, False, False], interventions=[(1, 2, 4), (2, 4, 5)])
    _, episodes = index(root)
    np.testing.assert_array_equal(select_rows("successes_and_interventions", episodes), [0, 1, 2, 5, 6, 11])
    np.testing.assert_array_equal(select_rows("all", episodes), np.arange(14))


def source(tmp_path, name, lengths, **options):
    dataset, episodes = index(write_v30(tmp_path / name, lengths, **options))
    columns = (read_vectors(dataset, episodes, column) for column in ("observation.state", "action"))
    return Source(name, episodes, select_rows("all", episodes), *columns, None)


def test_chunks_repeat_the_last_action_of_their_episode(tmp_path):
    rollouts = source(tmp_path, "rollouts", [3, 4], success=[True, True])
    actions, is_pad = rollouts.chunks(np.array([1, 2, 3, 0]), 3)
    np.testing.assert_array_equal(actions, rollouts.actions[[[1, 2, 2], [2, 2, 2], [3, 4, 5], [0, 1, 2]]])
    assert is_pad.tolist() == [[False, False, True], [False, True, True], [False] * 3, [False] * 3]


def test_thinned_sources_cover_every_dataset_evenly(tmp_path):
    sources = [
        source(tmp_path, name, lengths, success=[True] * len(lengths)) for name, lengths in (("one", [9, 9]), ("two", [2]), ("three", [10]))
    ]
    thinned = evenly(sources, 7)
    assert [(part.name, part.selected.tolist()) for part in thinned] == [("one", [0, 5, 10, 14]), ("two", [1]), ("three", [4, 9])]
    assert [part.selected.tolist() for part in evenly(sources, 1000)] == [part.selected.tolist() for part in sources]
    assert [part.name for part in evenly(sources, 2)] == ["one", "three"]
