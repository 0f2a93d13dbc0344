"""The critic as the loop sees it, on a small experiment on disk."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextModel
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from recap_steam import devices
from recap_steam.critics.folder import load_card
from recap_steam.critics.group_pass import known_cameras
from recap_steam.critics.value_pass import values_stage
from recap_steam.errors import UserError
from recap_steam.labels.inputs import load_critic as load_critic_for_labels
from recap_steam.lineage import Lineage
from recap_steam.tokenizer import load_tokenizer, train_tokenizer
from recap_steam.training import critic_stage
from recap_steam.training.critic import CriticTraining
from recap_steam.training.critic_stage import train_critic_stage
from recap_steam.training.held_out import share
from tests.datasets import image
from tests.unit.critics.experiment import CAMERA, CRITIC, WRIST, Files, make
from tests.unit.critics.small import GEMMA3, SIGLIP


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    return make(tmp_path_factory.mktemp("experiment"))


def trainable(files: Files, **changes):
    """What the stage hands to the loop."""
    files = files.with_critic(**changes) if changes else files
    experiment, config = files.experiment, files.experiment.critics["value"]
    names = [*config.datasets, *config.eval_datasets]
    sources = {name: critic_stage._read(experiment, config, name, files.episodes, files.frames) for name in names}
    return critic_stage._trainable(experiment, config, sources)


def rngs(n: int, step: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([0, step, position]) for position in range(n)]


def test_targets_are_the_normalised_returns_of_the_right_frames(files):
    critic = trainable(files)
    assert critic.normalizer.return_min == -21.0
    first_rollout_frame, last_rollout_frame = 17, 17 + 30
    batch = critic.load(np.array([0, first_rollout_frame, last_rollout_frame]), rngs(3))
    assert batch["target"].tolist() == pytest.approx([-7 / 21, -1.0, 0.0])
    blank = critic.load(np.array([first_rollout_frame + 1]), rngs(1))
    assert blank["images"][0, 0, 0].tolist() == [30, 20, 20]  # frame 1 of episode 0; see tests.datasets.image


def test_prompts_follow_the_episode(files):
    critic = trainable(files)
    batch = critic.load(np.array([0, 8]), rngs(2))  # the first frames of both demonstrations
    texts = [
        critic.tokenizer.decode(tokens[mask], skip_special_tokens=True)
        for tokens, mask in zip(batch["tokens"], batch["token_mask"], strict=True)
    ]
    assert texts == ["Task: open the drawer.", "Task: close it."]


def test_a_batch_holds_the_images_that_exist_in_order(files):
    demonstration, rollout = 3, 17 + 12 + 5  # frame 3 of episode 0, frame 5 of episode 1; the rollouts' robot has no wrist camera
    batch = trainable(files.with_two_cameras("rollouts")).load(np.array([rollout, demonstration]), rngs(2))
    assert batch["camera_mask"].tolist() == [[True, False], [True, True]] and batch["places"].tolist() == [0, 2, 3]
    for found, drawn in zip(batch["images"], ((1, 5, 0), (0, 3, 0), (0, 3, 1)), strict=True):
        np.testing.assert_array_equal(found, image(*drawn, size=(16, 16)))


def test_an_absent_camera_does_not_change_the_draws_of_others(files):
    samples = np.array([40, 3])
    some, every = (trainable(files.with_two_cameras(*lacking)).load(samples, rngs(2)) for lacking in (["rollouts"], []))
    expected = every["augmentation"][[0, 2, 3]]
    torch.testing.assert_close(some["augmentation"], expected, rtol=0, atol=0, equal_nan=True)


def test_robots_with_and_without_a_camera_train_and_are_valued(files, tmp_path):
    files = files.with_two_cameras("rollouts", max_steps=2)
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, tmp_path / "state", tmp_path / "value")
    card = load_card(tmp_path / "value")
    demonstrations, rollouts = {"front": CAMERA, "wrist": WRIST}, {"front": CAMERA, "wrist": None}
    assert card.cameras == ["front", "wrist"] and card.camera_maps == {"demonstrations": demonstrations, "rollouts": rollouts}
    lineage = Lineage.from_json((tmp_path / "value/lineage.json").read_text(), path=tmp_path)
    assert lineage.parameters["camera_maps"]["rollouts"] == rollouts
    for name in ("rollouts", "heldout"):  # heldout: of a robot that has both, and not in the card
        arguments = files.episodes / f"{name}.parquet", files.frame_cache(name), tmp_path / "pass", tmp_path / f"{name}.parquet"
        values_stage(files.experiment, name, "value", tmp_path / "value", *arguments)
    with pytest.raises(UserError, match=r"camera 'wrist' is observation\.images\.hand, but the critic learned it from no image"):
        known_cameras(files.with_two_cameras().experiment, "rollouts", card)


def test_defect_16_a_camera_that_is_not_mapped_is_an_error(files):
    run = files.with_two_cameras("rollouts")
    critic = {**run.raw["critics"]["value"], "cameras": ["front", "wrist", "ceiling"]}
    with pytest.raises(UserError, match="no camera 'ceiling', which dataset 'demonstrations' needs"):
        trainable(dataclasses.replace(run, raw={**run.raw, "critics": {"value": critic}}))


def test_values_from_zero_to_one(files):
    """Targets and saved scale are shifted; labels shift back (see the tests of labels)."""
    critic = trainable(files.with_critic(normalize_to_minus_one_zero=False, model={**CRITIC["model"], "v_min": 0, "v_max": 1}))
    assert critic.load(np.array([0, 17, 47]), rngs(3))["target"].tolist() == pytest.approx([14 / 21, 0.0, 1.0])
    assert critic.normalizer.offset == 1.0 and critic.support.atoms()[0] == 0


class NoHostSync(TorchDispatchMode):
    """Refuses operators that make the host wait for the device: numbers read from a tensor, shapes that depend on values, and constants
    that are copied to the device in the middle of a step."""

    REFUSED = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "repeat_interleave", "lift_fresh", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert not any(name.strip("_").startswith(refused.strip("_")) for refused in self.REFUSED), func
        if name.startswith(("index", "_index", "_unsafe_index")) and isinstance(args[1], list | tuple):
            assert not any(index is not None and index.dtype == torch.bool for index in args[1]), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_defect_45_a_micro_batch_never_waits_for_the_device(files, gradient_checkpointing):
    critic = trainable(files.with_two_cameras("rollouts", gradient_checkpointing=gradient_checkpointing))
    critic.model.train()
    batch = critic.load(np.array([40, 3]), rngs(2))
    with NoHostSync():
        loss, _ = critic.loss(batch)
        loss.backward()
    assert critic.model.projection.weight.grad.abs().sum() > 0
    waits = (lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: x.new_tensor([1.0]))
    for wait in waits:  # the check itself
        with pytest.raises(AssertionError), NoHostSync():
            wait(torch.ones(2))


def test_mixture_shares_are_by_frames_or_by_weight(files):
    assert trainable(files).weights == [17, 31]
    assert trainable(files, balance_dataset_weights=False).weights == [1.0, 1.0]


def test_groups_have_their_own_rates_and_hold_each_parameter_once(files):
    critic = trainable(files)
    others, value = critic.parameter_groups()
    assert "lr" not in others and value["lr"] == CRITIC["optim"]["value_lr"]
    assert len(others["params"]) + len(value["params"]) == len(list(critic.model.parameters()))
    frozen = trainable(files, model={**CRITIC["model"], "freeze_vlm": True, "freeze_vision_encoder": True})
    kept = {id(p) for group in frozen.parameter_groups() for p in group["params"]}
    names = {name.split(".")[0] for name, p in frozen.model.named_parameters() if id(p) in kept}
    assert names == {"projection", "expert", "head"}


def test_augmentation_is_for_training_only(files):
    critic = trainable(files)
    samples = np.arange(4)
    assert torch.equal(critic.load(samples, rngs(4))["augmentation"], critic.load(samples, rngs(4))["augmentation"])
    assert "augmentation" not in trainable(files, do_augment=False).load(samples, rngs(4))


def test_training_lowers_the_loss_and_writes_the_folder(files, tmp_path):
    files = files.with_critic(max_steps=60, eval_interval=30)
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, tmp_path / "state", tmp_path / "value")
    rows = [json.loads(line) for line in (tmp_path / "value/metrics.jsonl").read_text().splitlines()]
    losses = [row["train/loss"] for row in rows]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert {"train/mae", "train/grad_norm", "train/lr"} < rows[0].keys()
    names = {path.name for path in (tmp_path / "value").iterdir()} - {"tensorboard", "tokenizer"}
    assert names == {"model.safetensors", "config.json", "normalizer.json", "lineage.json", "metrics.jsonl", "evaluation.json"}
    best = min((row for row in rows if "eval/mae" in row), key=lambda row: row["eval/mae"])
    assert json.loads((tmp_path / "value/evaluation.json").read_text())["eval/mae"] == best["eval/mae"]


def test_the_label_stages_accept_the_folder(files, tmp_path):
    files = files.with_critic(max_steps=1)
    files = dataclasses.replace(files, raw={**files.raw, "advantages": {"top": {"critic": "value", "datasets": ["rollouts"]}}})
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, tmp_path / "state", tmp_path / "value")
    critic = load_critic_for_labels(files.experiment, "top", tmp_path / "value")
    assert critic.gamma == 1.0 and critic.normalizer.return_min == -21.0


def test_defect_30_equal_seeds_give_equal_bytes(files, tmp_path):
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        run = files.with_critic(max_steps=3, seed=seed)
        train_critic_stage(run.experiment, "value", run.episodes, run.frames, tmp_path / "state" / name, tmp_path / name)
    for file in ("model.safetensors", "metrics.jsonl", "evaluation.json", "config.json", "tokenizer/tokenizer.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    assert (tmp_path / "first/model.safetensors").read_bytes() != (tmp_path / "other/model.safetensors").read_bytes()


def test_an_interrupted_run_ends_with_the_bytes_of_an_uninterrupted_one(files, tmp_path, monkeypatch):
    files = files.with_critic(save_interval=2, model={**CRITIC["model"], "value_dropout": 0.2})

    def run(name: str) -> None:
        train_critic_stage(files.experiment, "value", files.episodes, files.frames, tmp_path / "state" / name, tmp_path / name)

    loss, calls = CriticTraining.loss, itertools.count(1)

    def interrupted(self, batch):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return loss(self, batch)

    run("whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CriticTraining, "loss", interrupted)
        run("cut")
    assert list(tmp_path.glob("state/cut/*/step_000000004"))
    run("cut")
    for file in ("model.safetensors", "metrics.jsonl", "evaluation.json", "lineage.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


def test_pretrained_parts_come_from_local_folders(files, tmp_path):
    """The path that full-size weights take, with small ones that transformers itself saved."""
    tokenizer = train_tokenizer(["Task: open the drawer."], 300)
    devices.seed(9)
    SiglipVisionModel(SiglipVisionConfig(**SIGLIP, image_size=16)).save_pretrained(tmp_path / "siglip")
    Gemma3TextModel(Gemma3TextConfig(**GEMMA3)).save_pretrained(tmp_path / "gemma")
    tokenizer.save_pretrained(tmp_path / "gemma")
    model = {
        "image_size": 16,
        "siglip_path": str(tmp_path / "siglip"),
        "gemma3_path": str(tmp_path / "gemma"),
        "critic_expert_variant": "dummy",
    }
    run = files.with_critic(max_steps=1, model=model, optim={"lr": 1e-9})
    train_critic_stage(run.experiment, "value", run.episodes, run.frames, tmp_path / "state", tmp_path / "value")
    weights, pretrained = load_file(tmp_path / "value/model.safetensors"), load_file(tmp_path / "gemma/model.safetensors")
    torch.testing.assert_close(weights["text.embed.weight"], pretrained["embed_tokens.weight"], atol=1e-6, rtol=0)
    lineage = Lineage.from_json((tmp_path / "value/lineage.json").read_text(), path=tmp_path)
    pretrained = {f"{key}/{file}" for key in ("siglip_path", "gemma3_path") for file in ("config.json", "model.safetensors")}
    assert pretrained | {"tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"} | {"frames/rollouts"} < lineage.inputs.keys()
    assert load_tokenizer(tmp_path / "value/tokenizer").get_vocab() == tokenizer.get_vocab()


def test_a_tokenizer_that_is_too_large_is_refused(files, tmp_path):
    train_tokenizer([f"word{number} other{number}" for number in range(400)], 600).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model\.tokenizer_path: the tokenizer has 600 tokens, but the model embeds 300"):
        trainable(files, model={**CRITIC["model"], "tokenizer_path": str(tmp_path)})


def test_a_tokenizer_may_end_with_an_image_token_that_the_text_model_lacks(files, tmp_path):
    """As the published ones do: Gemma3-270M embeds 262,144 tokens, its tokenizer has one more, of no prompt."""
    tokenizer = train_tokenizer([f"word{number} other{number}" for number in range(400)], 300)
    tokenizer.add_tokens(["<image_soft_token>"], special_tokens=True)
    assert len(tokenizer) == 301
    tokenizer.save_pretrained(tmp_path)
    critic = trainable(files, model={**CRITIC["model"], "tokenizer_path": str(tmp_path)})
    assert critic.load(np.arange(48), rngs(48))["tokens"].max() < 300


def test_without_held_out_data_the_last_checkpoint_counts(files):
    critic = trainable(files, eval_datasets=[])
    assert critic.selection is None and critic.baselines == {}
    with torch.no_grad():
        critic.model.eval()
        assert {name.split("/")[0] for name in critic.evaluate()} == {"eval_train"}


def test_defect_27_every_process_evaluates_equally_often_and_copies_do_not_count():
    """Also with fewer frames than processes."""
    for count, world in ((1, 4), (3, 4), (4, 4), (9, 2)):
        shares = [share(np.arange(count) + 5, rank, world) for rank in range(world)]
        assert len({len(samples) for samples in shares}) == 1 and len(shares[0]) > 0
        np.testing.assert_array_equal(np.concatenate(shares)[:count], np.arange(count) + 5)


def test_held_out_frames_are_spread_not_a_prefix(files):
    critic = trainable(files, eval={"max_samples": 4})
    samples, frames = critic._judged()
    assert samples.tolist() == [0, 5, 10, 15] and frames.success.tolist() == [False, False, True, True]
    assert frames.time.tolist() == pytest.approx([0, 0.5, 0, 5 / 6]) and frames.task.tolist() == ["Open the drawer."] * 2 + ["close_it"] * 2
    np.testing.assert_array_equal(frames.target, critic.held_out.targets[samples])


@pytest.mark.parametrize(("metric", "direction"), [("loss", "min"), ("mae", "min"), ("cat_acc_best", "max"), ("spearman", "max")])
def test_defect_36_the_exported_checkpoint_is_chosen_by_a_metric_that_exists(files, metric, direction):
    critic = trainable(files, eval={"selection_metric": metric})
    assert critic.selection == (f"eval/{metric}", direction)
    with torch.no_grad():
        critic.model.eval()
        assert critic.selection[0] in critic.evaluate()


def test_execution_keys_do_not_change_the_lineage(files):
    def parameters(**changes) -> dict:
        run = files.with_critic(**changes)
        config = run.experiment.critics["value"]
        sources = {name: critic_stage._read(run.experiment, config, name, run.episodes, run.frames) for name in config.datasets}
        return critic_stage._lineage(run.experiment, "value", sources).parameters

    assert parameters() == parameters(micro_batch_size=2, save_interval=7, gradient_checkpointing=True, compile_model=True)
    assert parameters() != parameters(eval={"selection_metric": "loss"})
