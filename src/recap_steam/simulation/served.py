"""A policy behind its server, asked by the protocol that robots use: what is evaluated is what would be deployed."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from recap_steam.errors import UserError
from recap_steam.policy.prompts import KIND_NAMES, PLAIN
from recap_steam.serving.codec import decode, encode
from recap_steam.serving.command import DEFAULT_HOST
from recap_steam.simulation.controllers import check_fit
from recap_steam.simulation_config import EnvironmentConfig

if TYPE_CHECKING:
    from recap_steam.simulation.rollout import Run

LEAVING_S = 60.0  # for which a server that was told to end may finish what it has begun


class ServedPolicy:
    """A controller that asks a policy server, one run after the other.

    It sends each run's own noise, so that the actions are those of the policy in process, up to the rounding of a batch of another size.
    """

    sees = True
    device = "policy server"

    def __init__(self, connection: ClientConnection, noise_shape: list[int], prompt: str):
        self._connection, self._noise_shape, self._prompt = connection, noise_shape, prompt

    def plan(self, runs: "list[Run]") -> np.ndarray:
        return np.stack([self._actions(run) for run in runs])

    def _actions(self, run: "Run") -> np.ndarray:
        noise = run.rng.standard_normal(self._noise_shape, np.float32)
        answer = self._ask({**run.images, "state": run.environment.state(), "prompt": self._prompt, "noise": noise})
        return answer["actions"]

    def _ask(self, observation: dict[str, Any]) -> dict[str, Any]:
        try:
            self._connection.send(encode(observation))
            answer = self._connection.recv()
        except ConnectionClosed as error:
            raise UserError(f"the policy server has gone ({error}); its output is above, run again") from None
        if isinstance(answer, str):
            raise UserError(answer)
        return decode(answer)


@contextlib.contextmanager
def served_policy(port: int, config: EnvironmentConfig) -> Iterator[ServedPolicy]:
    """The policy behind a server on a port of this machine, until the block ends.

    Raises:
        UserError: no policy server, or a policy that does not fit the environment.
    """
    with connect(f"ws://{DEFAULT_HOST}:{port}", compression=None, max_size=None, proxy=None) as connection:
        metadata = decode(connection.recv())
        if metadata["kind"] != "policy":
            raise UserError(f"port {port}: a {metadata['kind']} server; actions come from a policy server")
        check_fit("the served policy", metadata["cameras"], metadata["state_dim"], metadata["action_dim"], config)
        yield ServedPolicy(connection, metadata["noise_shape"], config.prompt)


@contextlib.contextmanager
def policy_server(policy_dir: Path, guidance_scale: float | None) -> Iterator[int]:
    """Serve a policy with the server's own command on a free port of this machine, which is yielded; the server ends with the block, or
    with this process, however that ends.

    Raises:
        UserError: the server did not start; it has said why.
    """
    command = [sys.executable, "-m", "recap_steam.serving.policy", "--policy-dir", str(policy_dir), "--port", "0", "--until-stdin-ends"]
    command += ["--indicator", KIND_NAMES[PLAIN]] if guidance_scale is None else ["--guidance-scale", repr(guidance_scale)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            announcement = server.stdout.readline()
            found = re.search(r":(\d+), health", announcement)
            if found is None:
                raise UserError(f"{policy_dir}: its server did not start; what it says is above")
            yield int(found[1])
        finally:
            server.stdin.close()
            try:
                server.wait(LEAVING_S)
            except subprocess.TimeoutExpired:
                server.kill()
