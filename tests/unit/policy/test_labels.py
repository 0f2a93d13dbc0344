"""Labels of a policy and their controls, from advantages sidecars of either method."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import index_stage
from recap_steam.errors import UserError
from recap_steam.labels.parameters import RELABELLED, label_parameters
from recap_steam.lineage import Lineage
from recap_steam.policy.labels import shuffled
from recap_steam.policy.samples import Source, load_sources
from recap_steam.sidecar import sidecar_path, write_sidecar
from recap_steam.sidecar_schemas import SCHEMAS, STEAM_ADVANTAGES
from tests.datasets import index, write_v30

LENGTHS = {"demonstrations": [30], "rollouts": [40, 60], "more": [60, 40], "unlabelled": [5]}
TAGS = {"by_values": SCHEMAS["advantages"], "by_scores": STEAM_ADVANTAGES}
LABELLED = ("demonstrations", "rollouts", "more")


def labels_of(name: str) -> np.ndarray:
    return np.random.default_rng([3, *name.encode()]).random(sum(LENGTHS[name])) < 0.3


def config(root, **policy) -> dict:
    training = {"cameras": ["c"], "optim": {"lr": 1.0}, "max_steps": 1, "global_batch_size": 1, "model": {"image_size": 16}}
    scores = {"label_mode": "quantile", "rollout_quantile": 0.3}
    return {
        "experiment": "small",
        "datasets": {
            name: {"path": str(root / name), "type": "sft" if name in ("demonstrations", "unlabelled") else "rollout"} for name in LENGTHS
        },
        "returns": {"fail": {"failure_reward": -9}},
        "critics": {
            "value": {**training, "datasets": ["demonstrations"], "returns_tag": "fail"},
            "order": {**training, "datasets": ["demonstrations"], "method": "steam", "k": 3},
        },
        "advantages": {
            "by_values": {"critic": "value", "datasets": list(LABELLED)},
            "by_scores": {"critic": "order", "datasets": list(LABELLED), **scores},
        },
        "policies": {"policy": {**training, "datasets": list(LENGTHS), **policy}},
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("labels")
    experiment = load_experiment(config(root))
    for name, lengths in LENGTHS.items():
        write_v30(root / name, lengths, success=[number == 0 for number in range(len(lengths))])
        index_stage(experiment, name, root / f"episodes/{name}.parquet")
    for tag in TAGS:
        for name in LABELLED:
            write_labels(experiment, tag, name, root / name)
    return root


def write_labels(experiment: Experiment, tag: str, name: str, root, stage: str = "compute_advantages") -> None:
    """A sidecar in which only the labels mean anything."""
    _, episodes = index(root)
    count = episodes.num_frames
    columns = {}
    for field in list(TAGS[tag])[2:]:
        lists, text = pa.types.is_list(field.type), pa.types.is_string(field.type)
        columns[field.name] = name if text else np.zeros((count, 2)) if lists else np.zeros(count, field.type.to_pandas_dtype())
    columns["advantage"] = labels_of(name)
    lineage = Lineage(stage, tag, episodes.fingerprint, label_parameters(experiment, tag), {}, {}, "")
    write_sidecar(sidecar_path(experiment.datasets[name], name, f"advantages_{tag}"), "advantages", columns, episodes, lineage)


def sources(root, **policy) -> dict[str, Source]:
    found = load_sources(load_experiment(config(root, **policy)), "policy", root / "episodes")
    return {source.name: source for source in found}


@pytest.mark.parametrize("tag", TAGS)
def test_labels_of_either_method(root, tag):
    found = sources(root, advantage_tag=tag)
    for name in LABELLED:
        np.testing.assert_array_equal(found[name].labels, labels_of(name))
    assert found["unlabelled"].labels.all()


def test_imitation_has_none(root):
    assert [source.labels for source in sources(root).values()] == [None] * len(LENGTHS)


@pytest.mark.parametrize("tag", TAGS)
def test_all_positive_is_every_frame(root, tag):
    found = sources(root, advantage_tag=tag, label_control="all_positive")
    assert all(source.labels.all() and len(source.labels) == source.episodes.num_frames for source in found.values())


@pytest.mark.parametrize("tag", TAGS)
def test_shuffled_labels_keep_their_number_in_each_dataset(root, tag):
    found = sources(root, advantage_tag=tag, label_control="shuffled", seed=1)
    for name in LABELLED:
        labels = labels_of(name)
        assert found[name].labels.sum() == labels.sum()
        assert 0.3 < (found[name].labels == labels).mean() < 0.8  # 0.58 by chance
    assert found["unlabelled"].labels.all()


def test_shuffled_labels_depend_on_the_seed_and_the_dataset_only(root):
    one, again = (sources(root, advantage_tag="by_values", label_control="shuffled", seed=1) for _ in range(2))
    alone = sources(root, advantage_tag="by_scores", label_control="shuffled", seed=1, datasets=["more"])
    other = sources(root, advantage_tag="by_values", label_control="shuffled", seed=2)
    for name in ("rollouts", "more"):
        np.testing.assert_array_equal(one[name].labels, again[name].labels)
        assert (one[name].labels != other[name].labels).any()
    np.testing.assert_array_equal(one["more"].labels, alone["more"].labels)
    assert (shuffled(labels_of("rollouts"), np.arange(100), 1, "a") != shuffled(labels_of("rollouts"), np.arange(100), 1, "b")).any()


def test_shuffled_labels_stay_among_the_samples(root):
    """Frames that the filter drops take part in no exchange, so the samples keep their number of positive ones."""
    options = {"advantage_tag": "by_values", "frame_filter": "successes_and_interventions"}
    source = sources(root, **options, label_control="shuffled")["rollouts"]
    labels, dropped = labels_of("rollouts"), np.setdiff1d(np.arange(100), source.selected)
    assert len(dropped) == 60
    assert source.labels[source.selected].sum() == labels[source.selected].sum()
    assert (source.labels[source.selected] != labels[source.selected]).any()
    np.testing.assert_array_equal(source.labels[dropped], labels[dropped])


def test_labels_that_a_command_made_are_refused(root, tmp_path):
    """The workflow would make them again after the policy was trained, and then train it again."""
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    write_labels(load_experiment(config(tmp_path)), "by_values", "more", tmp_path / "more", RELABELLED)
    assert sources(tmp_path, advantage_tag="by_values", datasets=["rollouts"])["rollouts"].labels is not None
    with pytest.raises(UserError, match=r"more/meta/advantages_by_values\.parquet: was made by the relabelling command; delete it"):
        sources(tmp_path, advantage_tag="by_values")


def test_labels_of_other_strides_are_refused(root):
    raw = config(root, advantage_tag="by_scores")
    raw["critics"]["order"]["k"] = 5
    with pytest.raises(UserError, match=r"advantages_by_scores\.parquet: parameters\.k is 3, needed is 5; .*compute_advantages"):
        load_sources(load_experiment(raw), "policy", root / "episodes")
