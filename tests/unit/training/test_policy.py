"""The policy's trainable and its stage, on small real datasets: a positive label means actions of +0.8, a negative one of -0.8."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.frames import FrameCache, frames_stage
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage
from recap_steam.policy.folder import load_policy, load_serving
from recap_steam.policy.norm_stats import load_statistics, norm_stats_stage
from recap_steam.policy.processors import statistics_of
from recap_steam.policy.prompts import KIND_NAMES
from recap_steam.policy.routing import BRANCHES
from recap_steam.policy.runner import PolicyRunner
from recap_steam.policy.samples import load_sources
from recap_steam.sidecar import sidecar_path, write_sidecar
from recap_steam.training.order import mixture_weights
from recap_steam.training.policy import PolicyTraining
from recap_steam.training.policy_stage import _start, train_policy_stage
from tests.datasets import write_v21, write_v30
from tests.policies import CAMERA, MODEL, SMALL

SIZE = 32
LENGTHS = {"demonstrations": [9, 7], "rollouts": [8, 10, 6, 9], "blind": [10] * 4}
TRAINED = ("demonstrations", "rollouts")


def labels_of(name: str) -> np.ndarray:
    """Demonstrations are positive; rollouts are drawn; every other episode of the blind ones is positive."""
    count = sum(LENGTHS[name])
    if name == "blind":
        return np.repeat([True, False, True, False], 10)
    return np.ones(count, bool) if name == "demonstrations" else np.random.default_rng(0).random(count) < 0.5


def signed_actions(name: str):
    """Changes an episode's actions so that the label of each frame decides their sign."""

    def columns(table: pa.Table, position: int) -> pa.Table:
        first = sum(LENGTHS[name][:position])
        sign = np.where(labels_of(name)[first : first + len(table)], 0.8, -0.8)
        return replace(table, "action", vectors(np.repeat(sign[:, None], 2, axis=1)))

    return columns


def blind(table: pa.Table, position: int) -> pa.Table:
    """The same, with one image and one state in every frame: only the indicator tells the action."""
    table = replace(signed_actions("blind")(table, position), "observation.state", vectors(np.zeros((len(table), 3))))
    return replace(table, CAMERA, pa.array([table[CAMERA][0].as_py()] * len(table), table[CAMERA].type))


def replace(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def vectors(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), values.shape[1])


def config() -> dict:
    model = {**dataclasses.asdict(MODEL), "small": dataclasses.asdict(SMALL)}
    policy = {
        "datasets": list(TRAINED),
        "cameras": [CAMERA],
        "model": model,
        "optim": {"lr": 3e-3, "lr_warmup_steps": 10},
        "max_steps": 3,
        "global_batch_size": 8,
    }
    labels = {"critic": "value", "datasets": list(LENGTHS)}
    critic = {"returns_tag": "fail", **{key: policy[key] for key in ("datasets", "cameras", "optim", "max_steps", "global_batch_size")}}
    blind = {
        "datasets": ["blind"],
        "max_steps": 150,
        "global_batch_size": 16,
        "eval_interval": 150,
        "save_interval": 150,
        "optim": {"lr": 5e-3},
    }
    return {
        "experiment": "small",
        "datasets": {
            "demonstrations": {"path": "data/demonstrations", "type": "sft"},
            "rollouts": {"path": "data/rollouts", "type": "rollout", "weight": 2.0},
            "blind": {"path": "data/blind", "type": "rollout"},
        },
        "returns": {"fail": {"failure_reward": -10}},
        "critics": {"value": {**critic, "model": {"image_size": SIZE}}},
        "advantages": {"labels": labels},
        "policies": {
            "start": {**policy, "datasets": ["demonstrations"]},
            "filtered": {**policy, "frame_filter": "successes_and_interventions"},
            "recap": {**policy, "advantage_tag": "labels"},
            "both": {**policy, "advantage_tag": "labels", "positive_only_conditional": False, "do_augment": False},
            "blind": {**policy, **blind, "advantage_tag": "labels"},
            "continued": {**policy, "datasets": ["rollouts"], "init_from": "start", "max_steps": 1, "optim": {"lr": 1e-12}},
        },
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Both datasets with everything that training reads."""
    root = tmp_path_factory.mktemp("policy")

    options = {"cameras": (CAMERA,), "size": (SIZE, SIZE)}
    write_v30(root / "data/demonstrations", LENGTHS["demonstrations"], columns=signed_actions("demonstrations"), **options)
    outcome = {"success": [True, False, False, True], "interventions": [(1, 7, 10)]}
    write_v21(root / "data/rollouts", LENGTHS["rollouts"], columns=signed_actions("rollouts"), seed=1, **outcome, **options)
    write_v21(root / "data/blind", LENGTHS["blind"], columns=blind, success=[True] * 4, **options)
    experiment = load(root)
    for name in LENGTHS:
        index_stage(experiment, name, root / f"episodes/{name}.parquet")
        frames_stage(experiment, name, root / f"episodes/{name}.parquet", [CAMERA], SIZE, root / f"frames/{name}_{SIZE}px.arrow")
        write_labels(experiment, root, name)
    for tag in experiment.policies:
        norm_stats_stage(experiment, tag, root / "episodes", root / f"norm_stats/{tag}.json")
    return root


def load(root: Path, **changes: dict) -> Experiment:
    raw = config()
    for name in LENGTHS:
        raw["datasets"][name]["path"] = str(root / "data" / name)
    for tag, change in changes.items():
        raw["policies"][tag] |= change
    return load_experiment(raw)


def write_labels(experiment: Experiment, root: Path, name: str) -> None:
    dataset = experiment.datasets[name]
    episodes = load_episodes(root / f"episodes/{name}.parquet", open_dataset(name, dataset.path))
    zeros = {key: np.zeros(episodes.num_frames) for key in ("advantage_continuous", "return", "value_current", "value_next")}
    zeros |= {key: np.zeros(episodes.num_frames) for key in ("reward_sum", "reward_sum_raw")}
    columns = {**zeros, "num_valid_rewards": np.ones(episodes.num_frames, np.int64), "dataset_name": name, "advantage": labels_of(name)}
    parameters = dataclasses.asdict(experiment.advantages["labels"]) | dataclasses.asdict(experiment.returns["fail"])
    lineage = Lineage("compute_advantages", "labels", episodes.fingerprint, parameters, {}, {}, "")
    write_sidecar(sidecar_path(dataset, name, "advantages_labels"), "advantages", columns, episodes, lineage)


def trainable(root: Path, tag: str, **change) -> PolicyTraining:
    experiment = load(root, **{tag: change})
    sources = load_sources(experiment, tag, root / "episodes", with_labels=True)
    frames = [FrameCache.open(root / f"frames/{source.name}_{SIZE}px.arrow", source.episodes) for source in sources]
    torch.manual_seed(0)
    start = _start(experiment, tag, sources, root / f"norm_stats/{tag}.json", None)
    config = experiment.policies[tag]
    weights = mixture_weights(experiment, config, [len(source.selected) for source in sources])
    return PolicyTraining(config, *start, sources, frames, weights)


def run(root: Path, output: Path, tag: str, init_dir: Path | None = None, experiment: Experiment | None = None) -> Path:
    folders = root / "episodes", root / "frames", root / f"norm_stats/{tag}.json", output / f"state/{tag}", output / tag
    train_policy_stage(experiment or load(root), tag, *folders, init_dir)
    return output / tag


def rngs(positions: range) -> list[np.random.Generator]:
    return [np.random.default_rng([7, position]) for position in positions]


def test_batches_do_not_depend_on_how_they_are_cut(files):
    training = trainable(files, "recap")
    samples = np.array([3, 40, 17, 0, 25, 9])
    whole, parts = training.load(samples, rngs(range(6))), [training.load(samples[i : i + 2], rngs(range(i, i + 2))) for i in (0, 2, 4)]
    for name, tensor in whole.items():
        assert torch.equal(tensor, torch.cat([part[name] for part in parts])), name
    with torch.no_grad():
        mean = torch.stack([training.loss(part)[0] for part in parts]).mean()
        torch.testing.assert_close(training.loss(whole)[0], mean)


def test_a_sample_is_its_frame_its_prompt_and_its_actions(files):
    training = trainable(files, "both")
    samples = np.arange(sum(sum(LENGTHS[name]) for name in TRAINED))
    batch = training.load(samples, rngs(range(len(samples))))
    labels, first = np.concatenate([labels_of(name) for name in TRAINED]), sum(LENGTHS["demonstrations"])
    np.testing.assert_array_equal(batch["label"], labels)
    for sample in (0, 8, 9, 15, first, first + 17, len(samples) - 1):
        text = training.tokenizer.decode(batch["tokens"][sample][batch["token_mask"][sample]], skip_special_tokens=True)
        kind = KIND_NAMES[batch["kind"][sample]]
        assert text.startswith("Task: open the drawer, State: " if kind == "plain" else f"Task: open the drawer Advantage: {kind}, State: ")
        assert kind in ("plain", "positive" if labels[sample] else "negative")
        name, row = ("demonstrations", sample) if sample < first else ("rollouts", sample - first)
        frames = FrameCache.open(files / f"frames/{name}_{SIZE}px.arrow", training._sources[sample >= first].episodes)
        np.testing.assert_array_equal(batch["images"][sample, 0], frames.images(CAMERA, [row])[0])
    assert batch["time"].min() > 0 and batch["time"].max() <= 1
    assert {KIND_NAMES[kind] for kind in batch["kind"]} == {"plain", "positive", "negative"}


def test_chunks_end_with_their_episode(files):
    training = trainable(files, "both")
    batch = training.load(np.array([8, 7, 6, 5, 4]), rngs(range(5)))  # the last frames of the first demonstration, which has 9
    assert batch["action_is_pad"].tolist() == [[False] * n + [True] * (4 - n) for n in (1, 2, 3, 4, 4)]
    assert (batch["actions"][:, :, 2:] == 0).all()  # padded dimensions


def test_steps_past_the_end_and_padded_dimensions_do_not_count(files):
    training = trainable(files, "both")
    batch = training.load(np.array([8, 3]), rngs(range(2)))
    with torch.no_grad():
        prompt = batch["tokens"], batch["token_mask"]
        errors = training.model(*training._inputs(batch), *prompt, batch["actions"], batch["noise"], batch["time"])[..., :2]
    expected = (errors[0, :1].mean() + errors[1].mean()) / 2
    torch.testing.assert_close(training.loss(batch)[0].detach(), expected)
    assert not torch.isclose(errors.mean(), expected)  # what lerobot's own loss would be


def test_metrics_count_every_branch(files):
    training = trainable(files, "recap")
    samples = np.arange(49)
    batch = training.load(samples, rngs(range(49)))
    with torch.no_grad():
        loss, metrics = training.loss(batch)
    used = [name for name in BRANCHES if name != "negative_conditional"]
    assert set(metrics) == {f"{kind}_{name}" for name in used for kind in ("loss", "share")} | {"unconditional_rate"}
    total = sum(metrics[f"loss_{name}"][0] for name in used)
    torch.testing.assert_close(total / 49, loss)
    assert sum(metrics[f"loss_{name}"][1] for name in used) == 49
    dropped, positives = metrics["unconditional_rate"]
    assert positives == batch["label"].sum() and dropped == metrics["share_positive_unconditional"][0] > 0


def test_filtered_imitation_starts_at_frames_of_successes_and_corrections(files):
    training = trainable(files, "filtered")
    success, corrected = [*range(16), *range(16, 24), *range(40, 49)], range(31, 34)  # global rows
    assert training.lengths == [16, 8 + 3 + 9]
    batch = training.load(np.arange(36), rngs(range(36)))
    expected = np.concatenate([labels_of(name) for name in TRAINED])[sorted([*success, *corrected])]
    np.testing.assert_array_equal(batch["actions"][:, 0, 0] > 0, expected)
    assert "label" not in batch and (batch["kind"] == 0).all()
    assert training.weights == [16.0, 40.0]


def test_norm_stats_cover_exactly_the_frames_that_are_trained_on(files):
    sources = load_sources(load(files), "filtered", files / "episodes", with_labels=False)
    rows = np.concatenate([source.states[source.selected] for source in sources])
    statistics = load_statistics(files / "norm_stats/filtered.json")["observation.state"]
    assert statistics["count"] == [36]
    np.testing.assert_allclose(statistics["q01"], np.quantile(rows.astype(float), 0.01, axis=0))


def test_stage_writes_a_folder_that_acts_and_a_rerun_changes_nothing(files, tmp_path):
    folder = run(files, tmp_path, "recap")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    serving = load_serving(folder)
    assert serving.conditional and serving.default_guidance_scale == 1.0 and serving.action_dim == 2
    rows = [json.loads(line) for line in before["metrics.jsonl"].splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert {"eval_train/loss", "flip/positive_plain", "flip/noise"} <= set(rows[-1])
    images = {CAMERA: np.zeros((2, SIZE, SIZE, 3), np.uint8)}
    runner = PolicyRunner.load(folder)
    noise = np.zeros((2, *runner.noise_shape), np.float32)
    actions = runner.act(images, np.zeros((2, 3), np.float32), ["open the drawer"] * 2, 1.0, noise)
    assert actions.shape == (2, MODEL.n_action_steps, 2) and np.isfinite(actions).all()
    run(files, tmp_path, "recap")
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_starting_from_another_policy_keeps_its_weights_statistics_and_tokenizer(files, tmp_path):
    start = run(files, tmp_path, "start")
    continued = run(files, tmp_path, "continued", init_dir=start)
    one, other = load_policy(start), load_policy(continued)
    for (name, a), (_, b) in zip(one.policy.named_parameters(), other.policy.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0, msg=name)
    assert statistics_of(one.preprocessor) == statistics_of(other.preprocessor)
    assert statistics_of(one.preprocessor)["action"] != load_statistics(files / "norm_stats/continued.json")["action"]
    assert (start / "tokenizer/tokenizer.json").read_bytes() == (continued / "tokenizer/tokenizer.json").read_bytes()
    assert "init" in json.loads((continued / "lineage.json").read_text())["inputs"]


def test_starting_from_the_policy_of_another_robot_is_refused(files, tmp_path):
    start = run(files, tmp_path, "start")
    serving = json.loads((start / "serving.json").read_text())
    (start / "serving.json").write_text(json.dumps({**serving, "action_dim": 7}))
    with pytest.raises(UserError, match=r"init_from: .* 3 state and 7 action dimensions, dataset rollouts has 3 and 2"):
        run(files, tmp_path, "continued", init_dir=start)


def test_an_interrupted_run_ends_with_the_bytes_of_an_uninterrupted_one(files, tmp_path, monkeypatch):
    experiment = load(files, recap={"max_steps": 6, "save_interval": 2, "eval_interval": 3})
    whole = run(files, tmp_path / "whole", "recap", experiment=experiment)
    loss, calls = PolicyTraining.loss, itertools.count(1)

    def interrupted(self, batch):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return loss(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PolicyTraining, "loss", interrupted)
        run(files, tmp_path / "cut", "recap", experiment=experiment)
    assert list(tmp_path.glob("cut/state/recap/*/step_000000002"))
    cut = run(files, tmp_path / "cut", "recap", experiment=experiment)
    for name in ("model.safetensors", "metrics.jsonl", "lineage.json"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def test_pretrained_weights_load_strictly(files, tmp_path):
    start = run(files, tmp_path, "start")
    model = {**config()["policies"]["recap"]["model"], "pretrained_path": str(start)}
    folder = run(files, tmp_path, "recap", experiment=load(files, recap={"model": model, "optim": {"lr": 1e-12}}))
    torch.testing.assert_close(load_policy(start).policy.state_dict(), load_policy(folder).policy.state_dict(), atol=1e-9, rtol=0)
    assert {"frames/rollouts", "pretrained", "tokenizer"} < json.loads((folder / "lineage.json").read_text())["inputs"].keys()
    wider = {**model, "small": {**model["small"], "expert_mlp_dim": 128}}
    with pytest.raises(UserError, match="does not fit this pi0"):
        run(files, tmp_path / "wider", "recap", experiment=load(files, recap={"model": wider}))


def test_missing_or_foreign_inputs_are_one_line(files, tmp_path):
    with pytest.raises(UserError, match="init_from"):
        run(files, tmp_path, "continued")
    (files / "norm_stats/recap.json").rename(tmp_path / "recap.json")
    (files / "norm_stats/recap.json").write_bytes((files / "norm_stats/filtered.json").read_bytes())
    with pytest.raises(UserError, match=r"norm_stats/recap\.json: tag is filtered, needed is recap"):
        run(files, tmp_path, "recap")
    (tmp_path / "recap.json").rename(files / "norm_stats/recap.json")
    labels = files / "data/rollouts/meta/advantages_labels.parquet"
    labels.rename(tmp_path / "labels.parquet")
    with pytest.raises(UserError, match=r"advantages_labels\.parquet: not found"):
        run(files, tmp_path, "recap")
    (tmp_path / "labels.parquet").rename(labels)
    raw = config()
    raw["advantages"]["labels"]["positive_quantile"] = 0.9
    experiment = dataclasses.replace(load(files), advantages=load_experiment(raw).advantages)
    with pytest.raises(UserError, match=r"positive_quantile is 0\.3, needed is 0\.9"):
        run(files, tmp_path, "recap", experiment=experiment)
    raw["returns"]["fail"]["failure_reward"] = -20
    experiment = dataclasses.replace(load(files), returns=load_experiment(raw).returns)
    with pytest.raises(UserError, match=r"advantages_labels\.parquet: parameters\.failure_reward is -10, needed is -20"):
        run(files, tmp_path, "recap", experiment=experiment)


def test_a_trained_policy_obeys_the_indicator(files, tmp_path):
    """Image and state do not tell the label, the label decides the sign of the action. Guidance pushes further the same way."""
    folder = run(files, tmp_path, "blind")
    runner = PolicyRunner.load(folder)
    noise = np.random.default_rng(0).standard_normal((64, *runner.noise_shape), np.float32)
    images, states = {CAMERA: np.full((64, SIZE, SIZE, 3), 20, np.uint8)}, np.zeros((64, 3), np.float32)
    plain, positive, guided = (runner.act(images, states, ["open the drawer"] * 64, scale, noise)[:, 0, 0] for scale in (0.0, 1.0, 2.0))
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert (positive > 0).mean() > 0.9 and (plain > 0).mean() < 0.6  # 77 % of the plain samples have a negative label
    assert guided.mean() > positive.mean()
    assert last["flip/positive_plain"] > 0.5
