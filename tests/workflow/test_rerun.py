"""The rerun contract: for every key of the experiment file, exactly which jobs of a finished demo a change makes stale."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from recap_steam.schema import SCHEMA_PATH
from tests.workflow.tree import DEMO, Tree, demo_with

# Jobs that go stale together: the first stage that reads the key and everything below it.
REPORT = {"build_report": 1}
EVALUATION = {"evaluate_policy": 4} | REPORT
FILTERED = {"train_policy": 1, "evaluate_policy": 1} | REPORT
RECAP = {"train_policy": 1, "evaluate_policy": 2} | REPORT
LABELS = {"compute_threshold": 1, "compute_advantages": 2} | RECAP
CRITIC = {"train_critic": 1, "compute_values": 3} | LABELS
RETURNS = {"compute_returns": 3} | CRITIC
ROLLOUTS = {
    "index_dataset": 1,
    "cache_frames": 1,
    "compute_returns": 1,
    "train_critic": 1,
    "compute_values": 3,
    "compute_threshold": 1,
    "compute_advantages": 2,
    "compute_norm_stats": 2,
    "train_policy": 2,
    "evaluate_policy": 3,
    "build_report": 1,
}
START = ROLLOUTS | {
    "collect_dataset": 2,
    "index_dataset": 2,
    "cache_frames": 2,
    "compute_returns": 2,
    "train_policy": 3,
    "evaluate_policy": 4,
}
EVERYTHING = START | {"collect_dataset": 3, "index_dataset": 3, "cache_frames": 3, "compute_returns": 3, "compute_norm_stats": 3}

OPTIM = {
    "lr": 5.0e-4,
    "value_lr": 1.0e-4,
    "adam_beta1": 0.8,
    "adam_beta2": 0.9,
    "adam_eps": 1.0e-7,
    "weight_decay": 0.01,
    "clip_grad": 2.0,
    "lr_scheduler": "constant",
    "lr_warmup_steps": 7,
    "min_lr": 1.0e-6,
    "nonfinite_patience": 9,
}
CRITIC_KEYS = {
    "normalization": "per_task",
    "balance_dataset_weights": False,
    "max_steps": 601,
    "global_batch_size": 32,
    "micro_batch_size": 16,
    "eval_interval": 99,
    "save_interval": 99,
    "do_augment": False,
    "seed": 1,
    "model.siglip_path": "models/siglip",
    "model.gemma3_path": "models/gemma3",
    "model.tokenizer_path": "models/tokenizer",
    "model.critic_expert_variant": "gemma_1m",
    "model.num_bins": 101,
    "model.v_min": -2.0,
    "model.v_max": 0.5,
    "model.value_dropout": 0.1,
    "model.freeze_vlm": True,
    "model.freeze_vision_encoder": True,
    "model.max_token_len": 49,
    "model.siglip_config.hidden_size": 128,
    "model.siglip_config.intermediate_size": 64,
    "model.siglip_config.num_hidden_layers": 1,
    "model.siglip_config.num_attention_heads": 2,
    "model.siglip_config.num_key_value_heads": 2,
    "model.siglip_config.head_dim": 8,
    "model.siglip_config.patch_size": 8,
    "model.siglip_config.vocab_size": 99,
    "model.gemma3_config.hidden_size": 128,
    "model.gemma3_config.intermediate_size": 64,
    "model.gemma3_config.num_hidden_layers": 1,
    "model.gemma3_config.num_attention_heads": 2,
    "model.gemma3_config.num_key_value_heads": 2,
    "model.gemma3_config.head_dim": 8,
    "model.gemma3_config.patch_size": 8,
    "model.gemma3_config.vocab_size": 99,
    **{f"optim.{key}": value for key, value in OPTIM.items()},
}
POLICY_KEYS = {
    "positive_only_conditional": False,
    "unconditional_prob": 0.1,
    "balance_dataset_weights": False,
    "max_steps": 1501,
    "global_batch_size": 64,
    "micro_batch_size": 16,
    "eval_interval": 99,
    "save_interval": 99,
    "do_augment": False,
    "seed": 1,
    "init_from": "start",
    "model.pretrained_path": "models/pi05",
    "model.tokenizer_path": "models/tokenizer",
    "model.chunk_size": 8,
    "model.n_action_steps": 2,
    "model.num_inference_steps": 6,
    "model.max_token_len": 49,
    "model.train_expert_only": True,
    "model.freeze_vision_encoder": True,
    **{f"model.small.{key}": 32 for key in ("width", "mlp_dim", "head_dim", "expert_mlp_dim", "vision_mlp_dim")},
    "model.small.expert_width": 64,
    "model.small.vision_width": 64,
    "model.small.patch_size": 8,
    "model.small.vocab_size": 99,
    **{f"model.small.{key}": 1 for key in ("depth", "vision_depth", "vision_heads")},
    **{f"optim.{key}": value for key, value in OPTIM.items()},
}

# {key: (new value, jobs that go stale)}. Where one change needs others to stay valid, the value is a mapping of all of them.
CORNER3 = ["observation.images.corner3"]
ALL_CAMERAS = {f"{user}.cameras": CORNER3 for user in ("critics.value", "policies.start", "policies.filtered", "policies.recap")}
CASES: dict[str, tuple[Any, dict[str, int]]] = {
    "experiment": ("renamed", EVERYTHING | {"collect_dataset": 2}),  # not the demonstrations, which need no policy
    "environments.drawer.task": ("drawer-close-v3", EVERYTHING),
    "environments.drawer.prompt": ("pull the drawer", EVERYTHING),
    "environments.drawer.camera_name": ({"environments.drawer.camera_name": "corner3", **ALL_CAMERAS}, EVERYTHING),
    "environments.drawer.image_size": (96, EVERYTHING),
    "environments.drawer.action_repeat": (4, EVERYTHING),
    "environments.drawer.max_episode_steps": (41, EVERYTHING),
    "datasets.rollouts.path": ("data/demo/moved", ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.type": ({"datasets.rollouts.type": "sft", "advantages.n5_q30.pool": "all"}, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.weight": (2.0, CRITIC | {"train_policy": 2, "evaluate_policy": 3}),
    "datasets.heldout.weight": (2.0, REPORT),  # of no meaning for a held-out dataset
    "datasets.heldout.split": ({"datasets.heldout.split": "train", "critics.value.eval_datasets": []}, CRITIC | {"compute_values": 2}),
    "datasets.rollouts.sidecar_root": ("sidecars", CRITIC | {"compute_returns": 1, "train_policy": 2, "evaluate_policy": 3}),
    "datasets.rollouts.collect.environment": (
        {"datasets.rollouts.collect.environment": "other", "environments.other": DEMO["environments"]["drawer"] | {"action_repeat": 4}},
        ROLLOUTS | {"collect_dataset": 1},
    ),
    "datasets.rollouts.collect.policy": ("expert", ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.cfgrl_guidance_scale": (1.5, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.num_episodes": (121, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.seed": (2001, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.action_noise": (0.3, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.noise_hold": (3, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.intervention_probability": (0.4, ROLLOUTS | {"collect_dataset": 1}),
    "datasets.rollouts.collect.intervention_after": (19, ROLLOUTS | {"collect_dataset": 1}),
    "returns.fail40.gamma": (0.99, RETURNS),
    "returns.fail40.failure_reward": (-41, RETURNS),
    "critics.value.returns_tag": ({"critics.value.returns_tag": "other", "returns.other": {"failure_reward": -10}}, RETURNS),
    "critics.value.datasets": (["rollouts"], CRITIC),
    "critics.value.eval_datasets": ([], CRITIC | {"compute_values": 2}),
    "critics.value.cameras": (CORNER3, START | {"cache_frames": 3}),  # one cache for all
    "critics.value.model.image_size": (32, CRITIC | {"cache_frames": 3}),
    **{f"critics.value.{key}": (value, CRITIC) for key, value in CRITIC_KEYS.items()},
    "advantages.n5_q30.critic": (
        {"advantages.n5_q30.critic": "other", "critics.other": DEMO["critics"]["value"] | {"seed": 1}},
        CRITIC | {"compute_values": 3},
    ),
    "advantages.n5_q30.datasets": (["rollouts", "demonstrations"], LABELS),
    "advantages.n5_q30.advantage_lookahead_step": (6, LABELS),
    "advantages.n5_q30.discount_next_value": (False, LABELS),
    "advantages.n5_q30.positive_quantile": (0.4, LABELS),
    "advantages.n5_q30.pool": ("per_task", LABELS),
    "advantages.n5_q30.intervention_positive": (False, LABELS),
    "policies.recap.advantage_tag": (
        {"policies.recap.advantage_tag": "other", "advantages.other": DEMO["advantages"]["n5_q30"] | {"positive_quantile": 0.5}},
        LABELS | RECAP,
    ),
    "policies.recap.datasets": (["rollouts"], {"compute_norm_stats": 1} | RECAP),
    "policies.recap.frame_filter": ("successes_and_interventions", {"compute_norm_stats": 1} | RECAP),
    "policies.recap.model.image_size": (32, RECAP | {"cache_frames": 2}),
    **{f"policies.recap.{key}": (value, RECAP) for key, value in POLICY_KEYS.items()},
    "evaluations.paired.environment": (
        {"evaluations.paired.environment": "other", "environments.other": DEMO["environments"]["drawer"] | {"action_repeat": 4}},
        EVALUATION,
    ),
    "evaluations.paired.policies": (["start", "recap"], REPORT),
    "evaluations.paired.cfgrl_guidance_scale": ([1.0, 2.0, 3.0], {"evaluate_policy": 1} | REPORT),
    "evaluations.paired.num_episodes": (51, EVALUATION),
    "evaluations.paired.seed": (9001, EVALUATION),
}

# Keys with a single legal value today, and keys whose change is covered with another key that must change with them.
NOT_CASES = {
    "environments.*.simulator": "one simulator",
    "critics.*.method": "one method",
    "policies.*.cameras": "must be the environment's camera: changed with environments.*.camera_name",
}

MORE_CASES = {
    "a start policy's key recollects what it collected": ({"policies.start.optim.lr": 1.0e-4}, START),
    "a collected training set": ({"datasets.demonstrations.collect.num_episodes": 16}, EVERYTHING),
    "a filtered policy's key leaves the others alone": ({"policies.filtered.seed": 3}, FILTERED),
    "a new policy": (
        {"policies.new": DEMO["policies"]["filtered"]},
        {"compute_norm_stats": 1, "train_policy": 1} | REPORT,
    ),
    "a new label tag": (
        {"advantages.new": DEMO["advantages"]["n5_q30"] | {"positive_quantile": 0.1}},
        {"compute_threshold": 1, "compute_advantages": 2} | REPORT,
    ),
    "a new returns tag": ({"returns.new": {"failure_reward": -7}}, {"compute_returns": 3} | REPORT),
    "the scripted expert as an arm": (
        {"evaluations.paired.policies": ["start", "filtered", "recap", "expert"]},
        {"evaluate_policy": 1} | REPORT,
    ),
    "a default written out": ({"advantages.n5_q30.discount_next_value": True, "policies.recap.seed": 0}, {}),
}


@pytest.mark.parametrize("key", CASES)
def test_a_changed_key_reruns_exactly_the_jobs_that_read_it(finished: Tree, key: str) -> None:
    value, stale = CASES[key]
    changes = value if isinstance(value, dict) else {key: value}
    assert finished.plan("--configfile", finished.experiment("changed", demo_with(changes))) == stale


@pytest.mark.parametrize("change", MORE_CASES)
def test_a_change_reruns_exactly_the_jobs_below_it(finished: Tree, change: str) -> None:
    changes, stale = MORE_CASES[change]
    assert finished.plan("--configfile", finished.experiment("changed", demo_with(changes))) == stale


def test_every_key_of_the_schema_has_a_case() -> None:
    schema = yaml.safe_load(SCHEMA_PATH.read_text())
    covered = {generic(key) for key in CASES}
    assert set(leaves(schema, schema)) - covered - set(NOT_CASES) == set()
    assert covered - set(leaves(schema, schema)) == set()


def generic(key: str) -> str:
    """``datasets.rollouts.weight`` -> ``datasets.*.weight``."""
    section, _, rest = key.partition(".")
    return f"{section}.*.{rest.partition('.')[2]}" if rest else section


def leaves(schema: dict, node: dict, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a schema; names that users choose as ``*``."""
    node = schema["$defs"][node["$ref"].removeprefix("#/$defs/")] if "$ref" in node else node
    if isinstance(node.get("additionalProperties"), dict):
        yield from leaves(schema, node["additionalProperties"], f"{prefix}.*")
    elif "properties" in node:
        for key, child in node["properties"].items():
            yield from leaves(schema, child, f"{prefix}.{key}".removeprefix("."))
    else:
        yield prefix
