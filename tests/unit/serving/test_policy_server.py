"""openpi's own client drives a policy of ours, and gets what the policy does in process."""

import json
import re
import shutil
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import websockets
from openpi_client import msgpack_numpy
from openpi_client.action_chunk_broker import ActionChunkBroker
from safetensors.torch import load_file, save_file
from websockets.sync.client import connect

from recap_steam.errors import UserError, run_main
from recap_steam.lineage import digest_file
from recap_steam.policy.prompts import NEGATIVE, POSITIVE
from recap_steam.policy.runner import PolicyRunner
from recap_steam.serving.policy import PolicyService, main
from tests.policies import ACTION_DIM, CAMERA, MODEL, STATE_DIM
from tests.serving import connected, robot_observation, running


@pytest.fixture
def client(policy_port):
    with connected(policy_port) as client:
        yield client


@pytest.fixture(scope="module")
def runner(policy_dir):
    return PolicyRunner.load(policy_dir)


@pytest.fixture
def noise(runner):
    return np.random.default_rng(5).standard_normal(runner.noise_shape, np.float32)


def in_process(runner, observation, scale, noise, indicator=POSITIVE):
    state = observation["state"].astype(np.float32)
    return runner.act({CAMERA: observation[CAMERA][None]}, state[None], [observation["prompt"]], scale, noise[None], indicator)[0]


def test_metadata_says_all_that_a_client_needs(client, policy_dir):
    metadata = client.get_server_metadata()
    assert metadata["kind"] == "policy" and metadata["cameras"] == [CAMERA]
    assert (metadata["state_dim"], metadata["action_dim"], metadata["n_action_steps"]) == (STATE_DIM, ACTION_DIM, MODEL.n_action_steps)
    assert metadata["indicator"] == "positive" and metadata["guidance_scale"] == 1.5 and metadata["request_guidance"] is True
    assert metadata["task_suffixes"]["positive"] == "\nAdvantage: positive" and "{task}" in metadata["prompt_template"]
    assert metadata["weights"] == digest_file(policy_dir / "model.safetensors")
    assert str(policy_dir) not in str(metadata)


def test_actions_are_those_of_the_policy_in_process_bit_for_bit(client, runner, noise):
    for seed in range(3):
        observation = robot_observation(seed)
        answer = client.infer({**observation, "noise": noise})
        assert answer["actions"].dtype == np.float32
        np.testing.assert_array_equal(answer["actions"], in_process(runner, observation, 1.5, noise))


def test_timing_is_openpis(client):
    first, second = (client.infer(robot_observation())["server_timing"] for _ in range(2))
    assert first["infer_ms"] > 0 and first["wait_ms"] >= 0 and "prev_total_ms" not in first
    assert second["prev_total_ms"] >= first["infer_ms"]


def test_a_chunk_is_played_by_openpis_broker(client):
    broker = ActionChunkBroker(client, MODEL.n_action_steps)
    actions = [broker.infer(robot_observation())["actions"] for _ in range(MODEL.n_action_steps + 1)]
    assert [action.shape for action in actions] == [(ACTION_DIM,)] * 4
    assert len({action.tobytes() for action in actions}) == 4


def test_noise_is_drawn_anew_by_the_servers_seed(policy_dir):
    chunks = {}
    for seed in (0, 0, 1):
        with running(PolicyService(policy_dir, seed=seed)) as port, connected(port) as client:
            chunk = [client.infer(robot_observation())["actions"] for _ in range(2)]
        assert not np.array_equal(*chunk)
        assert np.array_equal(chunks.setdefault(seed, chunk), chunk)
    assert not np.array_equal(chunks[0], chunks[1])


def test_a_request_chooses_its_guidance_where_that_is_allowed(client, runner, noise):
    observation = robot_observation()
    cases = {
        (("guidance_scale", 3.0),): (3.0, POSITIVE),
        (("guidance_scale", 0),): (0.0, POSITIVE),
        (("indicator", "plain"),): (None, POSITIVE),
        (("indicator", "negative"),): (1.5, NEGATIVE),
        (("guidance_scale", np.float32(2.0)), ("indicator", "negative")): (2.0, NEGATIVE),
        (): (1.5, POSITIVE),
    }
    for asked, (scale, indicator) in cases.items():
        actions = client.infer({**observation, "noise": noise, **dict(asked)})["actions"]
        np.testing.assert_array_equal(actions, in_process(runner, observation, scale, noise, indicator))


@pytest.mark.parametrize(("options", "scale"), [({}, 1.0), ({"guidance_scale": 2.5}, 2.5), ({"indicator": "plain"}, None)])
def test_guidance_at_the_start_holds_for_all_requests(policy_dir, runner, noise, options, scale):
    with running(PolicyService(policy_dir, **options)) as port, connected(port) as client:
        assert client.get_server_metadata()["guidance_scale"] == scale
        actions = client.infer({**robot_observation(), "noise": noise})["actions"]
        np.testing.assert_array_equal(actions, in_process(runner, robot_observation(), scale, noise))
        for key, value in (("guidance_scale", 1.0), ("indicator", "plain")):
            with pytest.raises(RuntimeError, match=f"policy server: key '{key}': requests may not choose it here"):
                client.infer({**robot_observation(), key: value})


def test_a_policy_without_indicator_is_served_plain_and_not_guided(policy_dir, tmp_path, noise):
    folder = shutil.copytree(policy_dir, tmp_path / "policy")
    serving = json.loads((folder / "serving.json").read_text())
    changes = {"conditional": False, "default_guidance_scale": None, "task_suffixes": {"plain": ""}}
    (folder / "serving.json").write_text(json.dumps({**serving, **changes}))
    with running(PolicyService(folder)) as port, connected(port) as client:
        assert client.get_server_metadata()["indicator"] == "plain"
        actions = client.infer({**robot_observation(), "noise": noise})["actions"]
    np.testing.assert_array_equal(actions, in_process(PolicyRunner.load(folder), robot_observation(), None, noise))
    with pytest.raises(UserError, match="guidance_scale: the plain prompt is not guided"):
        PolicyService(folder, guidance_scale=2.0)
    service = PolicyService(folder, guidance_scale=2.0, indicator="positive")
    with pytest.raises(UserError, match="trained without the advantage indicator"):
        service.infer(service.example())  # what the server asks itself before it listens


def test_actions_that_are_not_finite_are_never_sent(policy_dir, tmp_path):
    folder = shutil.copytree(policy_dir, tmp_path / "policy")
    weights = load_file(folder / "model.safetensors")
    weights["model.action_out_proj.bias"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    service = PolicyService(folder)
    with pytest.raises(UserError, match="the policy's actions are not finite"):
        service.infer(service.example())


def test_a_folder_without_a_policy_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["policy", "--policy-dir", str(tmp_path / "nowhere")])
    with pytest.raises(
        SystemExit, match=r"^error: .*nowhere/serving\.json: not readable as a policy's serving file .*; give the folder of a policy"
    ):
        run_main(main)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_told_so(port, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["policy", "--policy-dir", "policy", f"--port={port}"])
    with pytest.raises(SystemExit):
        main()
    assert f"argument --port: '{port}' is no port; give 0 to 65535" in capsys.readouterr().err


def test_a_seed_that_is_none_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["policy", "--policy-dir", "policy", "--seed=-1"])
    with pytest.raises(SystemExit):
        main()
    assert "argument --seed: '-1' is no seed; give a whole number from 0 on" in capsys.readouterr().err


def test_the_documented_control_loop_drives_a_robot(policy_port):
    document = (Path(__file__).parents[3] / "docs/serving.md").read_text()
    (code,) = re.findall(r"<!-- tested by tests/unit/serving/test_policy_server.py -->\n```python\n(.*?)```", document, re.DOTALL)

    class Robot:
        """Two chunks long."""

        done, actions = False, []

        def camera(self, name):
            return IMAGE

        def joints(self):
            return np.zeros(STATE_DIM)

        def move(self, action):
            self.actions.append(action)
            self.done = len(self.actions) == 2 * MODEL.n_action_steps

    code = code.replace("port=8000", f"port={policy_port}").replace("observation.images.wrist", CAMERA)
    names = {"robot": Robot()}
    exec(code, names)
    names["client"]._ws.close()
    assert np.stack(names["robot"].actions).shape == (2 * MODEL.n_action_steps, ACTION_DIM)


def test_channels_may_come_first_and_images_have_any_size(client, noise):
    observation = {**robot_observation(), "noise": noise}
    expected = client.infer(observation)["actions"]
    channels_first = np.moveaxis(observation[CAMERA], -1, 0)
    np.testing.assert_array_equal(client.infer({**observation, CAMERA: channels_first})["actions"], expected)
    larger = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    assert not np.array_equal(client.infer({**observation, CAMERA: larger})["actions"], expected)


IMAGE = robot_observation()[CAMERA]
WRONG = {
    "no prompt": ({"prompt": ...}, "no key 'prompt'; an observation has .*prompt.*this is a policy server"),
    "an unknown key": ({"observation/image": IMAGE}, "unknown key 'observation/image'; an observation has observation.images.front, state"),
    "a frame for a value server": ({"state": ..., "frame": 3}, "unknown key 'frame'.*come from a value server"),
    "no image": ({CAMERA: None}, "no camera has an image"),
    "a float image": ({CAMERA: IMAGE / 255}, "float64 of shape .*send an image as uint8"),
    "a batch of images": ({CAMERA: IMAGE[None]}, r"uint8 of shape \(1, 32, 32, 3\)"),
    "a grey image": ({CAMERA: IMAGE[..., :1]}, r"shape \(32, 32, 1\); send height x width x 3"),
    "an empty image": ({CAMERA: IMAGE[:0]}, r"shape \(0, 32, 3\)"),
    "an endless image": ({CAMERA: np.zeros((1, 5000, 3), np.uint8)}, "sides of 1 to 4096 pixels"),
    "an image as a list": ({CAMERA: [1, 2, 3]}, "list; send an image"),
    "a short state": ({"state": np.zeros(2)}, r"float64 of shape \(2,\); send an array of numbers of shape \(3,\)"),
    "a state as a list": ({"state": [0.0, 0.0, 0.0]}, "list; send an array"),
    "NaN": ({"state": np.array([0, np.nan, 0])}, "key 'state': NaN or infinite"),
    "beyond float32": ({"state": np.array([0, 1e300, 0])}, "key 'state': NaN or infinite"),
    "NaN noise": ({"noise": np.full((4, 32), np.nan, np.float32)}, "key 'noise': NaN"),
    "another noise": ({"noise": np.zeros((1, 32), np.float32)}, "key 'noise': float32 of shape"),
    "an empty prompt": ({"prompt": " "}, "key 'prompt': ' '; send a text"),
    "a prompt with an indicator": (
        {"prompt": "open the drawer\nAdvantage: positive"},
        "which this server appends itself; send the task alone",
    ),
    "a prompt that is no text": ({"prompt": b"open"}, "key 'prompt': bytes"),
    "a long prompt": ({"prompt": "x" * 2000}, "key 'prompt': 'x+...; send a text of 1 to 1000"),
    "more tokens than the policy reads": ({"prompt": "open the drawer " * 30}, "max_token_len is 64, but a prompt has"),
    "guidance NaN": ({"guidance_scale": float("nan")}, "key 'guidance_scale': nan; send a number"),
    "guidance as text": ({"guidance_scale": "2"}, "key 'guidance_scale': '2'"),
    "guidance as truth": ({"guidance_scale": True}, "key 'guidance_scale': True"),
    "another indicator": ({"indicator": "best"}, "key 'indicator': 'best'; send one of plain, positive, negative"),
    "plain and guided": ({"indicator": "plain", "guidance_scale": 2.0}, "the plain prompt is not guided"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_observation_is_one_line_and_the_next_one_is_answered(client, changes, message):
    observation = {key: value for key, value in {**robot_observation(), **changes}.items() if value is not ...}
    with pytest.raises(RuntimeError, match=message) as refused:
        client.infer(observation)
    (title, line) = str(refused.value).split("\n")
    assert title == "Error in inference server:" and line.startswith("policy server: ")
    assert client.infer(robot_observation())["actions"].shape == (MODEL.n_action_steps, ACTION_DIM)


def test_the_health_endpoint_is_openpis(policy_port):
    with urllib.request.urlopen(f"http://127.0.0.1:{policy_port}/healthz") as answer:
        assert answer.status == 200 and answer.read() == b"OK\n"


def test_pages_in_a_browser_are_refused(policy_port):
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{policy_port}", additional_headers={"Origin": "http://example.org"})
    assert refused.value.response.status_code == 403


def test_the_first_frame_is_metadata_and_an_error_is_a_text_frame(policy_port):
    """What the client relies on, without the client."""
    with connect(f"ws://127.0.0.1:{policy_port}") as connection:
        assert isinstance(connection.recv(), bytes)
        connection.send(msgpack_numpy.packb({}))
        assert isinstance(connection.recv(), str)
