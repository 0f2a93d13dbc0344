"""Training defects of the system that the seeds describe, by their number in its list; none of them is ours.

Those that concern one module are tested beside it: see docs/reference_defects.md.
"""

import dataclasses
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.lineage import Lineage
from recap_steam.policy.samples import load_sources
from recap_steam.sidecar import KEY_COLUMNS, sidecar_path, write_sidecar
from recap_steam.sidecar_schemas import SCHEMAS
from recap_steam.training import critic_stage, held_out
from recap_steam.training.critic import CriticTraining
from recap_steam.training.order import DataOrder, sample_rngs
from tests.datasets import write_v30
from tests.experiments import small_config
from tests.unit.critics.experiment import make


@pytest.fixture(scope="module")
def small_critic(tmp_path_factory) -> CriticTraining:
    files = make(tmp_path_factory.mktemp("experiment"))
    experiment, config = files.experiment, files.experiment.critics["value"]
    names = [*config.datasets, *config.eval_datasets]
    sources = {name: critic_stage._read(experiment, config, name, files.episodes, files.frames) for name in names}
    return critic_stage._trainable(experiment, config, sources)


def test_defect_26_every_held_out_frame_counts_once_however_they_are_batched(small_critic, monkeypatch):
    """There, the mean over batches gives the frames of a short last batch more weight, and metrics are of 32 frames at a time."""
    small_critic.model.eval()

    def evaluated(batch_size: int) -> dict[str, float]:
        monkeypatch.setattr(held_out, "EVALUATION_BATCH", batch_size)
        with torch.no_grad():
            return small_critic.evaluate()

    whole, parts = evaluated(1000), evaluated(5)
    assert sum(small_critic.held_out.lengths) % 5 == 1  # the last batch holds one frame
    assert whole.keys() == parts.keys()
    for name in whole:
        if name.split("/")[1] in ("loss", "mae"):
            np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5, atol=1e-7, err_msg=name)
    for name in ("eval/spearman", "eval_train/spearman"):  # nearly equal values of an untrained critic may change places
        np.testing.assert_allclose(parts[name], whole[name], atol=0.02)


def test_defect_28_augmentation_is_drawn_per_sample_from_its_place_in_the_data_order(small_critic):
    """There, all samples of a batch share one draw, which depends on how often the process drew before."""

    def drawn(positions: range, step: int = 7) -> torch.Tensor:
        return small_critic.load(np.array(positions), sample_rngs(0, step, positions))["augmentation"]

    batch = drawn(range(8))
    assert len(batch.unique(dim=0)) == 8
    assert torch.equal(torch.cat([drawn(range(3)), drawn(range(3, 8))]), batch)  # whatever the micro batches and processes
    assert not torch.equal(drawn(range(8), step=8), batch)


def test_defect_44_the_order_costs_draws_by_dataset_not_by_sample(monkeypatch):
    """There, every sample hashes its number and makes a generator."""
    made = []
    really_make = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda *args: (made.append(args), really_make(*args))[1])
    order = DataOrder([3_000, 5_000], [3.0, 5.0], seed=0)
    assert len(np.unique(np.concatenate([order.batch(step, 100) for step in range(79)]))) == 7_900
    assert len(made) == 2  # one permutation a dataset


@dataclasses.dataclass(frozen=True)
class Cost:
    calls: int  # of Python functions
    peak_bytes: int


def cost(function: Callable[[], object]) -> Cost:
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        function()
        return Cost(len(calls), tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def labelled(root, frames: int) -> Experiment:
    """A policy's dataset of ``frames`` frames, with labels."""
    write_v30(root / "data", [frames // 2] * 2, success=[True, False])
    config = small_config()
    config["datasets"]["rollouts"]["path"], config["policies"]["recap"]["datasets"] = str(root / "data"), ["rollouts"]
    experiment = load_experiment(config)
    index_stage(experiment, "rollouts", root / "rollouts.parquet")
    episodes = load_episodes(root / "rollouts.parquet", open_dataset("rollouts", root / "data"))
    columns = {field.name: np.zeros(frames, field.type.to_pandas_dtype()) for field in SCHEMAS["advantages"]}
    columns = {name: column for name, column in columns.items() if name not in KEY_COLUMNS}
    columns |= {"dataset_name": "rollouts", "advantage": np.arange(frames) % 3 == 0}
    parameters = dataclasses.asdict(experiment.advantages["n5_q30"]) | dataclasses.asdict(experiment.returns["fail40"])
    lineage = Lineage("compute_advantages", "n5_q30", episodes.fingerprint, parameters, {}, {}, "code")
    path = sidecar_path(experiment.datasets["rollouts"], "rollouts", "advantages_n5_q30")
    write_sidecar(path, "advantages", columns, episodes, lineage)
    return experiment


def test_defect_44_labels_are_joined_without_a_loop_over_frames_and_in_bounded_memory(tmp_path):
    """There, a dictionary of one tuple a frame (some 500 bytes each) and a loop over rows, repeated in every worker."""
    costs = {}
    for frames in (1_000, 50_000):
        experiment = labelled(tmp_path / str(frames), frames)
        (source,) = load_sources(experiment, "recap", tmp_path / str(frames))
        assert source.labels.dtype == bool and np.array_equal(source.labels, np.arange(frames) % 3 == 0)
        costs[frames] = cost(lambda experiment=experiment, frames=frames: load_sources(experiment, "recap", tmp_path / str(frames)))
    assert costs[50_000].calls < 1.1 * costs[1_000].calls
    assert costs[50_000].peak_bytes < 64 * 50_000  # states and actions of this robot included: 20 bytes a frame, and the keys
