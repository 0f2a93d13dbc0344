"""A small finished experiment for tests of both methods: three datasets, two critics, three label tags, five policies, eight arms.

Data, returns and labels come from the real stages; what takes training or a simulator is drawn and written by the real writers.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recap_steam.config import Experiment, load_experiment
from recap_steam.critics.member_scores import ensemble_columns
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.frames import frames_stage
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.inputs import critic_digest, ensemble_digest
from recap_steam.labels.normalizer import fit_normalizer
from recap_steam.labels.returns import returns_stage
from recap_steam.labels.stages import advantages_stage, threshold_stage
from recap_steam.lineage import METADATA_KEY, Lineage
from recap_steam.report.diagnostics import diagnostics_stage
from recap_steam.sidecar import read_sidecar, sidecar_path, write_sidecar
from tests.datasets import write_v30

CAMERA = "observation.images.front"
LAYERS = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
MODEL = {
    "image_size": 16,
    "siglip_config": {**LAYERS, "num_hidden_layers": 1, "patch_size": 16},
    "gemma3_config": {**LAYERS, "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 512},
}
TRAINING = {"cameras": [CAMERA], "optim": {"lr": 1e-3}, "max_steps": 100, "global_batch_size": 8}
STRENGTHS = {
    **{"start_plain": 0.5, "filtered_plain": 0.56, "recap_w1": 0.62, "recap_w2": 0.8},
    **{"steam_w1": 0.6, "steam_w2": 0.7, "shuffled_w1": 0.52, "shuffled_w2": 0.5},
}
K, NUM_BINS, MEMBERS = 4, 4, 2  # of the progress critics
SHOWN = [("n5_q30", "rollouts"), ("steam_q40", "demonstrations"), ("steam_q40", "rollouts")]  # drawing takes seconds
RESULTS, LOGS = Path("results/small"), Path("logs/small")
RUN_TIMES = ["train_critic/value.tsv", "train_policy/start.tsv", "train_policy/recap.tsv", "train_policy/absent.tsv"]
RULE_GRAPH = """digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
\t0[label = "all", color = "0.02 0.6 0.85", style="rounded"];
\t1[label = "build_report", color = "0.58 0.6 0.85", style="rounded"];
\t2[label = "train_policy", color = "0.33 0.6 0.85", style="rounded"];
\t3[label = "index_dataset", color = "0.33 0.6 0.85", style="rounded"];
\t4[label = "collect_dataset", color = "0.33 0.6 0.85", style="rounded"];
\t1 -> 0
\t2 -> 1
\t3 -> 1
\t3 -> 2
\t4 -> 3
\t2 -> 4
}
"""


def config_of(critic: str) -> dict:
    """``small_config()`` with one method only: that of the critic ``value`` or ``progress``."""
    config = small_config()
    config["critics"] = {critic: config["critics"][critic]}
    config["advantages"] = {tag: labels for tag, labels in config["advantages"].items() if labels["critic"] == critic}
    left = config["advantages"].keys() | {None}
    config["policies"] = {tag: policy for tag, policy in config["policies"].items() if policy.get("advantage_tag") in left}
    config["evaluations"]["paired"]["policies"] = list(config["policies"])
    config["rounds"] = {{"value": "recap", "progress": "steam"}[critic]: config["rounds"]["recap"]}
    if critic == "progress":
        config["returns"] = {}
    return config


def small_config() -> dict:
    datasets = {"demonstrations": "sft", "rollouts": "rollout", "heldout": "rollout"}
    policy = {**TRAINING, "model": {"image_size": 16, "small": {}}}
    labels = {"critic": "value", "datasets": ["demonstrations", "rollouts"], "advantage_lookahead_step": 5}
    collect = {"collect": {"environment": "drawer", "policy": "start", "num_episodes": 30, "seed": 0}}
    return {
        "experiment": "small",
        "diagnostics": {"num_episodes": 1},
        "environments": {"drawer": {"task": "drawer-open-v3", "prompt": "open the drawer"}},
        "datasets": {
            name: {"path": f"data/{name}", "type": kind, "split": "eval" if name == "heldout" else "train"}
            | (collect if name == "rollouts" else {})
            for name, kind in datasets.items()
        },
        "returns": {"fail40": {"failure_reward": -40}},
        "critics": {
            "value": {
                **TRAINING,
                "returns_tag": "fail40",
                "datasets": ["demonstrations", "rollouts"],
                "eval_datasets": ["heldout"],
                "model": MODEL,
            },
            "progress": {
                **TRAINING,
                "method": "steam",
                "k": K,
                "ensemble_size": MEMBERS,
                "datasets": ["demonstrations"],
                "eval_datasets": ["heldout"],
                "model": {**MODEL, "num_bins": NUM_BINS},
            },
        },
        "advantages": {
            "n5_q30": {**labels, "pool": "rollout"},
            "n5_each": {**labels, "pool": "per_dataset", "positive_quantile": 0.4},
            "steam_q40": {
                "critic": "progress",
                "datasets": ["demonstrations", "rollouts"],
                "label_mode": "quantile",
                "rollout_quantile": 0.4,
            },
        },
        "policies": {
            "start": {**policy, "datasets": ["demonstrations"]},
            "filtered": {**policy, "datasets": ["demonstrations", "rollouts"], "frame_filter": "successes_and_interventions"},
            "recap": {**policy, "datasets": ["demonstrations", "rollouts"], "advantage_tag": "n5_q30"},
            "steam": {**policy, "datasets": ["demonstrations", "rollouts"], "advantage_tag": "steam_q40"},
            "shuffled": {**policy, "datasets": ["demonstrations", "rollouts"], "advantage_tag": "n5_q30", "label_control": "shuffled"},
        },
        "evaluations": {
            "paired": {
                "environment": "drawer",
                "policies": ["start", "filtered", "recap", "steam", "shuffled"],
                "cfgrl_guidance_scale": [1.0, 2.0],
                "num_episodes": 50,
                "seed": 9000,
            }
        },
        "rounds": {"recap": {"count": 1, "dataset": "rollouts"}},
    }


def run_small() -> None:
    """Run ``small_config()`` to its end in the working directory."""
    experiment = load_experiment(small_config())
    for number, name in enumerate(experiment.datasets):
        write_dataset(Path("data") / name, np.random.default_rng(number), demonstrations=name == "demonstrations")
        index_stage(experiment, name, RESULTS / f"episodes/{name}.parquet")
        returns_stage(experiment, name, "fail40", RESULTS / f"episodes/{name}.parquet", sidecar(experiment, name, "returns_fail40"))
    frames_stage(experiment, "heldout", RESULTS / "episodes/heldout.parquet", [CAMERA], 16, RESULTS / "frames/heldout_16px.arrow")
    write_critic(experiment)
    write_ensemble(experiment)
    for name in experiment.datasets:
        write_values(experiment, name)
        write_scores(experiment, name)
    for tag, labels in experiment.advantages.items():
        critic, threshold = RESULTS / "critics" / labels.critic, RESULTS / f"thresholds/{tag}.yaml"
        threshold_stage(experiment, tag, critic, RESULTS / "episodes", threshold)
        for name in experiment.advantages[tag].datasets:
            episodes, output = RESULTS / f"episodes/{name}.parquet", sidecar(experiment, name, f"advantages_{tag}")
            advantages_stage(experiment, name, tag, critic, episodes, threshold, output)
            if (tag, name) in SHOWN:
                diagnostics_stage(experiment, name, tag, episodes, threshold, RESULTS / "diagnostics" / tag / name)
    for tag in experiment.policies:
        write_policy(tag, experiment.policies[tag].advantage_tag)
    write_evaluation()
    write_records()


def sidecar(experiment: Experiment, name: str, stem: str) -> Path:
    return sidecar_path(experiment.datasets[name], name, stem)


def episodes_of(experiment: Experiment, name: str):
    return load_episodes(RESULTS / f"episodes/{name}.parquet", open_dataset(name, experiment.datasets[name].path))


def lineage(stage: str, tag: str, fingerprint: str | None = None, parameters: dict | None = None, inputs: dict | None = None) -> Lineage:
    return Lineage(stage, tag, fingerprint, parameters or {}, inputs or {}, {}, "c" * 64)


def write_dataset(root: Path, rng: np.random.Generator, demonstrations: bool) -> None:
    """12 demonstrations, or 30 rollouts of which half fail and some of the successes end under correction."""
    lengths = rng.integers(18, 36, 12 if demonstrations else 30)
    success = np.ones(len(lengths), bool) if demonstrations else rng.random(len(lengths)) < 0.5
    lengths[~success] = 40
    corrected = np.flatnonzero(success & (rng.random(len(lengths)) < 0.5) & (not demonstrations))
    write_v30(
        root,
        lengths.tolist(),
        success=success.tolist(),
        interventions=[(int(episode), 15, int(lengths[episode])) for episode in corrected],
        cameras=(CAMERA,),
        size=(16, 16),
    )


def write_critic(experiment: Experiment) -> None:
    folder = RESULTS / "critics/value"
    folder.mkdir(parents=True)
    parts = []
    for name in ("demonstrations", "rollouts"):
        episodes = episodes_of(experiment, name)
        returns = read_sidecar(sidecar(experiment, name, "returns_fail40"), "returns", episodes, ["return"]).columns["return"]
        parts.append((returns, episodes.prompt_codes(), episodes.tasks))
    fit_normalizer(parts, "global").save(folder)
    (folder / "evaluation.json").write_text(json.dumps(critic_evaluation()))
    (folder / "lineage.json").write_text(
        lineage("train_critic", "value", parameters={"returns": dataclasses.asdict(experiment.returns["fail40"])}).to_json()
    )
    (folder / "model.safetensors").write_bytes(b"weights")
    write_metrics(folder, "eval/mae", "eval_train/mae", "eval/loss", "eval_train/loss", **{"baseline_time/mae": 0.177})


def critic_evaluation() -> dict[str, float | None]:
    """Metrics under the names that training gives them; a rank correlation with a constant is null."""
    metrics = {"eval/mae": 0.081, "eval/spearman": 0.74, "eval/cat_acc_best": 0.21, "eval/loss": 3.1, "eval_train/mae": 0.06}
    metrics |= {"baseline_constant/mae": 0.24, "baseline_constant/spearman": None, "baseline_time/mae": 0.177, "gap/mae": 0.021}
    for group, mae, time_mae, constant_mae in (("outcome=failure", 0.1, 0.2, 0.3), ("outcome=success", 0.06, 0.15, 0.18)):
        metrics |= {f"eval/mae/{group}": mae, f"baseline_time/mae/{group}": time_mae, f"baseline_constant/mae/{group}": constant_mae}
    for tenth in range(10):
        metrics |= {f"eval/calibration_value/decile={tenth}": -1 + tenth / 10, f"eval/calibration_return/decile={tenth}": -0.9 + tenth / 11}
        metrics |= {f"eval/success_auc/time={tenth}": 0.6 + tenth / 30, f"baseline_time/success_auc/time={tenth}": 0.5}
    return metrics


def write_values(experiment: Experiment, name: str) -> None:
    """Values that follow the return, with an error that is constant within an episode and some noise."""
    rng = np.random.default_rng(7)
    episodes = episodes_of(experiment, name)
    returns = read_sidecar(sidecar(experiment, name, "returns_fail40"), "returns", episodes, ["return"]).columns["return"]
    bias = np.repeat(rng.normal(0, 0.06, len(episodes.length)), episodes.length)
    value = np.clip(0.7 * returns / 79 - 0.12 + bias + rng.normal(0, 0.03, len(returns)), -1, 0).astype(np.float32)
    columns = {"value": value, "value_std": np.full_like(value, 0.1), "value_entropy": np.full_like(value, 3.0)}
    made = lineage("compute_values", "value", episodes.fingerprint, inputs={"critic": critic_digest(RESULTS / "critics/value")})
    write_sidecar(sidecar(experiment, name, "values_value"), "values", columns, episodes, made)


def write_ensemble(experiment: Experiment) -> None:
    """What training and merging leave of two members, as far as labels and report read it."""
    folder, evaluation, records = RESULTS / "critics/progress", ensemble_evaluation(), []
    for member in range(MEMBERS):
        path = folder / f"members/{member}"
        path.mkdir(parents=True)
        parameters = {"member": member, "seed": 42, "datasets": ["demonstrations"], "rollouts": []}
        records.append(lineage("train_member", "progress", parameters=parameters))
        (path / "lineage.json").write_text(records[-1].to_json())
        write_metrics(path, "eval/loss", "eval/accuracy", "eval/signed_progress_mean", **{"baseline_majority/loss": 1.39})
    (folder / "config.json").write_text("{}")
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    made_of = {"members": [dataclasses.asdict(record) for record in records]}
    (folder / "lineage.json").write_text(lineage("merge_ensemble", "progress", parameters=made_of).to_json())
    manifest = {
        str(member): {
            "raw": str(folder / f"members/{member}"),
            "folder": str(folder / f"members/{member}"),
            "source_member_idx": None,
            "digest": f"{member}" * 64,
            "num_tensors": 3,
        }
        for member in range(MEMBERS)
    }
    (folder / "merge_manifest.json").write_text(json.dumps({"members": manifest}))


def ensemble_evaluation() -> dict[str, float | None]:
    """Metrics under the names that merging gives them."""
    one = {"eval/loss": 1.1, "eval/accuracy": 0.5, "eval/accuracy_neighbor": 0.8, "eval/signed_progress_mean": 0.01}
    one |= {"eval_train/loss": 0.9, "eval_train/accuracy": 0.6, "baseline_majority/loss": 1.39, "baseline_majority/accuracy": 0.25}
    one |= {"eval/loss/outcome=failure": 1.6, "eval/accuracy/outcome=failure": 0.3, "baseline_majority/accuracy/outcome=failure": None}
    members = {f"member{member}/{name}": value for member in range(MEMBERS) for name, value in one.items()}
    return one | members | {"member0/eval/accuracy": 0.45, "member1/eval/accuracy": 0.55}


def write_scores(experiment: Experiment, name: str) -> None:
    """Scores of members that disagree, higher in successes."""
    rng = np.random.default_rng(11)
    episodes = episodes_of(experiment, name)
    forward = rng.beta(4, 2, (MEMBERS, episodes.num_frames)) * np.where(episodes.row_success(), 1.0, 0.6)
    within = rng.dirichlet(np.ones(NUM_BINS // 2), (MEMBERS, episodes.num_frames))
    probabilities = np.concatenate([within * (1 - forward)[:, :, None], within * forward[:, :, None]], axis=2)
    columns = {column: np.ascontiguousarray(values) for column, values in ensemble_columns(probabilities, K).items()}
    columns["look_ahead"] = np.full(episodes.num_frames, K)
    parameters = {"k": K, "num_bins": NUM_BINS, "ensemble_size": MEMBERS, "cameras": {CAMERA: CAMERA}, "length_scale": None}
    inputs = {"critic": ensemble_digest(RESULTS / "critics/progress")}
    made = lineage("compute_scores", "progress", episodes.fingerprint, parameters, inputs)
    write_sidecar(sidecar(experiment, name, "scores_progress"), "scores", columns, episodes, made)


def write_policy(tag: str, advantage_tag: str | None) -> None:
    folder = RESULTS / "policies" / tag
    folder.mkdir(parents=True)
    (folder / "lineage.json").write_text(lineage("train_policy", tag).to_json())
    counts = {"positive_conditional": 28, "positive_dropped": 12, "negative": 60}
    routing = {f"train/count_{branch}": count for branch, count in counts.items()} | {"train/unconditional_rate": 0.3}
    routing |= {f"train/loss_{branch}": 0.2 + count / 1000 for branch, count in counts.items()}
    flip = ("flip/positive_plain", "flip/noise") if advantage_tag else ()
    write_metrics(folder, "eval_train/loss", *flip, **(routing if advantage_tag else {}))


def write_metrics(folder: Path, *evaluated: str, **logged: float) -> None:
    """A row a step as the training loop writes them, evaluated every 20 steps."""
    rows = [{"step": step, "train/loss": 1 / step + 0.2, **logged} for step in range(1, 101)]
    for row in rows[19::20]:
        row |= dict.fromkeys(evaluated, 0.3 / row["step"] + 0.08)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_evaluation() -> None:
    """50 states of graded difficulty; each arm solves those below its strength, give or take noise."""
    folder = RESULTS / "evaluations/paired"
    folder.mkdir(parents=True)
    difficulty = np.random.default_rng(3).random(50)
    for number, (arm, strength) in enumerate(STRENGTHS.items()):
        success = difficulty + np.random.default_rng(number).normal(0, 0.1, 50) < strength
        write_arm(folder / f"{arm}.parquet", success)


def write_arm(path: Path, success: np.ndarray) -> None:
    """An arm's outcomes (50,) bool; the file's name says whose."""
    columns = {"episode": np.arange(50), "seed": 9000 + np.arange(50), "success": success, "num_frames": np.where(success, 24, 40)}
    write_rows(path, columns, "paired", policy=path.stem.rpartition("_")[0])


def write_rows(path: Path, columns: dict[str, np.ndarray], tag: str, policy: str, weights: str = "0" * 64, **environment: str) -> None:
    """Rows of an arm with their lineage; ``environment``: what is other than in the small experiment's."""
    environment = dataclasses.asdict(load_experiment(small_config()).environments["drawer"]) | environment
    made = lineage("evaluate_policy", tag, parameters={"policy": policy, "environment": environment}, inputs={"policy": weights})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata({METADATA_KEY: made.to_json()}), path)


def write_records() -> None:
    """What Snakemake says of rules and jobs."""
    (RESULTS / "rule_graph.dot").write_text(RULE_GRAPH)
    for number, name in enumerate(RUN_TIMES[:-1]):
        path = LOGS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        memory = "1457.90" if number else "-"
        path.write_text(f"s\th:m:s\tmax_rss\tmax_vms\n{47.34 + 600 * number}\t0:00:47\t{memory}\t-\n")
