import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from safetensors.torch import load_file, save_file

from recap_steam.errors import UserError
from recap_steam.policy import pi05
from recap_steam.policy.flow import image_inputs
from recap_steam.policy.folder import load_policy, load_serving, save_policy
from recap_steam.policy.processors import PromptTable, encode, load_processors, make_processors
from recap_steam.policy.prompts import NEGATIVE, PLAIN, POSITIVE, with_indicator
from recap_steam.policy.runner import PolicyRunner
from recap_steam.policy.samples import Source
from tests.datasets import index, write_v30
from tests.policies import ACTION_DIM, CAMERA, MODEL, SMALL, STATE_DIM, make_serving, perturb


@pytest.fixture
def folder(policy, processors, tokenizer, tmp_path):
    save_policy(tmp_path, policy, policy.model.state_dict(), processors, tokenizer, make_serving([CAMERA]))
    return tmp_path


@pytest.fixture
def noise():
    return np.random.default_rng(3).standard_normal((2, MODEL.chunk_size, 32), np.float32)


@pytest.mark.parametrize(("scale", "suffix"), [(None, ""), (0.0, ""), (1.0, "\nAdvantage: positive")])
def test_stock_lerobot_loads_the_folder_and_acts_identically(folder, observations, noise, scale, suffix):
    images, states, tasks = observations
    with pi05.sizes(SMALL):
        stock = PI05Policy.from_pretrained(folder)
    overrides = {"tokenizer_processor": {"tokenizer_name": str(folder / "tokenizer")}}
    before, after = make_pre_post_processors(stock.config, pretrained_path=str(folder), preprocessor_overrides=overrides)
    pixels = torch.from_numpy(images[CAMERA]).permute(0, 3, 1, 2).float() / 255
    batch = before({CAMERA: pixels, "observation.state": torch.from_numpy(states), "task": [task + suffix for task in tasks]})
    expected = after(stock.predict_action_chunk(batch, noise=torch.from_numpy(noise)))[:, : MODEL.n_action_steps]

    actions = PolicyRunner.load(folder).act(images, states, tasks, scale, noise)
    assert actions.shape == (2, MODEL.n_action_steps, ACTION_DIM) and actions.dtype == np.float32
    np.testing.assert_array_equal(actions, expected.numpy())


def test_defect_33_guidance_reads_the_prompts_that_training_made(folder, processors, tmp_path):
    """There, guidance makes prompts without the state, which training had put there."""
    _, episodes = index(write_v30(tmp_path / "data", [3], success=[True]))
    states = np.random.default_rng(1).normal(2, 3, (3, STATE_DIM)).astype(np.float32)
    source = Source("data", episodes, np.arange(3), states, np.zeros((3, ACTION_DIM), np.float32), None)
    table, runner = PromptTable.of(processors[0], [source], [PLAIN, POSITIVE]), PolicyRunner.load(folder)
    for kind in (PLAIN, POSITIVE):
        trained = table.take(np.full(3, kind), np.arange(3))
        served = [tensor.cpu().numpy() for tensor in runner._prompt(states, source.tasks(), kind)]
        assert all(np.array_equal(a[m], b[n]) for a, m, b, n in zip(*trained, *served, strict=True))
        assert len(np.unique(trained[0], axis=0)) == 3  # the task is the same: the states differ


def test_the_documented_way_to_serve_with_stock_lerobot(folder, observations):
    document = (Path(__file__).parents[3] / "docs/serving.md").read_text()
    (code,) = re.findall(r"<!-- tested by tests/unit/policy/test_folder.py -->\n```python\n(.*?)```", document, re.DOTALL)
    images, states, _ = observations
    pixels = torch.from_numpy(images[CAMERA]).permute(0, 3, 1, 2).float() / 255
    names = {"folder": str(folder), "images": {CAMERA: pixels}, "state": torch.from_numpy(states), "torch": torch}
    exec(code.replace("# images:", "torch.manual_seed(0)  # images:"), names)  # after loading, which draws random weights first
    torch.manual_seed(0)
    noise = names["policy"].model.sample_noise((2, MODEL.chunk_size, 32), "cpu").numpy()
    expected = PolicyRunner.load(folder).act(images, states, ["open the drawer"] * 2, 1.0, noise)
    np.testing.assert_array_equal(names["actions"].numpy(), expected)


def test_indicator_changes_the_actions_and_guidance_goes_on_in_its_direction(folder, observations, noise):
    runner = PolicyRunner.load(folder)
    plain, positive, guided = (runner.act(*observations, scale, noise) for scale in (0.0, 1.0, 2.0))
    assert np.abs(positive - plain).max() > 1e-3
    assert np.vdot(guided - positive, positive - plain) > 0


def test_actions_do_not_depend_on_the_neighbours_in_the_batch(folder, observations, noise):
    images, states, tasks = observations
    runner = PolicyRunner.load(folder)
    both = runner.act(images, states, tasks, 1.5, noise)
    alone = runner.act({CAMERA: images[CAMERA][1:]}, states[1:], tasks[1:], 1.5, noise[1:])
    np.testing.assert_allclose(alone[0], both[1], atol=1e-5)


def test_serving_file_tells_how_to_prompt(folder):
    document = json.loads((folder / "serving.json").read_text())
    assert document["task_suffixes"]["positive"] == with_indicator("", POSITIVE) == "\nAdvantage: positive"
    assert document["default_guidance_scale"] == 1.0
    assert document["prompt_template"] == "Task: {task}, State: {state};\nAction: "
    assert load_serving(folder).small == SMALL


def test_another_schema_version_is_one_line(folder):
    document = json.loads((folder / "serving.json").read_text())
    assert document["schema_version"] == 1
    (folder / "serving.json").write_text(json.dumps({**document, "schema_version": 2}))
    with pytest.raises(UserError, match=r"serving\.json: schema version 2, expected 1"):
        load_policy(folder)


def test_folder_names_no_path_of_this_machine(folder):
    for path in folder.rglob("*.json"):
        assert str(folder) not in path.read_text()


def test_embedding_survives_lerobots_loader_in_any_order_of_tensors(folder):
    """It copies the language-model head, which never trains, over the embedding if the head comes last."""
    weights = load_file(folder / "model.safetensors")
    assert torch.equal(weights[f"model.{pi05.LM_HEAD}"], weights[f"model.{pi05.EMBEDDING}"])


@pytest.mark.parametrize(
    "name", ["serving.json", "config.json", "policy_preprocessor.json", "tokenizer/tokenizer.json", "model.safetensors"]
)
def test_incomplete_folder_is_one_line(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        load_policy(folder)


def test_foreign_weights_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.action_out_proj.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"lacks tensor action_out_proj\.bias"):
        load_policy(folder)


def test_guidance_leads_towards_the_indicator_that_is_asked_for(folder, observations, noise):
    runner = PolicyRunner.load(folder)
    positive, negative = (runner.act(*observations, 1.5, noise, indicator) for indicator in (POSITIVE, NEGATIVE))
    assert np.abs(positive - negative).max() > 1e-3
    serving = json.loads((folder / "serving.json").read_text())
    del serving["task_suffixes"]["negative"]
    (folder / "serving.json").write_text(json.dumps(serving))
    with pytest.raises(UserError, match="indicator negative: this policy never read it in training"):
        PolicyRunner.load(folder).act(*observations, 1.5, noise, NEGATIVE)


def test_runner_refuses_guidance_without_indicator_and_missing_cameras(folder, observations, noise):
    serving = json.loads((folder / "serving.json").read_text())
    (folder / "serving.json").write_text(json.dumps({**serving, "conditional": False}))
    runner = PolicyRunner.load(folder)
    images, states, tasks = observations
    with pytest.raises(UserError, match="without the advantage indicator"):
        runner.act(images, states, tasks, 1.0, noise)
    for given in ({"observation.images.other": images[CAMERA]}, {CAMERA: None}):
        with pytest.raises(UserError, match=f"camera {CAMERA}: the policy needs it"):
            runner.act(given, states, tasks, None, noise)


def test_a_robot_without_one_of_the_cameras_is_served_as_it_was_trained(tmp_path, statistics, tokenizer, observations, noise):
    """None is an empty camera, as in training; its place among the image inputs does not matter."""
    images, states, tasks = observations
    cameras = ["observation.images.wrist", CAMERA]
    config = pi05.make_config(MODEL, cameras, STATE_DIM, ACTION_DIM)
    torch.manual_seed(0)
    policy = perturb(pi05.build(config, SMALL, initialise=True).eval())
    save_policy(
        tmp_path, policy, policy.model.state_dict(), make_processors(config, statistics, tokenizer), tokenizer, make_serving(cameras)
    )
    actions = PolicyRunner.load(tmp_path).act({cameras[0]: None, CAMERA: images[CAMERA]}, states, tasks, 1.0, noise)

    before, after = load_processors(config, tmp_path)
    pixels = {"images": torch.from_numpy(np.stack([np.zeros_like(images[CAMERA]), images[CAMERA]], 1))}
    inputs = image_inputs(policy, pixels | {"camera_mask": torch.tensor([[False, True]] * 2)})
    prompt = encode(before, states, [with_indicator(task, POSITIVE) for task in tasks])
    expected = after(policy.model.sample_actions(*inputs, *prompt, noise=torch.from_numpy(noise))[:, : MODEL.n_action_steps, :ACTION_DIM])
    np.testing.assert_allclose(actions, expected.numpy(), atol=1e-5)
