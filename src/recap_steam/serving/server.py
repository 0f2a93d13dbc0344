"""One service behind openpi's websocket protocol.

On connecting, a client gets the service's metadata; then each of its messages, an observation, gets one answer: a map with
``server_timing``, or a text that says what is wrong. One thread does everything that an observation needs, reading it included. Its queue
has at most one observation of each connection, so that clients take turns, whatever one of them sends.
"""

import asyncio
import dataclasses
import http
import ipaddress
import logging
import os
import signal
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from websockets.asyncio.server import Request, Response, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from recap_steam.errors import UserError
from recap_steam.serving.codec import decode, encode

_LOGGER = logging.getLogger(__name__)
_LOGGER.setLevel(logging.CRITICAL)  # websockets reports every malformed handshake with a traceback

STDIN = 0


class Session(Protocol):
    """One client's conversation."""

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The answer to a client's observation; raises UserError where it is wrong."""


class Service(Protocol):
    """What a server serves."""

    kind: str
    metadata: dict[str, Any]  # what a client gets on connecting, beside the kind

    def session(self) -> Session: ...

    def example(self) -> dict[str, Any]:
        """An observation that it answers."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Beyond ``message_bytes``, or without a sign of life for twice ``alive_s``, a connection is closed; more than ``connections`` are
    turned away; an observation that waited ``answer_s`` gets an error; handshakes take ``opening_s`` at most, goodbyes ``closing_s``."""

    message_bytes: int = 32 * 2**20
    connections: int = 16
    alive_s: float = 20.0
    answer_s: float = 60.0
    opening_s: float = 5.0
    closing_s: float = 2.0


class Server:
    """Answers the clients of one service."""

    def __init__(self, service: Service, limits: Limits = Limits()):
        self._service, self._limits = service, limits
        self._worker = ThreadPoolExecutor(1, "inference")
        self._connections, self._leaving = 0, False

    async def run(self, host: str, port: int, stop: asyncio.Event, started: Callable[[int], None]) -> None:
        """Serve until ``stop``; then the answer that is being computed is waited for, and clients are told that the server leaves.

        Args:
            port: 0 takes a free one.
            started: is called with the port as soon as clients can connect.

        Raises:
            UserError: the address cannot be taken.
        """
        await asyncio.get_running_loop().run_in_executor(self._worker, self._rehearse)
        try:
            server = await self._listen(host, port)
        except OSError as error:
            raise UserError(f"{host}:{port}: cannot be listened on ({error.strerror}); choose another --port or --host") from error
        async with server:
            started(server.sockets[0].getsockname()[1])
            await stop.wait()
            self._leaving = True
            await asyncio.get_running_loop().run_in_executor(self._worker, lambda: None)  # behind all that was asked before
        self._worker.shutdown()

    async def _listen(self, host: str, port: int):
        limits = self._limits
        return await serve(
            self._converse,
            host,
            port,
            process_request=_health,
            origins=[None],  # a page in somebody's browser sends its origin: it has no business here
            compression=None,  # images hardly shrink, and a small message cannot become a huge one
            server_header=None,
            max_size=limits.message_bytes,
            max_queue=1,
            open_timeout=limits.opening_s,
            ping_interval=limits.alive_s,
            ping_timeout=limits.alive_s,
            close_timeout=limits.closing_s,
            logger=_LOGGER,
        )

    def _rehearse(self) -> None:
        """The first inference takes longest, and tells whether the service works: nobody should wait for it."""
        self._service.session().infer(self._service.example())

    async def _converse(self, connection: ServerConnection) -> None:
        if self._connections >= self._limits.connections:
            await connection.close(CloseCode.TRY_AGAIN_LATER, f"{self._connections} clients are connected, no more are served")
            return
        self._connections += 1
        try:
            await self._answer_all(connection)
        except ConnectionClosed:
            pass
        finally:
            self._connections -= 1

    async def _answer_all(self, connection: ServerConnection) -> None:
        session, previous_s = self._service.session(), None
        await connection.send(encode({"kind": self._service.kind, **self._service.metadata}))
        async for message in connection:
            arrived = time.monotonic()
            timing = {} if previous_s is None else {"prev_total_ms": 1000 * previous_s}
            await connection.send(await self._answer(session, message, arrived, timing))
            previous_s = time.monotonic() - arrived

    async def _answer(self, session: Session, message: bytes | str, arrived: float, timing: dict[str, float]) -> bytes | str:
        """An encoded answer, or the text of an error."""
        inference = asyncio.get_running_loop().run_in_executor(self._worker, self._infer, session, message, arrived, timing)
        try:
            return await asyncio.wait_for(inference, self._limits.answer_s)
        except UserError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"no answer within {self._limits.answer_s:g} s; ask again, or serve fewer clients"
        except Exception:
            traceback.print_exc()  # a mistake of ours: the client gets no paths of this machine
            problem = "internal error, see the server's output; the next observation is answered as usual"
        return f"{self._service.kind} server: {problem}"

    def _infer(self, session: Session, message: bytes | str, arrived: float, timing: dict[str, float]) -> bytes:
        """In the worker's thread."""
        if self._leaving:
            raise UserError("the server is leaving; connect again when it is back")
        began = time.monotonic()
        answer = session.infer(decode(message))
        timing = {"infer_ms": 1000 * (time.monotonic() - began), "wait_ms": 1000 * (began - arrived), **timing}
        return encode({**answer, "server_timing": timing})


def _health(connection: ServerConnection, request: Request) -> Response | None:
    return connection.respond(http.HTTPStatus.OK, "OK\n") if request.path == "/healthz" else None


def serve_forever(service: Service, host: str, port: int, until_stdin_ends: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, or until nobody can write to standard input any more.

    Raises:
        UserError: the address cannot be taken, the service does not answer its own example, or standard input cannot end.
    """

    def started(port: int) -> None:
        print(announcement(service.kind, host, port), flush=True)

    async def until_told() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if until_stdin_ends:
            _set_when_stdin_ends(stop, loop)
        await Server(service).run(host, port, stop, started)

    asyncio.run(until_told())


def _set_when_stdin_ends(event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """Set ``event`` as soon as the last who could write to standard input is gone.

    Raises:
        UserError: nobody can close standard input, because it is a file or nothing.
    """

    def read() -> None:
        if not os.read(STDIN, 4096):
            loop.remove_reader(STDIN)
            event.set()

    try:
        loop.add_reader(STDIN, read)
    except OSError:
        raise UserError("--until-stdin-ends: standard input is neither a pipe nor a terminal; give one, or leave the option out") from None


def announcement(kind: str, host: str, port: int) -> str:
    """Where the server is, and what that means if others reach it."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    line = f"{kind} server: ws://{address}, health http://{address}/healthz"
    try:
        reached_by_others = not ipaddress.ip_address(host).is_loopback
    except ValueError:
        reached_by_others = host != "localhost"
    return f"{line}\nthere is no authentication: whoever reaches this address is answered" if reached_by_others else line
