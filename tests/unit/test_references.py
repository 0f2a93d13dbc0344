"""References between sections of an experiment: each broken reference is one line that names key and remedy."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.lineage import METADATA_KEY
from recap_steam.references import cached_cameras, check_references, value_datasets
from recap_steam.steam_checks import member_source
from tests.changes import with_changes

REPOSITORY = Path(__file__).parents[2]
EXPERIMENT = yaml.safe_load((REPOSITORY / "tests/data/experiment.yaml").read_text())
DRAWER = EXPERIMENT["environments"]["drawer"]
CAMERA = "observation.images.corner2"
GIVEN = {"path": "given", "type": "rollout"}
LIBERO = {"simulator": "libero", "suite": "libero_10", "task_id": 2, "prompt": "turn on the stove", "cameras": {CAMERA: "agentview"}}
IN_KITCHEN = {"environment": "kitchen", "policy": "start", "num_episodes": 20, "seed": 0}
KITCHEN = {
    "environments.kitchen": LIBERO,
    "datasets.kitchen": {"path": "data/kitchen", "type": "rollout", "collect": IN_KITCHEN},
    "evaluations.kitchen": {"environment": "kitchen", "policies": ["start"], "num_episodes": 30, "seed": 20},
}
DOWNLOAD = {"repo_id": "someone/kitchen", "revision": "0" * 40, "num_episodes": 20}


def taken(name: str = "given", **source: str) -> dict[str, Any]:
    """Returns of a dataset that was there before, imported."""
    return {"datasets.given": GIVEN, "returns.mine": {"imported": source, "datasets": [name]}}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The experiment with values set by dotted key."""
    return with_changes(EXPERIMENT, changes)


GOOD = {
    "as it is": {},
    "an import from a tag that is made here of other datasets only": {
        "datasets.given": GIVEN,
        "advantages.theirs": {"imported": {"sidecar": "n5_q30"}, "datasets": ["given"]},
    },
    "two train collections may share seeds": {"datasets.rollouts.collect.seed": 1000},
    "an evaluation of another task may share seeds": {
        "environments.other": DRAWER | {"task": "door-open-v3"},
        "evaluations.paired.environment": "other",
        "evaluations.paired.seed": 2000,
    },
    "a critic beside an evaluation": {"evaluations.paired.video_critic": "value"},
    "seeds may touch": {"evaluations.paired.seed": 3030},
    "LIBERO's states recorded and drawn": KITCHEN | {"datasets.kitchen.collect.num_episodes": 4096, "datasets.kitchen.collect.seed": 50},
    "the expert as an arm": {"evaluations.paired.policies": ["start", "expert"]},
    "a chain of policies": {"policies.recap.init_from": "start"},
    "returns and labels from elsewhere": {
        "datasets.given": GIVEN,
        "returns.fail40": {"imported": {"column": "mc_return"}, "datasets": ["given"]},
        "critics.value.datasets": ["given"],
        "critics.value.eval_datasets": [],
        "advantages": {"mine": {"imported": {"sidecar": "N10"}, "datasets": ["given"]}},
        "policies.recap.datasets": ["given", "demonstrations"],
        "policies.recap.advantage_tag": "mine",
    },
    "a sidecar by the same tag beside a read-only dataset": {
        "datasets.given": GIVEN | {"sidecar_root": "sidecars"},
        "returns.mine": {"imported": {"sidecar": "mine"}, "datasets": ["given"]},
    },
    "demonstrations without labels": {"advantages.n5_q30.datasets": ["rollouts"]},
    "a critic and a policy without held-out data": {"critics.value.eval_datasets": [], "policies.recap.eval_datasets": []},
    "a policy with held-out data": {"policies.recap.eval_datasets": ["heldout"]},
    "values from 0 to 1": {
        "critics.value.normalize_to_minus_one_zero": False,
        "critics.value.model.v_min": 0,
        "critics.value.model.v_max": 1,
    },
    "a camera that one robot lacks": {
        "camera_maps.arm": {CAMERA: "observation.images.front", "observation.images.wrist": None},
        "camera_maps.gripper": {CAMERA: CAMERA, "observation.images.wrist": "observation.images.wrist"},
        "datasets.rollouts.camera_map": "arm",
        "datasets.heldout.camera_map": "gripper",
        "datasets.demonstrations.camera_map": "gripper",
        "critics.value.cameras": [CAMERA, "observation.images.wrist"],
    },
}


SCORES, STEAM = "advantages.steam_q30", "critics.progress"
GOOD |= {
    "rollouts that a progress critic was asked to learn from": {
        f"{STEAM}.datasets": ["demonstrations", "rollouts"],
        f"{STEAM}.train_on_rollouts": True,
    },
    "two bins at any stride": {f"{STEAM}.k": 7, f"{STEAM}.model.num_bins": 2},
    "bins of several strides": {f"{STEAM}.k": 8, f"{STEAM}.model.num_bins": 4},
    "a threshold of scores": {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None, f"{SCORES}.positive_threshold": -1},
    "a threshold below a baseline": {
        f"{SCORES}.label_mode": "threshold",
        f"{SCORES}.rollout_quantile": None,
        f"{SCORES}.subtract_baseline": True,
        f"{SCORES}.baseline_lookahead": 5,
        f"{SCORES}.positive_threshold": -1.8,
    },
    "a share of both pools": {f"{SCORES}.expert_quantile": 0.8},
    "a share of demonstrations alone": {
        f"{SCORES}.datasets": ["demonstrations"],
        f"{SCORES}.rollout_quantile": None,
        f"{SCORES}.expert_quantile": 0.8,
    },
    "a policy on scores": {"policies.recap.advantage_tag": "steam_q30", "policies.recap.label_control": "shuffled"},
}


def test_the_demo_passes() -> None:
    check_references(load_experiment(yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())))


@pytest.mark.parametrize("case", GOOD)
def test_a_sound_experiment_passes(case: str) -> None:
    check_references(load_experiment(changed(GOOD[case])))


HELDOUT = {"path": "b", "type": "rollout", "split": "eval"}
ROUND = {"path": "data/round", "type": "rollout", "collect": {"environment": "drawer", "policy": "recap", "num_episodes": 3, "seed": 1}}
BAD = {
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
    "vision tower that is not there": (
        {"critics.value.model.siglip_path": "no/siglip"},
        "critics.value.model.siglip_path: no/siglip is not a folder; give the local folder that holds it",
    ),
    "text model that is not there": ({"critics.value.model.gemma3_path": "no"}, "critics.value.model.gemma3_path: no is not a folder"),
    "critic's tokenizer": ({"critics.value.model.tokenizer_path": "no"}, "critics.value.model.tokenizer_path: no is not a folder"),
    "policy that is not there": ({"policies.start.model.pretrained_path": "no"}, "policies.start.model.pretrained_path: no is not"),
    "policy's tokenizer": ({"policies.start.model.tokenizer_path": "no"}, "policies.start.model.tokenizer_path: no is not a folder"),
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
    "support without the scale": (
        {"critics.value.model.v_min": -0.5},
        "critics.value.model.v_min: -0.5 to v_max 0.0 does not cover values from -1 to 0 (normalize_to_minus_one_zero is true); set",
    ),
    "support of the other scale": (
        {"critics.value.normalize_to_minus_one_zero": False},
        "critics.value.model.v_min: -1.0 to v_max 0.0 does not cover values from 0 to 1 (normalize_to_minus_one_zero is false); set",
    ),
    "expert deeper than the text model": (
        {"critics.value.model.gemma3_config.num_hidden_layers": 3},
        "critics.value.model.critic_expert_variant: dummy reads 4 text layers, gemma3 has 3; choose a shallower expert",
    ),
    "heads of expert and text model": (
        {"critics.value.model.critic_expert_variant": "gemma_1m", "critics.value.model.gemma3_config.num_key_value_heads": 2},
        "critics.value.model.critic_expert_variant: gemma_1m has 1 heads, not a multiple of gemma3's num_key_value_heads 2",
    ),
    "heads of the vision tower": (
        {"critics.value.model.siglip_config.num_attention_heads": 3},
        "critics.value.model.siglip_config.hidden_size: 64 is not a multiple of num_attention_heads 3",
    ),
    "vocabulary without room for every byte": (
        {"critics.value.model.gemma3_config.vocab_size": 100},
        "critics.value.model.gemma3_config.vocab_size: 100 is too small for a tokenizer; give 260 or more",
    ),
    "full-size policy without tokenizer": (
        {"policies.start.model.small": None, "policies.start.model.image_size": 224},
        "policies.start.model.tokenizer_path: a full-size policy needs PaliGemma's tokenizer; give its local folder",
    ),
    "simulated camera by another name": (
        {
            "camera_maps.arm": {"observation.images.base_0_rgb": CAMERA},
            "datasets.demonstrations.camera_map": "arm",
            "policies.start.cameras": ["observation.images.base_0_rgb"],
            "critics.value.datasets": ["rollouts"],
            "critics.progress.datasets": ["rollouts"],
            "critics.progress.train_on_rollouts": True,
            "advantages.n5_q30.datasets": ["rollouts"],
            "advantages.steam_q30.datasets": ["rollouts"],
            "policies.filtered.datasets": ["rollouts"],
            "policies.recap.datasets": ["rollouts"],
        },
        "policy 'start' needs exactly the camera that environment 'drawer' renders: observation.images.corner2",
    ),
    "empty pool": (
        {"advantages.demos": {"critic": "value", "datasets": ["demonstrations"], "pool": "rollout"}},
        "advantages.demos.pool: rollout, but no dataset of the tag has type rollout",
    ),
    "no vision tower": ({"critics.value.model.siglip_config": None}, "critics.value.model: give siglip_path"),
    "no text model": ({"critics.value.model.gemma3_config": None}, "critics.value.model: give gemma3_path"),
    "support upside down": ({"critics.value.model.v_min": 0}, "critics.value.model.v_min: 0 is not below v_max 0.0"),
    "critic image and patches": (
        {"critics.value.model.image_size": 50},
        "critics.value.model.image_size: 50 is not a multiple of the vision tower's patch size 16",
    ),
    "policy image and patches": ({"policies.start.model.image_size": 50}, "policies.start.model.image_size: 50 is not a multiple"),
    "full-size policy image": (
        {"policies.start.model.small": None},
        "policies.start.model.image_size: 64 is not a multiple of the vision tower's patch size 14",
    ),
    "micro batch of a critic": (
        {"critics.value.micro_batch_size": 48},
        "critics.value.global_batch_size: 64 is not a multiple of micro_batch_size 48 x 1 processes (devices x nodes); change one of them",
    ),
    "micro batch of a policy": (
        {"policies.start.micro_batch_size": 5},
        "policies.start.global_batch_size: 32 is not a multiple of micro_batch_size 5",
    ),
    "more steps than a chunk": (
        {"policies.start.model.n_action_steps": 5},
        "policies.start.model.n_action_steps: 5 is more than chunk_size 4",
    ),
    "start of another shape": (
        {"policies.recap.init_from": "start", "policies.recap.model.chunk_size": 8},
        "policies.recap.init_from: the model of 'start' differs",
    ),
    "camera that is not rendered": (
        {"policies.start.cameras": ["observation.images.wrist"]},
        "policy 'start' needs exactly the camera that environment 'drawer' renders: observation.images.corner2",
    ),
    "scales that share a file": (
        {"evaluations.paired.cfgrl_guidance_scale": [1.0, 1.0000001]},
        "evaluations.paired.cfgrl_guidance_scale: two scales agree in their first six digits",
    ),
    "evaluation on training seeds": (
        {"evaluations.paired.seed": 2119},
        "evaluations.paired.seed: seeds 2119 to 2168 overlap those of datasets.rollouts.collect.seed, 2000 to 2119, on the same task",
    ),
    "same task by another name": (
        {"environments.other": DRAWER, "evaluations.paired.environment": "other", "evaluations.paired.seed": 1014},
        "evaluations.paired.seed: seeds 1014 to 1063 overlap those of datasets.demonstrations.collect.seed",
    ),
    "evaluation on recorded states of training data": (
        KITCHEN | {"evaluations.kitchen.seed": 10},
        "evaluations.kitchen.seed: seeds 10 to 39 overlap those of datasets.kitchen.collect.seed, 0 to 19, on the same task; move",
    ),
    "expert where there is none": (
        KITCHEN | {"evaluations.kitchen.policies": ["start", "expert"]},
        "evaluations.kitchen: simulator libero of environment 'kitchen' has no scripted expert; let a policy act",
    ),
    "corrections where there is no expert": (
        KITCHEN | {"datasets.kitchen.collect.intervention_probability": 0.5},
        "datasets.kitchen.collect: simulator libero of environment 'kitchen' has no scripted expert; let a policy act",
    ),
    "one camera of two": (
        KITCHEN | {"environments.kitchen.cameras": {CAMERA: "agentview", "observation.images.wrist": "robot0_eye_in_hand"}},
        "policy 'start' needs exactly the cameras that environment 'kitchen' renders: observation.images.corner2, observation.images.wrist",
    ),
    "collected and downloaded": (
        KITCHEN | {"datasets.kitchen.download": DOWNLOAD},
        "datasets.kitchen: is to be collected and downloaded; remove `collect` or `download`",
    ),
    "held-out rollouts on training seeds": (
        {"datasets.heldout.collect.seed": 1990},
        "datasets.heldout.collect.seed: seeds 1990 to 2019 overlap those of datasets.rollouts.collect.seed",
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
}


BAD |= {
    "an ensemble beside an evaluation": (
        {"evaluations.paired.video_critic": "progress"},
        "evaluations.paired.video_critic: 'progress' judges pairs of frames; name a critic of method recap",
    ),
    "a critic of another camera beside an evaluation": (
        {"evaluations.paired.video_critic": "value", "critics.value.cameras": ["observation.images.wrist"]},
        f"evaluations.paired.video_critic: 'value' needs exactly the camera that is rendered there: {CAMERA}",
    ),
    "labels of values by scores": (
        {"advantages.n5_q30.critic": "progress"},
        "advantages.n5_q30: its critic 'progress' has method steam; set label_mode (threshold or quantile), or name another critic",
    ),
    "labels of scores by values": (
        {f"{SCORES}.critic": "value"},
        f"{SCORES}: its critic 'value' has method recap; remove label_mode, or name another critic",
    ),
    "progress critic on rollouts": (
        {f"{STEAM}.datasets": ["demonstrations", "rollouts"]},
        f"{STEAM}.datasets: 'rollouts' has type rollout, and only in expert data later is better; remove it here, or set train_on_rollouts",
    ),
    "progress critic on held-out data": ({f"{STEAM}.datasets": ["heldout"]}, f"{STEAM}.datasets: 'heldout' is held out"),
    "odd bins": (
        {f"{STEAM}.model.num_bins": 5},
        f"{STEAM}.model.num_bins: 5 is odd; half of the bins are for reversed pairs, give an even",
    ),
    "bins that no stride fills": (
        {f"{STEAM}.model.num_bins": 4},
        f"{STEAM}.model.num_bins: 4 does not divide 2k = 10; with k 5, give one of 2, 10",
    ),
    "vision tower of a progress critic": (
        {f"{STEAM}.model.siglip_config": None},
        f"{STEAM}.model: give siglip_path (a folder with weights) or siglip_config",
    ),
    "image and patches of a progress critic": ({f"{STEAM}.model.image_size": 50}, f"{STEAM}.model.image_size: 50 is not a multiple of the"),
    "heads of its text model": (
        {f"{STEAM}.model.gemma3_config.num_key_value_heads": 3},
        f"{STEAM}.model.gemma3_config.num_attention_heads: 4 is not a multiple of num_key_value_heads 3",
    ),
    "vocabulary of a progress critic": ({f"{STEAM}.model.gemma3_config.vocab_size": 9}, "vocab_size: 9 is too small for a tokenizer; give"),
    "micro batch of a member": (
        {f"{STEAM}.micro_batch_size": 48},
        f"{STEAM}.global_batch_size: 64 is not a multiple of micro_batch_size 48",
    ),
    "a scale of two bins": (
        {f"{STEAM}.model.num_bins": 2, f"{STEAM}.length_scale_enabled": True},
        f"{STEAM}.length_scale_enabled: two bins tell only the direction, which no scale changes; use more bins, or remove it",
    ),
    "member that is not there": (
        {f"{STEAM}.members": ["no/member:2"], f"{STEAM}.ensemble_size": 1},
        f"{STEAM}.members: no/member has no config.json; give the folder of a trained member or ensemble",
    ),
    "number of members": ({f"{STEAM}.members": ["no"]}, f"{STEAM}.ensemble_size: 3, but there are 1 members; give that number"),
    "threshold mode without threshold": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.positive_threshold: label_mode threshold needs it; give the score above which a frame is positive",
    ),
    "threshold mode with a share": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.positive_threshold": 0.2},
        f"{SCORES}.rollout_quantile: is not used with label_mode threshold; remove it, or set label_mode: quantile",
    ),
    "quantile mode with a threshold": (
        {f"{SCORES}.positive_threshold": 0.2},
        f"{SCORES}.positive_threshold: is not used with label_mode quantile; remove it, or set label_mode: threshold",
    ),
    "rollouts without a share": (
        {f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.rollout_quantile: label_mode quantile needs it; give the",
    ),
    "demonstrations alone without a share": (
        {f"{SCORES}.datasets": ["demonstrations"], f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.expert_quantile: without rollouts every frame is positive; give the share, or add a rollout dataset",
    ),
    "share of a pool that is empty": (
        {f"{SCORES}.datasets": ["rollouts"], f"{SCORES}.expert_quantile": 0.8},
        f"{SCORES}.expert_quantile: no dataset of the tag has type sft; remove it, or add one",
    ),
    "threshold above every score": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None, f"{SCORES}.positive_threshold": 1.2},
        f"{SCORES}.positive_threshold: 1.2 is no score: these lie between -1 and 1",
    ),
    "threshold below every score with baseline": (
        {
            f"{SCORES}.label_mode": "threshold",
            f"{SCORES}.rollout_quantile": None,
            f"{SCORES}.subtract_baseline": True,
            f"{SCORES}.positive_threshold": -1.9,
        },
        f"{SCORES}.positive_threshold: -1.9 is no score: these lie between -1.8 and 0",
    ),
    "baseline beyond the look-ahead": (
        {f"{SCORES}.subtract_baseline": True, f"{SCORES}.baseline_lookahead": 6},
        f"{SCORES}.baseline_lookahead: 6 is more than k 5 of 'progress'",
    ),
    "baseline that is not subtracted": (
        {f"{SCORES}.baseline_lookahead": 5},
        f"{SCORES}.baseline_lookahead: is only used with a baseline; remove it, or set subtract_baseline: true",
    ),
    "import from nowhere": (
        taken(),
        "returns.mine.imported: give either sidecar or column",
    ),
    "import from two places": (
        taken(sidecar="a", column="b"),
        "returns.mine.imported: give either sidecar or column",
    ),
    "import of a collected dataset": (
        {"advantages.mine": {"imported": {"column": "good"}, "datasets": ["rollouts"]}},
        "advantages.mine.datasets: 'rollouts' is collected here, so there is nothing to import; remove it",
    ),
    "import of an own file": (
        taken(sidecar="fail40"),
        "returns.mine.imported.sidecar: returns_fail40.parquet of 'given' is written by this experiment; give the tag here another name",
    ),
    "import over its source": (
        taken(sidecar="mine"),
        "returns.mine.imported.sidecar: returns_mine.parquet of 'given' is written by this experiment",
    ),
    "import for an unknown dataset": (
        taken("gvien", sidecar="theirs"),
        "returns.mine.datasets: 'gvien' is not an entry of datasets; did you mean 'given'?",
    ),
    "returns that are not imported everywhere": (
        taken(sidecar="theirs") | {"critics.value.returns_tag": "mine"},
        "critics.value.returns_tag: 'mine' is not imported for 'demonstrations'; add it to returns.mine.datasets",
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


@pytest.mark.parametrize("case", BAD)
def test_a_broken_reference_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    changes, message = BAD[case]
    with pytest.raises(UserError) as caught:
        check_references(load_experiment(changed(changes)))
    text = str(caught.value)
    assert text.startswith("config: ")
    assert "\n" not in text
    assert message in text


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


def test_what_another_tool_made_is_not_replaced(tmp_path: Path) -> None:
    """A file of ours may be made again, and one that no reader could use is no loss."""
    path = tmp_path / "meta/returns_fail300.parquet"
    path.parent.mkdir()
    datasets = {"given": {"path": str(tmp_path), "type": "rollout"}}
    experiment = load_experiment({"experiment": "x", "datasets": datasets, "returns": {"fail300": {"failure_reward": -300}}})
    table = pa.table({"return": [0.0]})
    pq.write_table(table, path)
    with pytest.raises(UserError, match=r"returns\.fail300: .*returns_fail300\.parquet is there, was not made here and would be replaced"):
        check_references(experiment)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: b"{}"}), path)
    check_references(experiment)
    path.write_bytes(b"")
    check_references(experiment)


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


def test_a_progress_critic_may_be_merged_from_members_that_are_there(tmp_path: Path) -> None:
    for name in ("a", "b:2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    members = [f"{tmp_path}/a", f"{tmp_path}/a:1", f"{tmp_path}/b:2:0"]
    experiment = load_experiment(changed({f"{STEAM}.members": members}))
    check_references(experiment)
    for stated, wrong in (
        ({"k": 99}, "k is 99"),
        ({"architecture": {"num_bins": 4}}, "num_bins is 4"),
        ({"length_scale": {}}, "enabled is True"),
    ):
        (tmp_path / "a/config.json").write_text(json.dumps(stated))
        with pytest.raises(UserError, match=f"members: {tmp_path}/a: .*{wrong}, the experiment says .*; write it as it is there"):
            check_references(experiment)
    assert [member_source(member) for member in members] == [(tmp_path / "a", None), (tmp_path / "a", 1), (tmp_path / "b:2", 0)]


def test_a_dataset_is_judged_by_the_critics_of_both_methods() -> None:
    other = {"path": "data/other", "type": "rollout"}
    loaded = load_experiment(changed({"datasets.other": other, f"{SCORES}.datasets": ["rollouts", "other"]}))
    assert value_datasets(loaded, "value") == ["demonstrations", "rollouts", "heldout"]
    assert value_datasets(loaded, "progress") == ["demonstrations", "heldout", "rollouts", "other"]
    assert cached_cameras(loaded, "other", 64) == [CAMERA]


CRITIC, POLICY = "critics.value.model", "policies.start.model"
SIGLIP = {"vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 16}}
GEMMA3 = {"num_hidden_layers": 18, "num_key_value_heads": 1, "head_dim": 256}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder that passes for any of the weights."""
    (tmp_path / "tokenizer").mkdir()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer/tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(json.dumps(SIGLIP | GEMMA3))
    return tmp_path


@pytest.mark.parametrize(
    "key",
    [
        f"{STEAM}.model.siglip_path",
        f"{CRITIC}.siglip_path",
        f"{CRITIC}.gemma3_path",
        f"{CRITIC}.tokenizer_path",
        f"{POLICY}.pretrained_path",
        f"{POLICY}.tokenizer_path",
    ],
)
def test_weights_that_are_there_pass(weights: Path, key: str) -> None:
    check_references(load_experiment(changed({key: str(weights)})))


@pytest.mark.parametrize(
    ("key", "file", "message"),
    [
        (f"{CRITIC}.siglip_path", "config.json", "has no config.json; copy the whole folder"),
        (f"{CRITIC}.siglip_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "config.json", "has no config.json; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{CRITIC}.gemma3_path", "tokenizer.json", "has no tokenizer.json; give tokenizer_path"),
        (f"{CRITIC}.tokenizer_path", "tokenizer.json", "has no tokenizer.json; copy the whole folder"),
        (f"{POLICY}.pretrained_path", "model.safetensors", "has no model.safetensors; copy the whole folder"),
        (f"{POLICY}.pretrained_path", "tokenizer/tokenizer.json", "has no tokenizer/tokenizer.json; give tokenizer_path"),
        (f"{POLICY}.tokenizer_path", "tokenizer.json", "has no tokenizer.json; copy the whole folder"),
    ],
)
def test_an_incomplete_folder_of_weights_is_one_line(weights: Path, key: str, file: str, message: str) -> None:
    (weights / file).unlink()
    with pytest.raises(UserError) as caught:
        check_references(load_experiment(changed({key: str(weights)})))
    assert str(caught.value) == f"config: {key}: {weights} {message}"


@pytest.mark.parametrize(
    ("changes", "found", "message"),
    [
        ({"siglip_path": "weights"}, {"patch_size": 14}, f"{CRITIC}.image_size: 64 is not a multiple of the vision tower's patch size 14"),
        (
            {"siglip_path": "weights"},
            {"image_size": 224},
            f"{CRITIC}.image_size: 64, but the vision tower was made for 224; set it to that",
        ),
        (
            {"gemma3_path": "weights", "critic_expert_variant": "gemma_50m"},
            {"num_hidden_layers": 12},
            f"{CRITIC}.critic_expert_variant: gemma_50m reads 18 text layers, gemma3 has 12; choose a shallower expert",
        ),
    ],
)
def test_sizes_are_read_from_the_folder_of_weights(weights: Path, changes: dict[str, str], found: dict[str, int], message: str) -> None:
    (weights / "config.json").write_text(json.dumps(found))
    sizes = {f"{CRITIC}.{key}": str(weights) if value == "weights" else value for key, value in changes.items()}
    with pytest.raises(UserError, match=re.escape(message)):
        check_references(load_experiment(changed(sizes)))


def test_a_vision_tower_may_be_made_for_a_size_that_is_no_multiple_of_its_patches(weights: Path) -> None:
    """As so400m-patch14-384 is."""
    (weights / "config.json").write_text(json.dumps({"image_size": 384, "patch_size": 14}))
    check_references(load_experiment(changed({f"{STEAM}.model.siglip_path": str(weights), f"{STEAM}.model.image_size": 384})))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a model's configuration; copy the folder of critics.value.model.siglip_path again"),
        ("[]", "not a model's configuration; copy the folder"),
        ('{"vision_config": null}', "not a model's configuration; copy the folder"),
        ('{"hidden_size": "32"}', "hidden_size is '32', not a size; copy the folder again"),
    ],
)
def test_a_damaged_configuration_of_weights_is_one_line(weights: Path, content: str, message: str) -> None:
    (weights / "config.json").write_text(content)
    with pytest.raises(UserError, match=f"config.json: {message}"):
        check_references(load_experiment(changed({f"{CRITIC}.siglip_path": str(weights)})))


def test_every_part_of_sharded_weights_is_there(weights: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    (weights / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(UserError, match=r"has no model-00002-of-00002.safetensors; copy the whole folder"):
        check_references(load_experiment(changed({f"{CRITIC}.siglip_path": str(weights)})))
