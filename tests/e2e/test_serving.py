"""The two servers as users start them: one command, openpi's client, a signal; they reach no other machine."""

import contextlib
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from tests.e2e.launching import environment
from tests.network import watched
from tests.policies import CAMERA, save_small_policy
from tests.serving import connected, robot_observation
from tests.unit.critics.small import save_small_critics


@contextlib.contextmanager
def started(log: Path, kind: str, *arguments: object) -> Iterator[subprocess.Popen]:
    """A server whose attempts to reach another machine are written to ``log``."""
    words = [sys.executable, "-m", f"recap_steam.serving.{kind}", *arguments]
    process = subprocess.Popen(
        [str(word) for word in words], env=watched(environment(), log), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def port_of(process: subprocess.Popen, kind: str) -> int:
    """Wait until it serves."""
    found = re.fullmatch(rf"{kind} server: ws://127\.0\.0\.1:(\d+), health http://127\.0\.0\.1:\1/healthz\n", process.stdout.readline())
    assert found, process.stderr.read()
    return int(found[1])


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Both servers; they load at the same time."""
    folder = tmp_path_factory.mktemp("served")
    log = folder / "network"
    policy_dir = save_small_policy(folder / "policy")
    critic_dir, ensemble_dir = save_small_critics(folder, [CAMERA], [CAMERA], k=2)
    with (
        started(log, "policy", "--policy-dir", policy_dir, "--port", 0, "--guidance-scale", 1.5) as policy,
        started(log, "value", "--critic-dir", critic_dir, "--ensemble-dir", ensemble_dir, "--port", 0) as value,
    ):
        yield policy, value
    assert not log.exists()


def leave(process: subprocess.Popen, number: int) -> None:
    """It ends soon and well, with nothing more to say."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")


def test_the_policy_server_serves_until_it_is_terminated(processes):
    port = port_of(processes[0], "policy")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as health:
        assert health.read() == b"OK\n"
    with connected(port) as client:
        assert client.get_server_metadata()["guidance_scale"] == 1.5
        assert client.infer(robot_observation())["actions"].shape == (3, 2)
        leave(processes[0], signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as ended:
            client.infer(robot_observation())
    assert ended.value.rcvd.code == 1001


def test_the_value_server_serves_until_it_is_interrupted(processes):
    image = np.zeros((16, 16, 3), np.uint8)
    with connected(port_of(processes[1], "value")) as client:
        answers = [client.infer({CAMERA: image, "prompt": "open the drawer", "frame": frame}) for frame in range(3)]
    assert -1 <= answers[0]["value"] <= 0
    assert [answer["score_frame"] for answer in answers] == [None, None, 0]
    leave(processes[1], signal.SIGINT)
