"""The policy's trainable and its stage, on small real datasets: a positive label means actions of +0.8, a negative one of -0.8."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from recap_steam.config import Experiment, load_experiment
from recap_steam.dataset.episodes import Episodes, index_stage, load_episodes
from recap_steam.dataset.frames import FrameCache, frames_stage
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage
from recap_steam.policy import pi05
from recap_steam.policy.flow import image_inputs, sample_losses
from recap_steam.policy.folder import load_policy, load_serving
from recap_steam.policy.norm_stats import load_statistics, norm_stats_stage
from recap_steam.policy.processors import statistics_of
from recap_steam.policy.routing import branches_of
from recap_steam.policy.runner import PolicyRunner
from recap_steam.policy.samples import load_held_out, load_sources
from recap_steam.sidecar import sidecar_path, write_sidecar
from recap_steam.training.order import mixture_weights
from recap_steam.training.policy import PolicyTraining
from recap_steam.training.policy_stage import _start, _views, train_policy_stage
from tests.datasets import write_v21, write_v30
from tests.policies import CAMERA, MODEL, SMALL, perturb

SIZE = 32
WRIST = "observation.images.wrist"
LENGTHS = {"demonstrations": [9, 7], "rollouts": [8, 10, 6, 9], "blind": [10] * 4, "wristed": [6, 8], "held_out": [7, 6]}
LABELLED = ("demonstrations", "rollouts", "blind")
TRAINED = ("demonstrations", "rollouts")


def labels_of(name: str) -> np.ndarray:
    """Demonstrations are positive; rollouts are drawn; every other episode of the blind ones is positive. Two datasets have no labels."""
    count = sum(LENGTHS[name])
    if name == "blind":
        return np.repeat([True, False, True, False], 10)
    return np.ones(count, bool) if name in ("demonstrations", "wristed") else np.random.default_rng(0).random(count) < 0.5


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
    labels = {"critic": "value", "datasets": list(LABELLED)}
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
            "rollouts": {"path": "data/rollouts", "type": "rollout", "weight": 2.0, "camera_map": "one_arm"},
            "blind": {"path": "data/blind", "type": "rollout"},
            "wristed": {"path": "data/wristed", "type": "sft"},
            "held_out": {"path": "data/held_out", "type": "rollout", "split": "eval", "camera_map": "one_arm"},
        },
        "camera_maps": {"one_arm": {CAMERA: CAMERA, WRIST: None}},
        "returns": {"fail": {"failure_reward": -10}},
        "critics": {"value": {**critic, "model": {"image_size": SIZE}}},
        "advantages": {"labels": labels},
        "policies": {
            "start": {**policy, "datasets": ["demonstrations"]},
            "filtered": {**policy, "frame_filter": "successes_and_interventions"},
            "recap": {**policy, "advantage_tag": "labels"},
            "both": {**policy, "advantage_tag": "labels", "positive_only_conditional": False, "do_augment": False},
            "blind": {**policy, **blind, "advantage_tag": "labels"},
            "wide": {**policy, "datasets": ["rollouts", "wristed"], "cameras": [CAMERA, WRIST], "advantage_tag": "labels"},
            "continued": {**policy, "datasets": ["rollouts"], "init_from": "start", "max_steps": 1, "optim": {"lr": 1e-12}},
        },
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """All datasets with everything that training reads."""
    root = tmp_path_factory.mktemp("policy")

    options = {"cameras": (CAMERA,), "size": (SIZE, SIZE)}
    write_v30(root / "data/demonstrations", LENGTHS["demonstrations"], columns=signed_actions("demonstrations"), **options)
    outcome = {"success": [True, False, False, True], "interventions": [(1, 7, 10)]}
    write_v21(root / "data/rollouts", LENGTHS["rollouts"], columns=signed_actions("rollouts"), seed=1, **outcome, **options)
    write_v21(root / "data/blind", LENGTHS["blind"], columns=blind, success=[True] * 4, **options)
    write_v30(
        root / "data/wristed", LENGTHS["wristed"], seed=2, columns=signed_actions("wristed"), **{**options, "cameras": (CAMERA, WRIST)}
    )
    write_v21(root / "data/held_out", LENGTHS["held_out"], seed=3, success=[True, False], **options)
    experiment = load(root)
    for name in LENGTHS:
        index_stage(experiment, name, root / f"episodes/{name}.parquet")
        cameras = [CAMERA, WRIST] if name == "wristed" else [CAMERA]
        frames_stage(experiment, name, root / f"episodes/{name}.parquet", cameras, SIZE, root / f"frames/{name}_{SIZE}px.arrow")
    for name in LABELLED:
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


def episodes_of(root: Path, name: str) -> Episodes:
    return load_episodes(root / f"episodes/{name}.parquet", open_dataset(name, root / "data" / name))


def write_labels(experiment: Experiment, root: Path, name: str) -> None:
    dataset, episodes = experiment.datasets[name], episodes_of(root, name)
    zeros = {key: np.zeros(episodes.num_frames) for key in ("advantage_continuous", "return", "value_current", "value_next")}
    zeros |= {key: np.zeros(episodes.num_frames) for key in ("reward_sum", "reward_sum_raw")}
    columns = {**zeros, "num_valid_rewards": np.ones(episodes.num_frames, np.int64), "dataset_name": name, "advantage": labels_of(name)}
    parameters = dataclasses.asdict(experiment.advantages["labels"]) | dataclasses.asdict(experiment.returns["fail"])
    lineage = Lineage("compute_advantages", "labels", episodes.fingerprint, parameters, {}, {}, "")
    write_sidecar(sidecar_path(dataset, name, "advantages_labels"), "advantages", columns, episodes, lineage)


def trainable(root: Path, tag: str, **change) -> PolicyTraining:
    experiment = load(root, **{tag: change})
    config = experiment.policies[tag]
    sources = load_sources(experiment, tag, root / "episodes")
    held_out = load_held_out(experiment, tag, root / "episodes", like=sources[0])
    views = {source.name: _views(experiment, config, source, root / "frames") for source in [*sources, *held_out]}
    torch.manual_seed(0)
    start = _start(experiment, tag, sources, root / f"norm_stats/{tag}.json", None)
    weights = mixture_weights(experiment, config, [len(source.selected) for source in sources])
    return PolicyTraining(config, *start, sources, held_out, views, weights)


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
    names = branches_of(False)
    np.testing.assert_array_equal([names[branch].startswith("positive") for branch in batch["branch"]], labels)
    for sample in (0, 8, 9, 15, first, first + 17, len(samples) - 1):
        text = training.tokenizer.decode(batch["tokens"][sample][batch["token_mask"][sample]], skip_special_tokens=True)
        branch = names[batch["branch"][sample]]
        kind = "plain" if branch.endswith("dropped") else branch.removesuffix("_conditional")
        assert text.startswith("Task: open the drawer, State: " if kind == "plain" else f"Task: open the drawer Advantage: {kind}, State: ")
        assert kind in ("plain", "positive" if labels[sample] else "negative")
        name, row = ("demonstrations", sample) if sample < first else ("rollouts", sample - first)
        frames = FrameCache.open(files / f"frames/{name}_{SIZE}px.arrow", episodes_of(files, name))
        np.testing.assert_array_equal(batch["images"][sample, 0], frames.images(CAMERA, [row])[0])
    assert batch["time"].min() > 0 and batch["time"].max() <= 1
    assert {names[branch] for branch in batch["branch"]} == set(names)


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
        errors = training.model(*image_inputs(training.policy, batch), *prompt, batch["actions"], batch["noise"], batch["time"])[..., :2]
    expected = (errors[0, :1].mean() + errors[1].mean()) / 2
    torch.testing.assert_close(training.loss(batch)[0].detach(), expected)
    assert not torch.isclose(errors.mean(), expected)  # what lerobot's own loss would be


@pytest.mark.parametrize(("tag", "positive_only"), [("recap", True), ("both", False)])
def test_metrics_count_every_branch(files, tag, positive_only):
    training, labels = trainable(files, tag), np.concatenate([labels_of(name) for name in TRAINED])
    batch = training.load(np.arange(49), rngs(range(49)))
    with torch.no_grad():
        loss, metrics = training.loss(batch)
        losses = sample_losses(training.policy, batch, 2)
    names = branches_of(positive_only)
    assert set(metrics) == {f"{kind}_{name}" for name in names for kind in ("loss", "count")} | {"unconditional_rate"}
    counts = {name: int(metrics[f"count_{name}"][0]) for name in names}
    assert all(metrics[f"count_{name}"] == (metrics[f"loss_{name}"][1], None) and count for name, count in counts.items())
    assert sum(counts.values()) == 49
    assert counts["positive_conditional"] + counts["positive_dropped"] == labels.sum()
    torch.testing.assert_close(sum(metrics[f"loss_{name}"][0] for name in names) / 49, loss)
    for index, name in enumerate(names):
        torch.testing.assert_close(metrics[f"loss_{name}"][0], losses[batch["branch"] == index].sum())
    dropped, eligible = metrics["unconditional_rate"]
    assert eligible == (labels.sum() if positive_only else 49)
    assert dropped == counts["positive_dropped"] + counts.get("negative_dropped", 0)


def test_demonstrations_need_no_labels_but_rollouts_do(files):
    """Defect 35: the reference wants a sidecar for every dataset."""
    demonstrations = load_sources(load(files), "wide", files / "episodes")[1]
    assert demonstrations.name == "wristed" and demonstrations.labels.tolist() == [True] * 14
    experiment = load(files, wide={"datasets": ["held_out", "wristed"]})
    with pytest.raises(UserError, match=r"held_out/meta/advantages_labels\.parquet: not found"):
        load_sources(experiment, "wide", files / "episodes")


def test_robots_without_one_of_the_cameras_train_in_a_mixture(files):
    training = trainable(files, "wide", do_augment=True)
    rollouts = sum(LENGTHS["rollouts"])
    samples = np.array([rollouts + 3, 5, rollouts, 20])
    batch = training.load(samples, rngs(range(4)))
    assert batch["camera_mask"].tolist() == [[True, True], [True, False], [True, True], [True, False]]
    one = training.load(samples[1:2], rngs(range(1, 2)))
    for name, array in one.items():
        np.testing.assert_array_equal(array[0], batch[name][1], err_msg=name)
    images, masks = image_inputs(training.policy, batch)
    assert (images[1][1] == -1).all() and (images[1][3] == -1).all() and not (images[1][0] == -1).all()  # lerobot's empty camera
    assert masks[1].tolist() == [True, False, True, False] and masks[0].all()


def test_an_absent_camera_is_not_seen_whatever_its_pixels_would_be(files):
    training = trainable(files, "wide", do_augment=False)
    batch = training.load(np.array([5, 40]), rngs(range(2)))
    other = {**batch, "images": batch["images"].clone()}
    other["images"][0, 1] = torch.randint(0, 256, other["images"][0, 1].shape, dtype=torch.uint8)

    def gradients(batch):
        training.model.zero_grad()
        training.loss(batch)[0].backward()
        return [parameter.grad for group in training.parameter_groups() for parameter in group["params"]]

    assert all(torch.equal(a, b) for a, b in zip(gradients(batch), gradients(other), strict=True))
    model = training.policy.model
    with torch.no_grad():
        (images, masks), noise, prompt = image_inputs(training.policy, batch), batch["noise"], (batch["tokens"], batch["token_mask"])
        expected = model.sample_actions(images, masks, *prompt, noise=noise)
        images[1][0] = 0.7  # masked in attention too, not only blanked
        assert torch.equal(model.sample_actions(images, masks, *prompt, noise=noise), expected)
        seen = {**other, "camera_mask": torch.ones_like(batch["camera_mask"])}
        losses = [sample_losses(training.policy, inputs, 2) for inputs in (batch, seen)]
    assert not torch.allclose(losses[0][0], losses[1][0]) and torch.equal(losses[0][1], losses[1][1])


def test_a_policy_of_one_camera_equals_one_whose_second_is_absent(files):
    """Positions count only what is there."""
    change = {"datasets": ["rollouts"], "do_augment": False}
    wide, narrow = (trainable(files, "wide", cameras=cameras, **change) for cameras in ([CAMERA, WRIST], [CAMERA]))
    narrow.model.load_state_dict(wide.model.state_dict())
    samples = np.arange(4)
    with torch.no_grad():
        losses = [sample_losses(training.policy, training.load(samples, rngs(range(4))), 2) for training in (wide, narrow)]
    torch.testing.assert_close(*losses)


class NoHostSync(TorchDispatchMode):
    """Fails where the host would wait for the device: to read a number, or to learn the size of a result."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert not name.startswith(self.FORBIDDEN), name
        assert name != "index" or all(index is None or index.dtype != torch.bool for index in args[1]), "boolean index"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_micro_batch_never_waits_for_the_device(files, checkpointing):
    """Defect 45; neither here nor in lerobot."""
    training = trainable(files, "wide")
    if checkpointing:
        pi05.enable_gradient_checkpointing(training.model)
    training.model.train()
    batch = training.load(np.arange(4), rngs(range(4)))
    with NoHostSync():
        training.loss(batch)[0].backward()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoHostSync():
        training.loss(batch)[0].item()


def test_filtered_imitation_starts_at_frames_of_successes_and_corrections(files):
    training = trainable(files, "filtered")
    success, corrected = [*range(16), *range(16, 24), *range(40, 49)], range(31, 34)  # global rows
    assert training.lengths == [16, 8 + 3 + 9]
    batch = training.load(np.arange(36), rngs(range(36)))
    expected = np.concatenate([labels_of(name) for name in TRAINED])[sorted([*success, *corrected])]
    np.testing.assert_array_equal(batch["actions"][:, 0, 0] > 0, expected)
    assert "branch" not in batch
    assert training.weights == [16.0, 40.0]


def test_norm_stats_cover_exactly_the_frames_that_are_trained_on(files):
    sources = load_sources(load(files), "filtered", files / "episodes")
    rows = np.concatenate([source.states[source.selected] for source in sources])
    statistics = load_statistics(files / "norm_stats/filtered.json")["observation.state"]
    assert statistics["count"] == [36]
    np.testing.assert_allclose(statistics["q01"], np.quantile(rows.astype(float), 0.01, axis=0))


def test_stage_writes_a_folder_that_acts_and_a_rerun_changes_nothing(files, tmp_path):
    folder = run(files, tmp_path, "recap")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    serving = load_serving(folder)
    assert serving.conditional and serving.default_guidance_scale == 1.0 and serving.action_dim == 2
    assert list(serving.task_suffixes) == ["plain", "positive"]  # under positive_only_conditional no frame had the negative one
    rows = [json.loads(line) for line in before["metrics.jsonl"].splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert {name for name in rows[-1] if not name.startswith("train/")} == {"step", "eval_train/loss", "flip/positive_plain", "flip/noise"}
    counts = [row[f"train/count_{name}"] for row in rows for name in branches_of(True)]
    assert sum(counts) == 3 * 8 and all(count == int(count) for count in counts)
    lineage = json.loads(before["lineage.json"])["parameters"]
    assert lineage["start"] == "random" and lineage["policy"]["init_from"] is None
    assert lineage["cameras"]["rollouts"] == {CAMERA: CAMERA}
    images = {CAMERA: np.zeros((2, SIZE, SIZE, 3), np.uint8)}
    runner = PolicyRunner.load(folder)
    noise = np.zeros((2, *runner.noise_shape), np.float32)
    actions = runner.act(images, np.zeros((2, 3), np.float32), ["open the drawer"] * 2, 1.0, noise)
    assert actions.shape == (2, MODEL.n_action_steps, 2) and np.isfinite(actions).all()
    run(files, tmp_path, "recap")
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_control_trains_on_labels_of_its_own_and_says_so(files, tmp_path):
    folder = run(files, tmp_path, "recap", experiment=load(files, recap={"label_control": "all_positive"}))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["train/count_negative"] for row in rows) == 0
    lineage = json.loads((folder / "lineage.json").read_text())
    assert lineage["parameters"]["policy"]["label_control"] == "all_positive" and "advantages/rollouts" in lineage["inputs"]


def test_held_out_frames_are_measured_at_every_evaluation(files, tmp_path):
    """They have no labels, and their robot lacks a camera."""
    experiment = load(files, wide={"eval_datasets": ["held_out"], "eval_interval": 2, "micro_batch_size": 4, "eval": {"max_samples": 6}})
    folder = run(files, tmp_path, "wide", experiment=experiment)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = {"eval/loss", "eval_train/loss", "flip/positive_plain", "flip/noise"}
    assert [evaluated <= row.keys() for row in rows] == [False, True, True]
    assert rows[-1]["eval/loss"] != rows[-1]["eval_train/loss"]
    assert {"episodes/held_out", "frames/held_out", "states/held_out"} < json.loads((folder / "lineage.json").read_text())["inputs"].keys()


def test_the_flip_test_prefers_held_out_frames_and_counts_every_frame_once(files):
    training = trainable(files, "wide", eval_datasets=["held_out"], eval={"max_samples": 6}, micro_batch_size=4)
    perturb(training.policy)
    with torch.no_grad():
        metrics = training.evaluate()
        assert metrics == training.evaluate()  # noise and frames are fixed
        at_once = trainable(files, "wide", eval_datasets=["held_out"], eval={"max_samples": 6}, micro_batch_size=8)
        at_once.model.load_state_dict(training.model.state_dict())
        whole = at_once.evaluate()
        assert whole == {name: pytest.approx(value, rel=1e-4) for name, value in metrics.items()}
        on_training = at_once._on_training_frames.flip_test(at_once._kinds())
    assert whole["flip/positive_plain"] > 0 and whole["flip/positive_plain"] != on_training["flip/positive_plain"]


def test_how_training_is_executed_changes_neither_the_folder_nor_its_lineage(files, tmp_path):
    """Recomputed activations and smaller micro batches: the same weights within float tolerance, the same record, config.json untouched."""
    plain = run(files, tmp_path / "plain", "recap")
    other = run(files, tmp_path / "other", "recap", experiment=load(files, recap={"gradient_checkpointing": True, "micro_batch_size": 4}))
    assert (plain / "config.json").read_bytes() == (other / "config.json").read_bytes()
    assert json.loads((plain / "config.json").read_text())["gradient_checkpointing"] is False
    one, two = (json.loads((folder / "lineage.json").read_text()) for folder in (plain, other))
    assert one["parameters"] == two["parameters"] and one["inputs"] == two["inputs"]
    for name, tensor in load_policy(plain).policy.state_dict().items():
        torch.testing.assert_close(load_file(other / "model.safetensors")[name], tensor, atol=1e-3, rtol=1e-3, msg=name)


def test_starting_from_another_policy_keeps_its_weights_statistics_and_tokenizer(files, tmp_path):
    start = run(files, tmp_path, "start")
    continued = run(files, tmp_path, "continued", init_dir=start)
    one, other = load_policy(start), load_policy(continued)
    for (name, a), (_, b) in zip(one.policy.named_parameters(), other.policy.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0, msg=name)
    assert statistics_of(one.preprocessor) == statistics_of(other.preprocessor)
    assert statistics_of(one.preprocessor)["action"] != load_statistics(files / "norm_stats/continued.json")["action"]
    assert (start / "tokenizer/tokenizer.json").read_bytes() == (continued / "tokenizer/tokenizer.json").read_bytes()
    lineage = json.loads((continued / "lineage.json").read_text())
    assert lineage["parameters"]["start"] == "policy start" and {"init/model.safetensors", "init/lineage.json"} < lineage["inputs"].keys()
    assert "norm_stats" not in lineage["inputs"]


def test_starting_from_another_policy_or_one_of_another_robot_is_refused(files, tmp_path):
    start = run(files, tmp_path, "start")
    with pytest.raises(UserError, match=r"lineage\.json: tag is start, needed is filtered"):
        run(files, tmp_path, "continued", init_dir=start, experiment=load(files, continued={"init_from": "filtered"}))
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
    lineage = json.loads((folder / "lineage.json").read_text())
    read = {"pretrained/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "frames/rollouts"}
    assert read < lineage["inputs"].keys()
    assert lineage["parameters"]["start"] == "pretrained"
    wider = {**model, "small": {**model["small"], "expert_mlp_dim": 128}}
    with pytest.raises(UserError, match=r"has a misshapen tensor .*mlp\.gate_proj\.weight: \(64, 32\) instead of \(128, 32\)"):
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
