"""A member as the loop sees it, on a small experiment on disk."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from recap_steam.critics.frames import model_inputs
from recap_steam.critics.progress_folder import load_progress_card
from recap_steam.dataset.episodes import index_stage
from recap_steam.dataset.frames import frames_stage
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage
from recap_steam.training import progress_stage
from recap_steam.training.progress import INPUTS, ProgressTraining
from recap_steam.training.progress_stage import train_member_stage
from tests.datasets import png_array, write_v30
from tests.unit.critics.experiment import CAMERA, PROGRESS, Files, make
from tests.unit.training.test_critic import NoHostSync, rngs


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    return make(tmp_path_factory.mktemp("experiment"))


def trainable(files: Files, member: int = 0, **changes) -> ProgressTraining:
    """What the stage hands to the loop."""
    experiment = files.with_progress(**changes).experiment
    config = experiment.critics["progress"]
    names = [*config.datasets, *config.eval_datasets]
    sources = {name: progress_stage._read(experiment, "progress", name, files.episodes, files.frames) for name in names}
    return progress_stage._trainable(experiment, config, sources, member)


def train(files: Files, folder, member: int = 0, **changes):
    run = files.with_progress(**changes)
    train_member_stage(run.experiment, "progress", member, run.episodes, run.frames, folder / f"state{member}", folder / str(member))
    return folder / str(member)


def model(**changes) -> dict:
    return {"model": {**PROGRESS["model"], **changes}}


def test_a_batch_holds_the_frames_and_bins_of_its_pairs(files):
    """Samples 3 and 2: frame 1 of episode 0 with frame 3, reversed and forward; 14: frame 7 of the same with the last, frame 7."""
    batch = trainable(files, do_augment=False).load(np.array([3, 2, 12]), rngs(3))
    assert batch["images"][:, 0, 0, 0].tolist() == [30, 50, 80, 90]  # red tells the frame: 1, 3, 6, 7
    assert batch["first"].tolist() == [1, 0, 2] and batch["second"].tolist() == [0, 1, 3]
    assert batch["bin"].tolist() == [0, 1, 1] and batch["prompt"].tolist() == [0, 0, 0] and len(batch["tokens"]) == 1


def test_pairs_of_all_datasets_have_their_own_frames_and_prompts(files):
    critic = trainable(files, datasets=["demonstrations", "rollouts"], train_on_rollouts=True, only_success=False, do_augment=False)
    assert critic.lengths == [2 * (7 + 8), 2 * (11 + 6 + 11)]
    second_task, rollout = 2 * 7, 30 + 2 * 11  # the first anchors of the second demonstration and of the second rollout
    batch = critic.load(np.array([rollout, second_task, 0]), rngs(3))
    greens = batch["images"][:, 0, 0, 1].tolist()
    assert [greens[place] for place in batch["first"]] == [60, 60, 20]  # green tells the episode
    prompts = zip(batch["tokens"], batch["token_mask"], strict=True)
    texts = [critic.tokenizer.decode(tokens[mask], skip_special_tokens=True) for tokens, mask in prompts]
    assert [texts[place] for place in batch["prompt"]] == ["Task: close it\nValue: "] * 2 + ["Task: open the drawer\nValue: "]


def test_defect_19_of_rollouts_only_successes_are_learned(files):
    options = {"datasets": ["rollouts", "demonstrations"], "train_on_rollouts": True}
    assert trainable(files, **options).lengths == [2 * (6 + 11), 30]
    with pytest.raises(UserError, match=r"critics\.progress\.datasets: 'rollouts' has no successful episode of 13 frames or more"):
        trainable(files, **options, min_episode_length=13)


def test_every_image_of_a_pair_is_augmented_by_itself(files):
    critic = trainable(files)
    samples = np.array([2, 3])
    batch = critic.load(samples, rngs(2))
    assert len(batch["images"]) == 4 and batch["first"].tolist() == [0, 1] and batch["second"].tolist() == [2, 3]
    draws = batch["augmentation"]
    assert len({tuple(row.tolist()) for row in draws}) == 4
    assert torch.equal(draws, critic.load(samples, rngs(2))["augmentation"])
    alone = critic.load(samples[1:], rngs(2)[1:])["augmentation"]
    assert torch.equal(alone, draws[[1, 3]])  # of its position in the data order, whatever else is in the micro batch
    assert "augmentation" not in trainable(files, do_augment=False).load(samples, rngs(2))


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_defect_45_a_micro_batch_never_waits_for_the_device(files, gradient_checkpointing):
    critic = trainable(files, gradient_checkpointing=gradient_checkpointing)
    critic.model.train()
    batch = critic.load(np.array([20, 3]), rngs(2))
    with NoHostSync():
        loss, _ = critic.loss(batch)
        loss.backward()
    assert critic.model.vision_projector[0].weight.grad.abs().sum() > 0


def test_the_loss_is_smoothed_cross_entropy(files):
    critic = trainable(files, **model(num_bins=4, label_smoothing=0.2, dropout=0.0), do_augment=False)
    batch = critic.load(np.arange(6), rngs(6))
    with torch.no_grad():
        loss, metrics = critic.loss(batch)
        log_p = critic.model(*model_inputs(batch, INPUTS)).log_softmax(1)
    target = torch.full((6, 4), 0.2 / 4).scatter(1, batch["bin"][:, None], 0.8 + 0.2 / 4)
    torch.testing.assert_close(loss, -(target * log_p).sum(1).mean())
    assert metrics["accuracy"][0] == (log_p.argmax(1) == batch["bin"]).sum() and metrics["accuracy"][1] == 6


def test_frozen_parts_are_not_trained(files):
    critic = trainable(files, **model(freeze_vision_encoder=True, freeze_language_model=True))
    kept = {id(p) for group in critic.parameter_groups() for p in group["params"]}
    names = {name.split(".")[0] for name, p in critic.model.named_parameters() if id(p) in kept}
    assert names == {"vision_projector", "text_projector", "head"}


def test_members_share_the_backbone_and_differ_in_head_and_order(files, tmp_path):
    first, again, second = (trainable(files, member).model.state_dict() for member in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    different = {name.split(".")[0] for name in first if not torch.equal(first[name], second[name])}
    assert different == {"head"}
    folders = [train(files, tmp_path, member) for member in (0, 1)]
    losses = [[json.loads(line)["train/loss"] for line in (folder / "metrics.jsonl").open()] for folder in folders]
    assert losses[0] != losses[1]
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    assert not torch.equal(weights[0]["vision_projector.0.weight"], weights[1]["vision_projector.0.weight"])  # other data


def test_the_data_order_is_of_the_member(files):
    config = files.with_progress().experiment.critics["progress"]
    seeds = {progress_stage._with_own_order(dataclasses.replace(config, seed=seed), member).seed for seed in (0, 1) for member in (0, 1)}
    assert len(seeds) == 4


def test_a_folder_says_how_it_was_made(files, tmp_path):
    options = {"datasets": ["demonstrations", "rollouts"], "train_on_rollouts": True, "length_scale_enabled": True}
    folder = train(files, tmp_path, 2, **options, length_scale_percentile=50, max_steps=2)
    scale = {"percentile": 50, "max_length": 8.5}  # of 8 and 9, 7 and 12
    card = load_progress_card(folder)
    assert dataclasses.asdict(card.length_scale) == scale and card.k == 2 and card.ensemble_size == 1 and card.cameras == [CAMERA]
    assert card.prompt_template == "Task: {prompt}\nValue: "
    lineage = Lineage.from_json((folder / "lineage.json").read_text(), path=folder)
    found = lineage.parameters
    assert (lineage.stage, lineage.tag, found["member"]) == ("train_member", "progress", 2)
    assert found["length_scale"] == scale and found["rollouts"] == ["rollouts"]
    assert found["eligible_episodes"] == {"demonstrations": 2, "rollouts": 2}
    assert {"episodes/heldout", "frames/rollouts"} < lineage.inputs.keys() and "ensemble_size" not in found
    names = {path.name for path in folder.iterdir()} - {"tensorboard", "tokenizer"}
    assert names == {"model.safetensors", "config.json", "lineage.json", "metrics.jsonl", "evaluation.json"}


def test_defect_17_the_scale_is_honoured_in_training_and_evaluation(files):
    scaled = trainable(files, length_scale_enabled=True, length_scale_percentile=100, k=4, **model(num_bins=8), do_augment=False)
    assert scaled.card.length_scale.max_length == 9
    assert scaled.held_out.parts[0].pairs.length_scale == scaled.card.length_scale
    assert scaled.training.parts[0].pairs.length_scale == scaled.card.length_scale
    assert trainable(files).card.length_scale is None


def test_held_out_pairs_are_spread_and_judged_by_outcome(files):
    critic = trainable(files, eval={"max_samples": 8})
    samples = critic.held_out.spread(8)
    assert samples.tolist() == [0, 1, 8, 9, 18, 19, 26, 27]  # of 14 anchors: 0, 4, 9, 13, in both directions
    judged = critic.held_out.judged(samples)
    assert judged.success.tolist() == [False] * 4 + [True] * 4 and judged.counted.tolist() == [False] * 4 + [True] * 4
    batch = critic.held_out.fixed_batch(samples)
    np.testing.assert_array_equal(batch["bin"], judged.bin)
    metrics = evaluate(critic)
    assert metrics["eval/accuracy"] == metrics["eval/accuracy/outcome=success"]  # rollouts are judged like they are learned
    names = {"loss", "accuracy", "accuracy_neighbor", "signed_progress_mean", "signed_progress_std", "progress_value_mean"}
    suffixes = ("", "/outcome=success", "/outcome=failure")
    grouped = {f"{title}/{name}{suffix}" for title in ("eval", "baseline_majority") for name in names for suffix in suffixes}
    assert metrics.keys() == grouped | {f"eval_train/{name}" for name in names} | {"gap/loss", "gap/accuracy"}
    assert metrics["baseline_majority/accuracy"] == 0.5 and metrics["baseline_majority/loss"] == pytest.approx(np.log(2))


def evaluate(critic: ProgressTraining) -> dict[str, float]:
    critic.model.eval()
    with torch.no_grad():
        return critic.evaluate()


def test_strides_of_held_out_pairs_never_change(files):
    critic = trainable(files, k=4, **model(num_bins=8))
    assert evaluate(critic) == evaluate(critic)


@pytest.mark.parametrize(("metric", "direction"), [("loss", "min"), ("accuracy", "max"), ("accuracy_neighbor", "max")])
def test_defect_36_the_exported_checkpoint_is_chosen_by_a_metric_that_exists(files, metric, direction):
    critic = trainable(files, eval={"selection_metric": metric})
    assert critic.selection == (f"eval/{metric}", direction) and critic.selection[0] in evaluate(critic)
    assert trainable(files, eval_datasets=[]).selection is None


def test_an_interrupted_run_ends_with_the_bytes_of_an_uninterrupted_one(files, tmp_path, monkeypatch):
    loss, calls = ProgressTraining.loss, itertools.count(1)

    def interrupted(self, batch):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return loss(self, batch)

    options = {"save_interval": 2, **model(num_bins=4, dropout=0.2)}
    train(files, tmp_path / "whole", 1, **options)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ProgressTraining, "loss", interrupted)
        train(files, tmp_path / "cut", 1, **options)
    assert list(tmp_path.glob("cut/state1/*/step_000000004"))
    train(files, tmp_path / "cut", 1, **options)
    for name in ("model.safetensors", "metrics.jsonl", "evaluation.json", "lineage.json"):
        assert (tmp_path / "cut/1" / name).read_bytes() == (tmp_path / "whole/1" / name).read_bytes(), name


def with_moving_square(first: int, table: pa.Table, position: int) -> pa.Table:
    """An episode's images: a bright square moves to the right over a background that differs between episodes."""
    rng = np.random.default_rng(first + position)
    pictures = np.tile(rng.integers(0, 120, (16, 16, 3), np.uint8), (len(table), 1, 1, 1))
    top = rng.integers(0, 12)
    for frame, picture in enumerate(pictures):
        picture[top : top + 5, frame : frame + 5] = 255
    return table.set_column(table.schema.get_field_index(CAMERA), CAMERA, png_array(pictures))


def test_a_small_member_learns_the_order_of_time(tmp_path):
    """On pictures of other episodes; the classes are equally frequent, so chance is a half."""
    for name, first, count in (("demonstrations", 0, 16), ("heldout", 16, 8)):
        write_v30(tmp_path / name, [12] * count, cameras=[CAMERA], size=(16, 16), columns=functools.partial(with_moving_square, first))
    datasets = {name: {"path": str(tmp_path / name), "type": "sft"} for name in ("demonstrations", "heldout")}
    datasets["heldout"]["split"] = "eval"
    files = Files(tmp_path, {"experiment": "test", "datasets": datasets, "critics": {}})
    options = {"k": 3, "max_steps": 80, "global_batch_size": 32, "eval_interval": 40, "do_augment": False, "optim": {"lr": 1e-2}}
    run = files.with_progress(**options)
    for name in datasets:
        index_stage(run.experiment, name, run.episodes / f"{name}.parquet")
        frames_stage(run.experiment, name, run.episodes / f"{name}.parquet", [CAMERA], 16, run.frame_cache(name))
    folder = train(files, tmp_path / "members", **options)
    metrics = json.loads((folder / "evaluation.json").read_text())
    assert metrics["eval/accuracy"] > 0.8 and metrics["baseline_majority/accuracy"] == 0.5
