"""References between sections of an experiment: names, folders, cameras, splits and circles; what reads what."""

from pathlib import Path

import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.references import cached_cameras, check_references, value_datasets
from tests.references import CAMERA, EXPERIMENT, GIVEN, SCORES, STEAM, assert_refused, changed, check

HELDOUT = {"path": "b", "type": "rollout", "split": "eval"}
ROUND = {"path": "data/round", "type": "rollout", "collect": {"environment": "drawer", "policy": "recap", "num_episodes": 3, "seed": 1}}


SOUND = {
    "as it is": {},
    "a chain of policies": {"policies.recap.init_from": "start"},
    "demonstrations without labels": {"advantages.n5_q30.datasets": ["rollouts"]},
    "a critic and a policy without held-out data": {"critics.value.eval_datasets": [], "policies.recap.eval_datasets": []},
    "a policy with held-out data": {"policies.recap.eval_datasets": ["heldout"]},
    "a camera that one robot lacks": {
        "camera_maps.arm": {CAMERA: "observation.images.front", "observation.images.wrist": None},
        "camera_maps.gripper": {CAMERA: CAMERA, "observation.images.wrist": "observation.images.wrist"},
        "datasets.rollouts.camera_map": "arm",
        "datasets.heldout.camera_map": "gripper",
        "datasets.demonstrations.camera_map": "gripper",
        "critics.value.cameras": [CAMERA, "observation.images.wrist"],
    },
}
BROKEN = {
    "environment of a collection": (
        {"datasets.rollouts.collect.environment": "drawr"},
        "datasets.rollouts.collect.environment: 'drawr' is not an entry of environments; did you mean 'drawer'?",
    ),
    "policy of a collection": (
        {"datasets.rollouts.collect.policy": "strat"},
        "datasets.rollouts.collect.policy: 'strat' is not an entry of policies; did you mean 'start'?",
    ),
    "returns of a critic": (
        {"critics.value.returns_tag": "zzz"},
        "critics.value.returns_tag: 'zzz' is not an entry of returns; known: fail40",
    ),
    "dataset of a critic": (
        {"critics.value.datasets": ["rollout"]},
        "critics.value.datasets: 'rollout' is not an entry of datasets; did you mean 'rollouts'?",
    ),
    "held-out dataset of a critic": ({"critics.value.eval_datasets": ["held"]}, "critics.value.eval_datasets: 'held' is not"),
    "critic of labels": ({"advantages.n5_q30.critic": "values"}, "advantages.n5_q30.critic: 'values' is not an entry of critics"),
    "dataset of labels": ({"advantages.n5_q30.datasets": ["x"]}, "advantages.n5_q30.datasets: 'x' is not an entry of datasets"),
    "labels of a policy": ({"policies.recap.advantage_tag": "n5_q3"}, "policies.recap.advantage_tag: 'n5_q3' is not"),
    "dataset of a policy": ({"policies.start.datasets": ["demos"]}, "policies.start.datasets: 'demos' is not an entry of datasets"),
    "start of a policy": ({"policies.recap.init_from": "stat"}, "policies.recap.init_from: 'stat' is not an entry of policies; did"),
    "environment of an evaluation": ({"evaluations.paired.environment": "x"}, "evaluations.paired.environment: 'x' is not"),
    "sidecars below a file": (
        {"datasets.rollouts.sidecar_root": f"{__file__}/sidecars"},
        f"datasets.rollouts: {__file__}/sidecars/rollouts cannot be written; set sidecar_root to a folder that can",
    ),
    "policy of an evaluation": ({"evaluations.paired.policies": ["recp"]}, "evaluations.paired.policies: 'recp' is not"),
    "one folder, two names": (
        {"datasets.heldout.path": "./data/demo/rollouts"},
        "datasets.heldout.path: ./data/demo/rollouts is also the path of 'rollouts'; use one name for one dataset",
    ),
    "critic trains on held-out data": (
        {"critics.value.datasets": ["heldout"]},
        "critics.value.datasets: 'heldout' is held out (datasets.heldout.split is eval); remove it here, or set its split to train",
    ),
    "policy trains on held-out data": ({"policies.filtered.datasets": ["heldout"]}, "policies.filtered.datasets: 'heldout' is held out"),
    "critic is judged on training data": (
        {"critics.value.eval_datasets": ["rollouts"]},
        "critics.value.eval_datasets: 'rollouts' is not held out; set datasets.rollouts.split to eval",
    ),
    "unlabelled rollouts": (
        {"advantages.n5_q30.datasets": ["demonstrations"], "advantages.n5_q30.pool": "all"},
        "policies.recap.datasets: 'rollouts' has no labels of n5_q30; add it to advantages.n5_q30.datasets",
    ),
    "camera map of a dataset": (
        {"datasets.rollouts.camera_map": "libro"},
        "datasets.rollouts.camera_map: 'libro' is not an entry of camera_maps; did you mean 'libero'?",
    ),
    "camera that a map leaves out": (
        {"datasets.heldout.camera_map": "arm", "camera_maps.arm": {"observation.images.top": "observation.images.front"}},
        "camera_maps.arm: no camera 'observation.images.corner2', which dataset 'heldout' needs; map it to a key of the dataset",
    ),
    "camera of a held-out dataset of a policy": (
        {
            "datasets.other": {"path": "data/other", "type": "rollout", "split": "eval", "camera_map": "libero"},
            "policies.filtered.eval_datasets": ["other"],
        },
        "camera_maps.libero: no camera 'observation.images.corner2', which dataset 'other' needs",
    ),
    "camera of a dataset that is only labelled": (
        {
            "datasets.other": {"path": "data/other", "type": "rollout", "camera_map": "libero"},
            "advantages.n5_q30.datasets": ["demonstrations", "rollouts", "other"],
        },
        "camera_maps.libero: no camera 'observation.images.corner2', which dataset 'other' needs",
    ),
    "robot without eyes": (
        {"datasets.rollouts.camera_map": "arm", "camera_maps.arm": {CAMERA: None}},
        "camera_maps.arm: dataset 'rollouts' has none of the cameras observation.images.corner2; map one to a key",
    ),
    "one image under two names": (
        {
            "datasets.rollouts.camera_map": "arm",
            "camera_maps.arm": {CAMERA: "observation.images.top", "observation.images.wrist": "observation.images.top"},
            "datasets.heldout.camera_map": "arm",
            "datasets.demonstrations.camera_map": "arm",
            "critics.value.cameras": [CAMERA, "observation.images.wrist"],
        },
        "camera_maps.arm: two cameras are observation.images.top, which a model would see twice; map one of them to null",
    ),
    "held-out dataset of a policy": (
        {"policies.recap.eval_datasets": ["held"]},
        "policies.recap.eval_datasets: 'held' is not an entry of datasets; did you mean 'heldout'?",
    ),
    "policy is judged on training data": (
        {"policies.recap.eval_datasets": ["rollouts"]},
        "policies.recap.eval_datasets: 'rollouts' is not held out; set datasets.rollouts.split to eval",
    ),
    "empty pool": (
        {"advantages.demos": {"critic": "value", "datasets": ["demonstrations"], "pool": "rollout"}},
        "advantages.demos.pool: rollout, but no dataset of the tag has type rollout",
    ),
    "collected and downloaded": (
        {"datasets.rollouts.download": {"repo_id": "someone/drawer", "revision": "0" * 40, "num_episodes": 20}},
        "datasets.rollouts: is to be collected and downloaded; remove `collect` or `download`",
    ),
    "policy from itself": ({"policies.recap.init_from": "recap"}, "policies.recap: needs itself: policies.recap -> policies.recap"),
    "dataset from a policy that needs it": (
        {
            "datasets.round": ROUND,
            "policies.recap.datasets": ["round", "rollouts"],
            "advantages.n5_q30.datasets": ["demonstrations", "rollouts", "round"],
        },
        "needs itself: ",
    ),
    "labels from a policy that needs them": (
        {"datasets.round": ROUND, "critics.value.datasets": ["rollouts", "round"]},
        "datasets.round -> policies.recap -> advantages.n5_q30 -> critics.value -> datasets.round; break the circle",
    ),
    "progress critic on held-out data": ({f"{STEAM}.datasets": ["heldout"]}, f"{STEAM}.datasets: 'heldout' is held out"),
    "import for an unknown dataset": (
        {"returns.mine": {"imported": {"sidecar": "theirs"}, "datasets": ["gvien"]}, "datasets.given": GIVEN},
        "returns.mine.datasets: 'gvien' is not an entry of datasets; did you mean 'given'?",
    ),
    "imported labels that lack a dataset": (
        {"datasets.given": GIVEN, "advantages.n5_q30": {"imported": {"column": "good"}, "datasets": ["given"]}},
        "policies.recap.datasets: 'rollouts' has no labels of n5_q30; add it to advantages.n5_q30.datasets",
    ),
    "control of labels without labels": (
        {"policies.filtered.label_control": "shuffled"},
        "policies.filtered.label_control: shuffled, but there are no labels; give an advantage_tag, or remove it",
    ),
    "scores without a place": (
        {
            **{"returns": {}, "advantages": {}, "policies": {}, "evaluations": {}},
            "critics": {"progress": EXPERIMENT["critics"]["progress"]},
            "datasets": {"demonstrations": {"path": "a", "type": "sft", "sidecar_root": __file__}, "heldout": HELDOUT},
        },
        f"datasets.demonstrations: {__file__}/demonstrations cannot be written; set sidecar_root to a folder that can",
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_experiment_passes(case: str) -> None:
    check(SOUND[case])


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    assert_refused(*BROKEN[case])


@pytest.mark.parametrize("file", ["config.yaml", "experiments/evidence_door_open.yaml", "experiments/evidence_faucet_open.yaml"])
def test_shipped_experiments_that_need_no_weights_pass(file: str) -> None:
    check_references(load_experiment(yaml.safe_load((Path(__file__).parents[2] / "config" / file).read_text())))


def test_cached_cameras_are_the_keys_of_the_dataset_that_its_readers_need() -> None:
    both = [CAMERA, "observation.images.wrist"]
    experiment = changed(
        {
            "camera_maps.arm": {CAMERA: "observation.images.top", "observation.images.wrist": "observation.images.hand"},
            "camera_maps.blind": {CAMERA: "observation.images.only", "observation.images.wrist": None},
            "datasets.rollouts.camera_map": "arm",
            "datasets.heldout.camera_map": "blind",
            "critics.value.cameras": both,
            "policies.recap.eval_datasets": ["heldout"],
            "policies.recap.model.image_size": 32,
        }
    )
    loaded = load_experiment(experiment)
    assert cached_cameras(loaded, "rollouts", 64) == ["observation.images.hand", "observation.images.top"]
    assert cached_cameras(loaded, "rollouts", 32) == ["observation.images.top"]  # the policy has one camera
    assert cached_cameras(loaded, "demonstrations", 64) == both
    assert cached_cameras(loaded, "heldout", 64) == cached_cameras(loaded, "heldout", 32) == ["observation.images.only"]


def test_one_folder_by_two_names_is_found_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    datasets = {"one": {"path": str(tmp_path), "type": "sft"}, "two": {"path": str(tmp_path / "link"), "type": "sft"}}
    with pytest.raises(UserError, match=r"datasets\.two\.path: .*link is also the path of 'one'"):
        check_references(load_experiment({"experiment": "x", "datasets": datasets}))


def test_only_datasets_that_get_sidecars_need_a_folder_for_them() -> None:
    datasets = {"one": {"path": "data/one", "type": "sft", "sidecar_root": __file__}}
    check_references(load_experiment({"experiment": "x", "datasets": datasets}))
    with pytest.raises(UserError, match=r"datasets\.one: .* cannot be written"):
        check_references(load_experiment({"experiment": "x", "datasets": datasets, "returns": {"a": {"failure_reward": -1}}}))


def test_a_dataset_is_judged_by_the_critics_of_both_methods() -> None:
    other = {"path": "data/other", "type": "rollout"}
    loaded = load_experiment(changed({"datasets.other": other, f"{SCORES}.datasets": ["rollouts", "other"]}))
    assert value_datasets(loaded, "value") == ["demonstrations", "rollouts", "heldout"]
    assert value_datasets(loaded, "progress") == ["demonstrations", "heldout", "rollouts", "other"]
    assert cached_cameras(loaded, "other", 64) == [CAMERA]
