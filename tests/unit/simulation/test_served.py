"""Policies behind their server act as they do in process."""

import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.policy.runner import PolicyRunner
from recap_steam.rates import CPU
from recap_steam.serving.policy import PolicyService
from recap_steam.simulation.controllers import LearnedPolicy
from recap_steam.simulation.rollout import roll_out
from recap_steam.simulation.served import policy_server, served_policy
from tests.policies import save_small_policy
from tests.serving import running

CAMERA = "observation.images.corner2"


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory):
    return save_small_policy(tmp_path_factory.mktemp("policy"), (CAMERA,), 4, 4)


@pytest.fixture(scope="module")
def port(policy_dir):
    with running(PolicyService(policy_dir, guidance_scale=2.0)) as port:
        yield port


def test_actions_are_those_of_the_policy_in_process_bit_for_bit(environment_config, policy_dir, port):
    config = environment_config(max_episode_steps=7)
    with served_policy(port, config) as served:
        controllers = served, LearnedPolicy(PolicyRunner.load(policy_dir), config, 2.0, CPU)
        served, here = ([*roll_out(config, controller, seed=3, num_episodes=2, batch_size=1)] for controller in controllers)
    for first, second in zip(served, here, strict=True):
        assert np.array_equal(first.actions, second.actions) and np.array_equal(first.states, second.states)
    assert not np.array_equal(served[0].actions, served[1].actions)


def test_a_policy_that_does_not_fit_is_one_line(environment_config, port):
    message = r"the served policy was trained with cameras \['observation\.images\.corner2'\], environment drawer-open-v3 has .*corner3"
    with pytest.raises(UserError, match=message), served_policy(port, environment_config(camera_name="corner3")):
        pass


class Judge:
    """A server that is no policy's."""

    kind, metadata = "value", {}

    def session(self):
        return self

    def example(self):
        return {}

    def infer(self, observation):
        return {}


def test_another_server_is_not_asked_for_actions(environment_config):
    with running(Judge()) as port, pytest.raises(UserError, match="a value server"), served_policy(port, environment_config()):
        pass


def test_what_the_server_refuses_is_said(environment_config, port):
    with served_policy(port, environment_config(prompt=" ", max_episode_steps=7)) as served, pytest.raises(UserError) as caught:
        list(roll_out(environment_config(), served, seed=3, num_episodes=1))
    assert str(caught.value).startswith("policy server: key 'prompt'")


def test_a_server_that_does_not_start_is_said(tmp_path, capfd):
    with pytest.raises(UserError, match="its server did not start"), policy_server(tmp_path / "none", None):
        pass
    assert str(tmp_path / "none") in capfd.readouterr().err


SERVE = """
import sys, time
from pathlib import Path
from recap_steam.simulation.served import policy_server
with policy_server(Path(sys.argv[1]), None) as port:
    print(port, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_ends_ends_its_server(policy_dir, how):
    with subprocess.Popen([sys.executable, "-c", SERVE, str(policy_dir)], stdout=subprocess.PIPE, text=True) as job:
        port = int(job.stdout.readline())
        job.send_signal(how)
        assert job.wait(60) == -how
    until = time.monotonic() + 60
    while _listens(port):
        assert time.monotonic() < until, "the server is still there"
        time.sleep(0.1)


def _listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
