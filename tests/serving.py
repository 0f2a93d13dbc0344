"""Servers in a thread of the tests, and what clients send to them."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

from recap_steam.serving.server import Limits, Server, Service
from tests.policies import CAMERA, STATE_DIM


@contextlib.contextmanager
def running(service: Service, limits: Limits | None = None) -> Iterator[int]:
    """Serve on a free port, which is yielded, until the block ends."""
    loop, stop, port, ready = asyncio.new_event_loop(), asyncio.Event(), [], threading.Event()

    def started(number: int) -> None:
        port.append(number)
        ready.set()

    server = Server(service, limits or Limits()).run("127.0.0.1", 0, stop, started)
    thread = threading.Thread(target=loop.run_until_complete, args=[server])
    thread.start()
    try:
        assert ready.wait(60)
        yield port[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()


@contextlib.contextmanager
def connected(port: int) -> Iterator[WebsocketClientPolicy]:
    """openpi's client, as it comes from the package index."""
    client = WebsocketClientPolicy("127.0.0.1", port)
    try:
        yield client
    finally:
        client._ws.close()


def robot_observation(seed: int = 0) -> dict[str, Any]:
    """What the policy of ``tests.policies`` reads."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return {CAMERA: image, "state": rng.normal(2, 3, STATE_DIM), "prompt": "open the drawer"}
