"""The rerun contract: for every key of the experiment file, exactly which jobs of a finished demo a change makes stale."""

from pathlib import Path
from typing import Any

import pytest

from recap_steam.accelerators import ACCELERATORS
from recap_steam.schema import with_defaults
from tests.schema_keys import Key, all_keys
from tests.workflow.tree import DEMO, Tree, copy_workflow, demo_with, make_weights

FILLED = with_defaults(DEMO)
ENTRIES = {  # the entry of each section whose keys are changed, ``*`` below
    **{section: next(iter(DEMO[section])) for section in ("environments", "returns", "critics", "advantages", "evaluations")},
    "datasets": "rollouts",
    "policies": "recap",
}
STEAM_ENTRIES = {"critics": "progress", "advantages": "steam_q30"}  # those of the other method, ``+`` below
CRITIC_TAG, LABELS_TAG, EVALUATION_TAG = (DEMO[section][ENTRIES[section]] for section in ("critics", "advantages", "evaluations"))
PROGRESS_TAG, SCORE_LABELS_TAG = (DEMO[section][STEAM_ENTRIES[section]] for section in STEAM_ENTRIES)
OTHER_ENVIRONMENT = DEMO["environments"][ENTRIES["environments"]] | {"action_repeat": 99}

# Jobs that go stale together: the first stage that reads the key and everything below it. Policies `recap`, `recap_shuffled` and
# `all_positive` have labels by values, `steam` and `steam_shuffled` labels by scores.
NOTHING: dict[str, int] = {}
REPORT = {"draw_rule_graph": 1, "build_report": 1}
EVALUATION = {"evaluate_policy": 7} | REPORT
FILTERED = {"train_policy": 1, "evaluate_policy": 1} | REPORT
RECAP = {"train_policy": 1, "evaluate_policy": 1} | REPORT
SHOWN = {"plot_diagnostics": 4} | REPORT
LABELS = {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2, "train_policy": 3, "evaluate_policy": 3} | REPORT
CRITIC = {"train_critic": 1, "compute_values": 3} | LABELS
RETURNS = {"compute_returns": 3} | CRITIC
SCORE_LABELS = {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2, "train_policy": 2, "evaluate_policy": 2} | REPORT
ENSEMBLE = {"merge_ensemble": 1, "compute_scores": 3} | SCORE_LABELS
MEMBERS = {"train_member": 3} | ENSEMBLE
ALL_LABELS = {"compute_threshold": 2, "compute_advantages": 4, "plot_diagnostics": 4}
LEARNERS = {"train_policy": 6, "evaluate_policy": 6} | REPORT  # all policies that see rollouts
ROLLOUTS = {
    "index_dataset": 1,
    "cache_frames": 1,
    "compute_returns": 1,
    "train_critic": 1,
    "compute_values": 3,
    "train_member": 3,
    "merge_ensemble": 1,
    "compute_scores": 3,
    "compute_norm_stats": 6,
    **ALL_LABELS,
    **LEARNERS,
}
START = ROLLOUTS | {
    "collect_dataset": 2,
    "index_dataset": 2,
    "cache_frames": 2,
    "compute_returns": 2,
    "train_policy": 7,
    "evaluate_policy": 7,
}
EVERYTHING = START | {"collect_dataset": 3, "index_dataset": 3, "cache_frames": 3, "compute_returns": 3, "compute_norm_stats": 7}


def keys(prefix: str, names: str) -> list[str]:
    return [prefix + name for name in names.split()]


OPTIM_KEYS = """lr value_lr adam_beta1 adam_beta2 adam_eps weight_decay clip_grad lr_scheduler lr_warmup_steps min_lr nonfinite_patience"""
TRAINING_KEYS = """balance_dataset_weights max_steps global_batch_size eval_interval do_augment seed eval.max_samples"""
TOWER_KEYS = [
    *keys("", "siglip_path gemma3_path tokenizer_path freeze_vision_encoder max_token_len"),
    *keys("siglip_config.", "hidden_size intermediate_size num_hidden_layers num_attention_heads patch_size"),
    *keys("gemma3_config.", "hidden_size intermediate_size num_hidden_layers num_attention_heads"),
    *keys("gemma3_config.", "num_key_value_heads head_dim vocab_size"),
]
CRITIC_KEYS = [
    *keys("critics.*.", f"{TRAINING_KEYS} eval.selection_metric normalization normalize_to_minus_one_zero"),
    *keys("critics.*.optim.", OPTIM_KEYS),
    *keys("critics.*.model.", "critic_expert_variant num_bins v_min v_max value_dropout freeze_vlm"),
    *keys("critics.*.model.", " ".join(TOWER_KEYS)),
]
PROGRESS_KEYS = [
    *keys("critics.+.", f"{TRAINING_KEYS} eval.selection_metric k datasets train_on_rollouts only_success"),
    *keys("critics.+.", "min_episode_length length_scale_enabled length_scale_percentile"),
    *keys("critics.+.optim.", OPTIM_KEYS),
    *keys("critics.+.model.", "num_bins fusion_hidden_dim label_smoothing dropout freeze_language_model"),
    *keys("critics.+.model.", " ".join(TOWER_KEYS)),
]
POLICY_KEYS = [
    *keys("policies.*.", f"{TRAINING_KEYS} positive_only_conditional unconditional_prob init_from label_control"),
    *keys("policies.*.optim.", OPTIM_KEYS),
    *keys("policies.*.model.", "pretrained_path tokenizer_path chunk_size n_action_steps num_inference_steps max_token_len"),
    *keys("policies.*.model.", "train_expert_only freeze_vision_encoder"),
    *keys("policies.*.model.small.", "width mlp_dim depth head_dim expert_width expert_mlp_dim"),
    *keys("policies.*.model.small.", "vision_width vision_mlp_dim vision_depth vision_heads patch_size vocab_size"),
]
EXECUTION_KEYS = """micro_batch_size save_interval gradient_checkpointing compile_model devices nodes"""  # how a result is computed
SITE_KEYS = ["accelerator", "accelerator_model", "accelerator_partition", "cpus_per_device", "mem_mb_per_device"]  # where it is computed
COLLECT_KEYS = [
    *keys("datasets.*.collect.", "environment policy cfgrl_guidance_scale num_episodes seed action_noise noise_hold"),
    *keys("datasets.*.collect.", "intervention_probability intervention_after"),
]
ENVIRONMENT_KEYS = keys("environments.*.", "task prompt camera_name image_size action_repeat max_episode_steps")
LIBERO_KEYS = keys("environments./.", "simulator suite task_id prompt cameras.* assets image_size action_repeat max_episode_steps")
LABEL_KEYS = keys("advantages.*.", "datasets advantage_lookahead_step discount_next_value positive_quantile pool intervention_positive")
SCORE_LABEL_KEYS = [
    *keys("advantages.+.", "datasets label_mode positive_threshold rollout_quantile expert_quantile"),
    *keys("advantages.+.", "subtract_baseline baseline_lookahead intervention_positive"),
]

# The contract: {key of the schema: jobs that go stale when it changes}.
STALE: dict[str, dict[str, int]] = {
    "experiment": EVERYTHING | {"collect_dataset": 2},  # not the demonstrations, which need no policy
    "seed": EVERYTHING,
    **dict.fromkeys(ENVIRONMENT_KEYS, EVERYTHING),
    "datasets.*.path": ROLLOUTS | {"collect_dataset": 1},
    "datasets.*.type": ROLLOUTS | {"collect_dataset": 1},
    "datasets.*.weight": CRITIC | MEMBERS | ALL_LABELS | LEARNERS,
    "datasets.*.split": CRITIC | MEMBERS | ALL_LABELS | {"compute_values": 2, "compute_scores": 2, "train_policy": 5, "evaluate_policy": 5},
    "datasets.*.camera_map": CRITIC | MEMBERS | {"cache_frames": 1} | ALL_LABELS | LEARNERS,
    "datasets.*.sidecar_root": CRITIC
    | {"compute_returns": 1, "compute_scores": 1}
    | ALL_LABELS
    | {"train_policy": 5, "evaluate_policy": 5},
    **dict.fromkeys(COLLECT_KEYS, ROLLOUTS | {"collect_dataset": 1}),
    "returns.*.gamma": RETURNS,
    "returns.*.failure_reward": RETURNS,
    "critics.*.returns_tag": RETURNS,
    "critics.*.datasets": CRITIC,
    "critics.*.eval_datasets": CRITIC | {"compute_values": 2},
    "critics.*.cameras": START | {"cache_frames": 3},  # the frame cache of a dataset holds the cameras of all its readers
    "critics.*.model.image_size": CRITIC | {"cache_frames": 3},
    **dict.fromkeys(CRITIC_KEYS, CRITIC),
    **dict.fromkeys(keys("critics.*.", EXECUTION_KEYS), NOTHING),
    **dict.fromkeys(PROGRESS_KEYS, MEMBERS),
    "critics.+.eval_datasets": MEMBERS | {"compute_scores": 2},
    "critics.+.cameras": START | {"cache_frames": 3},
    "critics.+.model.image_size": MEMBERS | {"cache_frames": 3},
    "critics.+.ensemble_size": ENSEMBLE | {"train_member": 1},
    "critics.+.members": ENSEMBLE,
    **dict.fromkeys(keys("critics.+.", EXECUTION_KEYS), NOTHING),
    "advantages.*.critic": CRITIC,
    **dict.fromkeys(LABEL_KEYS, LABELS),
    "advantages.+.critic": MEMBERS,
    **dict.fromkeys(SCORE_LABEL_KEYS, SCORE_LABELS),
    "policies.*.advantage_tag": RECAP | {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2},
    "policies.*.datasets": RECAP | {"compute_norm_stats": 1},
    "policies.*.frame_filter": RECAP | {"compute_norm_stats": 1},
    "policies.*.model.image_size": RECAP | {"cache_frames": 2},
    "policies.*.eval_datasets": RECAP,
    **dict.fromkeys(POLICY_KEYS, RECAP),
    **dict.fromkeys(keys("policies.*.", EXECUTION_KEYS), NOTHING),
    "evaluations.*.environment": EVALUATION,
    "evaluations.*.policies": REPORT,
    "evaluations.*.cfgrl_guidance_scale": {"evaluate_policy": 5} | REPORT,
    "evaluations.*.num_episodes": EVALUATION,
    "evaluations.*.seed": EVALUATION,
    "evaluations.*.through_server": EVALUATION,
    "evaluations.*.stop_below": {"evaluate_policy": 6} | REPORT,  # the first arm never stops
    "evaluations.*.devices": NOTHING,
    "evaluations.*.video_critic": NOTHING,  # the videos are a target of their own
    **dict.fromkeys(keys("diagnostics.", "num_episodes seed"), SHOWN),
    **dict.fromkeys(SITE_KEYS, NOTHING),
}
NO_CASE = {
    **dict.fromkeys(keys("returns.-.", "imported.sidecar imported.column datasets gamma"), "the demo has none: see test_imports.py"),
    **dict.fromkeys(keys("advantages.-.", "imported.sidecar imported.column datasets"), "the demo has none: see test_imports.py"),
    "camera_maps.*.*": "the demo has none: see the cases of MAPS",
    **dict.fromkeys(["environments.*.simulator", *LIBERO_KEYS], "the demo has none: an entry of the other simulator has other keys"),
    **dict.fromkeys(keys("datasets.*.download.", "repo_id revision folder num_episodes num_successes"), "no job of the demo reads them"),
    **dict.fromkeys(keys("rounds.*.", "count dataset controls cfgrl_guidance_scale seed"), "the demo has none: see test_rounds.py"),
    "critics.*.method": "an entry of the other method has other keys",
    "critics.+.method": "an entry of the other method has other keys",
    "policies.*.cameras": "must be the environment's camera: changed with environments.*.camera_name",
}

# How to change keys for which another value of the same kind is not enough: values by key, several where they must change together.
CAMERA = "observation.images.corner2"
CORNER3 = ["observation.images.corner3"]
DEMONSTRATIONS_ALONE = {"critics.+.datasets": ["demonstrations"], "critics.+.train_on_rollouts": False}
THRESHOLD_MODE = {"advantages.+.label_mode": "threshold", "advantages.+.positive_threshold": 0.2, "advantages.+.rollout_quantile": None}
CHANGES: dict[str, dict[str, Any]] = {
    "accelerator": {"accelerator": next(iter(ACCELERATORS))},
    "environments.*.camera_name": {
        "environments.*.camera_name": "corner3",
        **{f"{user}.cameras": CORNER3 for user in ("critics.*", "critics.+", *(f"policies.{tag}" for tag in DEMO["policies"]))},
    },
    "datasets.*.type": {
        "datasets.*.type": "sft",
        "advantages.*.pool": "all",
        "advantages.+.rollout_quantile": None,
        "advantages.+.expert_quantile": 0.3,
    },
    "datasets.*.split": {"datasets.heldout.split": "train", "critics.*.eval_datasets": [], "critics.+.eval_datasets": []},
    "datasets.*.camera_map": {"datasets.*.camera_map": "arm", "camera_maps.arm": {CAMERA: "observation.images.top"}},
    "datasets.*.collect.environment": {"datasets.*.collect.environment": "other", "environments.other": OTHER_ENVIRONMENT},
    "datasets.*.collect.policy": {"datasets.*.collect.policy": "expert"},
    "critics.*.returns_tag": {"critics.*.returns_tag": "other", "returns.other": {"failure_reward": -7}},
    "critics.*.datasets": {"critics.*.datasets": ["rollouts"]},
    "seed": {  # with folders that follow from the name, as they are those of the demo
        "seed": 1,
        "datasets": {name: {key: item for key, item in entry.items() if key != "path"} for name, entry in DEMO["datasets"].items()},
    },
    "critics.*.eval_datasets": {"critics.*.eval_datasets": []},
    "critics.*.cameras": {"critics.*.cameras": CORNER3},
    "critics.*.normalize_to_minus_one_zero": {
        "critics.*.normalize_to_minus_one_zero": False,
        "critics.*.model.v_min": 0.0,
        "critics.*.model.v_max": 1.0,
    },
    "critics.*.model.image_size": {"critics.*.model.image_size": 32},
    "critics.*.model.v_min": {"critics.*.model.v_min": -2.0},
    **dict.fromkeys(keys("critics.+.", "datasets train_on_rollouts"), DEMONSTRATIONS_ALONE),
    "critics.+.eval_datasets": {"critics.+.eval_datasets": []},
    "critics.+.cameras": {"critics.+.cameras": CORNER3},
    "critics.+.model.image_size": {"critics.+.model.image_size": 32},
    "critics.+.model.num_bins": {"critics.+.model.num_bins": 2},
    "critics.+.ensemble_size": {"critics.+.ensemble_size": 4},
    "critics.+.members": {"critics.+.members": ["another", "another:0", "another:1"]},
    "advantages.+.critic": {"advantages.+.critic": "other", "critics.other": PROGRESS_TAG | {"seed": 99}},
    "advantages.+.datasets": {"advantages.+.datasets": SCORE_LABELS_TAG["datasets"][::-1]},
    **dict.fromkeys(keys("advantages.+.", "label_mode positive_threshold"), THRESHOLD_MODE),
    "advantages.+.expert_quantile": {"advantages.+.expert_quantile": 0.8},
    "advantages.+.baseline_lookahead": {"advantages.+.subtract_baseline": True, "advantages.+.baseline_lookahead": 2},
    "advantages.*.critic": {"advantages.*.critic": "other", "critics.other": CRITIC_TAG | {"seed": 99}},
    "advantages.*.datasets": {"advantages.*.datasets": LABELS_TAG["datasets"][::-1]},
    "policies.*.advantage_tag": {"policies.*.advantage_tag": "other", "advantages.other": LABELS_TAG | {"positive_quantile": 0.99}},
    "policies.*.datasets": {"policies.*.datasets": ["rollouts"]},
    "policies.*.eval_datasets": {"policies.*.eval_datasets": ["heldout"]},
    "policies.*.init_from": {"policies.*.init_from": "start"},
    "policies.*.model.image_size": {"policies.*.model.image_size": 32},
    "policies.*.model.n_action_steps": {
        "policies.*.model.n_action_steps": 1 if FILLED["policies"]["recap"]["model"]["n_action_steps"] > 1 else 2
    },
    "evaluations.*.environment": {"evaluations.*.environment": "other", "environments.other": OTHER_ENVIRONMENT},
    "evaluations.*.video_critic": {"evaluations.*.video_critic": "value"},
    "evaluations.*.stop_below": {"evaluations.*.stop_below": 0.005},
    "evaluations.*.policies": {"evaluations.*.policies": EVALUATION_TAG["policies"][::2]},
    "evaluations.*.cfgrl_guidance_scale": {
        "evaluations.*.cfgrl_guidance_scale": [*FILLED["evaluations"][ENTRIES["evaluations"]]["cfgrl_guidance_scale"], 7.5]
    },
}

MORE = {
    "a key of the start policy recollects what it collected": ({"policies.start.optim.lr": 1.0e-9}, START),
    "a collected training set": ({"datasets.demonstrations.collect.num_episodes": 99}, EVERYTHING),
    "a key of the filtered policy leaves the others alone": ({"policies.filtered.seed": 99}, FILTERED),
    "a new policy": ({"policies.new": DEMO["policies"]["filtered"]}, {"compute_norm_stats": 1, "train_policy": 1} | REPORT),
    "a new label tag": (
        {"advantages.new": LABELS_TAG | {"positive_quantile": 0.99}},
        {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2} | REPORT,
    ),
    "another share of scores looks at no frame again": (
        {"advantages.new": SCORE_LABELS_TAG | {"rollout_quantile": 0.5}},
        {"compute_threshold": 1, "compute_advantages": 2, "plot_diagnostics": 2} | REPORT,
    ),
    "a new ensemble": (
        {"critics.new": PROGRESS_TAG | {"ensemble_size": 2}},
        {"train_member": 2, "merge_ensemble": 1, "compute_scores": 3} | REPORT,
    ),
    "a smaller ensemble is merged from the members that are there": ({"critics.+.ensemble_size": 2}, ENSEMBLE),
    "a control leaves the others alone": ({"policies.recap_shuffled.seed": 99}, RECAP),
    "a new returns tag": ({"returns.new": {"failure_reward": -7}}, {"compute_returns": 3} | REPORT),
    "the scripted expert as an arm": (
        {"evaluations.*.policies": [*EVALUATION_TAG["policies"], "expert"]},
        {"evaluate_policy": 1} | REPORT,
    ),
    "the weight of a held-out dataset, which has no meaning": ({"datasets.heldout.weight": 99.0}, REPORT),
    "demonstrations that are not labelled, and so need no labels": (
        {"advantages.*.datasets": ["rollouts"]},
        LABELS | {"compute_advantages": 1, "plot_diagnostics": 1},
    ),
    "a camera map that no dataset uses": ({"camera_maps.arm": {CAMERA: None}}, REPORT),
    "a default written out": ({"policies.recap.optim.adam_eps": FILLED["policies"]["recap"]["optim"]["adam_eps"]}, {}),
}


@pytest.mark.parametrize("key", STALE)
def test_a_changed_key_reruns_exactly_the_jobs_that_read_it(finished: Tree, key: str) -> None:
    experiment = changed(CHANGES.get(key) or {key: another_value(key)})
    assert with_defaults(experiment) != FILLED
    assert finished.plan("--configfile", finished.experiment("changed", experiment)) == STALE[key]


@pytest.mark.parametrize("change", MORE)
def test_a_change_reruns_exactly_the_jobs_below_it(finished: Tree, change: str) -> None:
    changes, stale = MORE[change]
    assert finished.plan("--configfile", finished.experiment("changed", changed(changes))) == stale


MAPPED = {  # the held-out dataset names its camera as the simulator does, by way of a map
    "camera_maps.arm": {CAMERA: CAMERA},
    "datasets.heldout.camera_map": "arm",
    "policies.filtered.eval_datasets": ["heldout"],
}
READERS = CRITIC | MEMBERS | ALL_LABELS | LEARNERS  # both critics and the filtered policy, and what follows from them
MAPS = {
    "another image for a camera": ({"camera_maps.arm": {CAMERA: "observation.images.top"}}, {"cache_frames": 1} | READERS),
    "a camera that no model has": ({"camera_maps.arm": {CAMERA: CAMERA, "observation.images.top": None}}, REPORT),
    "another map that no dataset uses": ({"camera_maps.leg": {CAMERA: None}}, REPORT),
}


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A finished experiment with a camera map."""
    tree = copy_workflow(tmp_path_factory.mktemp("mapped"))
    tree.finish("--configfile", tree.experiment("mapped", demo_with(MAPPED)))
    return tree


@pytest.mark.parametrize("change", MAPS)
def test_a_camera_map_reruns_what_reads_it(mapped: Tree, change: str) -> None:
    changes, stale = MAPS[change]
    assert mapped.plan("--configfile", mapped.experiment("changed", demo_with(MAPPED | changes))) == stale


def test_new_weights_train_anew(tmp_path: Path) -> None:
    tree = copy_workflow(tmp_path)
    make_weights(tmp_path / "siglip")
    make_weights(tmp_path / "pi05")
    changes = {
        "critics.*.model.siglip_path": "siglip",
        "critics.+.model.siglip_path": "siglip",
        "policies.filtered.model.pretrained_path": "pi05",
    }
    file = tree.experiment("weights", changed(changes))
    tree.finish("--configfile", file)
    (tmp_path / "siglip/README.md").write_text("what the weights are")
    assert tree.plan("--configfile", file) == {}
    (tmp_path / "pi05/model.safetensors").write_bytes(b"better")
    assert tree.plan("--configfile", file) == same_experiment(FILTERED)
    (tmp_path / "siglip/model.safetensors").write_bytes(b"better")
    assert tree.plan("--configfile", file) == same_experiment(READERS)


def same_experiment(jobs: dict[str, int]) -> dict[str, int]:
    """Without the rule graph, which follows from the experiment file alone."""
    return {job: count for job, count in jobs.items() if job != "draw_rule_graph"}


@pytest.mark.parametrize(("edit", "stale"), [("", {}), ("# edited\n", same_experiment(RETURNS))], ids=["touched", "edited"])
def test_a_script_counts_by_its_content(finished: Tree, edit: str, stale: dict[str, int]) -> None:
    script = finished.path / "workflow/scripts/compute_returns.py"
    text = script.read_text()
    script.write_text(text + edit)
    try:
        assert finished.plan() == stale
    finally:
        script.write_text(text)


def test_every_key_of_the_schema_has_a_case() -> None:
    assert set(STALE) | set(NO_CASE) == set(SCHEMAS)


def name(key: Key) -> str:
    """``critics.*.k`` of STEAM -> ``critics.+.k``; of what is imported ``returns.-.gamma``, of LIBERO ``environments./.suite``."""
    return key.path.replace("*", {"steam": "+", "imported": "-", "libero": "/"}.get(key.method, "*"), 1)


SCHEMAS = {name(key): key.schema for key in all_keys()}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The demo with changes by dotted key, ``*`` and ``+`` for the entries that are changed."""
    return demo_with({concrete(key): value for key, value in changes.items()})


def concrete(key: str) -> str:
    """``datasets.*.weight`` -> ``datasets.rollouts.weight``."""
    section, *rest = key.split(".")
    entry = {"*": ENTRIES.get(section), "+": STEAM_ENTRIES.get(section)}
    return ".".join([section, *(entry.get(part, part) for part in rest)])


def another_value(key: str) -> Any:
    """A legal value of the key that the demo does not have."""
    value, schema = FILLED, SCHEMAS[key]
    for part in concrete(key).split("."):
        value = (value or {}).get(part)
    if "enum" in schema:
        return next(choice for choice in schema["enum"] if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) or (value is None and "string" in schema["type"]):
        return "another"
    if isinstance(value, float):
        return value / 2 or 0.25
    return value * 2 or 1 if value else 1
