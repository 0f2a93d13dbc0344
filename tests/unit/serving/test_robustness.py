"""Clients that are malformed, huge, slow, greedy or many: each is told what is wrong, and the others notice nothing."""

import asyncio
import contextlib
import os
import random
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from openpi_client import msgpack_numpy
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from recap_steam.errors import UserError
from recap_steam.serving.policy import PolicyService
from recap_steam.serving.server import Limits, Server, announcement, serve_forever
from tests.policies import CAMERA
from tests.serving import connected, robot_observation, running

FUZZED = 4000
NOISE = np.random.default_rng(0).standard_normal((4, 32), np.float32)
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def service(policy_dir):
    return PolicyService(policy_dir)


class Diary:
    """A service whose observations say who asks, how long it takes and whether it fails; it writes down whom it answered."""

    kind = "diary"

    def __init__(self):
        self.metadata: dict = {}
        self.answered, self.begun = [], threading.Event()

    def session(self):
        return self

    def example(self):
        return {}

    def infer(self, observation):
        self.begun.set()
        time.sleep(observation.get("seconds", 0))
        self.answered.append(observation.get("name"))
        if "divisor" in observation:
            return {"quotient": 1 / observation["divisor"]}
        return {"page": len(self.answered)}


def malformed(rng: random.Random, valid: bytes) -> bytes | str:
    """A message that was valid before, or never."""
    junk = [
        None,
        True,
        -1,
        2**63,
        float("nan"),
        "",
        "x" * 5000,
        b"\0" * 100,
        [],
        [[[]]] * 5,
        {},
        {"a": {"b": {}}},
        np.zeros((2, 2)),
        np.float32(1),
    ]
    kind = rng.randrange(6)
    if kind == 0:
        return valid[: rng.randrange(len(valid))]
    if kind == 1:
        return rng.randbytes(rng.randrange(400))
    if kind == 2:  # of the first bytes, where names and types are
        flipped = bytearray(valid)
        for _ in range(rng.randint(1, 8)):
            flipped[rng.randrange(100)] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == 3:
        key = rng.choice([CAMERA, "state", "prompt", "noise", "guidance_scale", "other"])
        return msgpack_numpy.packb({**robot_observation(), key: rng.choice(junk)})
    if kind == 4:
        array = {
            b"__ndarray__": True,
            b"data": rng.randbytes(24),
            b"dtype": rng.choice(["<f8", "|O", "|V8", "<U6", 7]),
            b"shape": [rng.choice(junk[:4])],
        }
        return msgpack_numpy.packb({**robot_observation(), "state": array})
    return rng.choice(["", "text", '{"state": [0, 0, 0]}'])


def test_thousands_of_malformed_messages_are_answered_one_by_one_and_disturb_nobody(service):
    rng, valid = random.Random(0), msgpack_numpy.packb(robot_observation())
    process = psutil.Process()
    with running(service) as port, connect(f"ws://127.0.0.1:{port}") as connection, connected(port) as robot:
        connection.recv()
        expected, before, answers = robot.infer({**robot_observation(), "noise": NOISE})["actions"], process.memory_info().rss, []
        for number in range(FUZZED):
            connection.send(malformed(rng, valid))
            answers.append(connection.recv(timeout=10))
            if number % 400 == 0:
                np.testing.assert_array_equal(robot.infer({**robot_observation(), "noise": NOISE})["actions"], expected)
        refusals = [answer for answer in answers if isinstance(answer, str)]
        assert len(refusals) > 0.9 * FUZZED  # a flipped bit of a pixel makes another valid observation
        assert all(answer.startswith("policy server: ") and "\n" not in answer and "internal error" not in answer for answer in refusals)
        assert len(set(refusals)) > 50
        assert process.memory_info().rss - before < 50 * 2**20


def test_bytes_that_are_no_websocket_end_without_a_word(service, capfd):
    rng = random.Random(1)
    with running(service) as port, connected(port) as robot:
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(
                    rng.choice(
                        [rng.randbytes(300), HANDSHAKE[: rng.randrange(100)], HANDSHAKE + rng.randbytes(50), b"GET /x HTTP/1.1\r\n\r\n"]
                    )
                )
        assert robot.infer(robot_observation())["actions"].shape == (3, 2)
    assert capfd.readouterr().err == ""


def test_a_huge_message_ends_its_connection_with_the_limit_and_no_other(service):
    with running(service, Limits(message_bytes=100_000)) as port, connected(port) as robot:
        for message in (bytes(100_001), [bytes(60_000), bytes(60_000)]):  # whole and in fragments
            with connect(f"ws://127.0.0.1:{port}", compression=None) as connection:
                connection.recv()
                with pytest.raises(ConnectionClosed) as ended:
                    connection.send(message)  # the server may have closed before the last fragment is out
                    connection.recv(timeout=10)
            assert ended.value.rcvd.code == 1009 and "100000 bytes" in ended.value.rcvd.reason
        assert robot.infer(robot_observation())["actions"].shape == (3, 2)


def shaken_hands(port: int) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=10)
    raw.sendall(HANDSHAKE)
    assert b"101 Switching Protocols" in raw.recv(300)
    return raw


def masked(payload: bytes) -> bytes:
    """A client's binary frame; the mask is zero."""
    return b"\x82\xff" + len(payload).to_bytes(8, "big") + bytes(4) + payload


@pytest.mark.parametrize(
    "sent", [masked(bytes(1000))[:500], masked(msgpack_numpy.packb(robot_observation())) * 200], ids=["half a frame", "no reading"]
)
def test_a_client_that_stops_sending_or_reading_is_left_behind(service, sent):
    with running(service, Limits(alive_s=1.0)) as port, connected(port) as robot, shaken_hands(port) as slow:
        sending = threading.Thread(target=lambda: _ignore_end(lambda: slow.sendall(sent)))
        sending.start()
        started, answers = time.monotonic(), 0
        while _open_connections(port) > 1 and time.monotonic() - started < 20:
            answers += robot.infer(robot_observation())["actions"].shape == (3, 2)
        assert answers > 1 and _open_connections(port) == 1
        slow.shutdown(socket.SHUT_RDWR)
        sending.join(10)
        assert robot.infer(robot_observation())["actions"].shape == (3, 2)


def _ignore_end(work) -> None:
    with contextlib.suppress(OSError):
        work()


def _open_connections(port: int) -> int:
    """That the server holds, in this process."""
    held = psutil.Process().net_connections("tcp")
    return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in held)


def test_a_handshake_that_never_comes_takes_no_place(service):
    with (
        running(service, Limits(connections=1, opening_s=1.0)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as silent,
    ):
        with connected(port) as robot:
            assert robot.infer(robot_observation())["actions"].shape == (3, 2)
        silent.recv(1000)
        assert silent.recv(1000) == b""  # closed


def test_more_clients_than_there_are_places_are_turned_away_with_a_reason():
    with running(Diary(), Limits(connections=2)) as port:
        with connected(port) as one, connected(port):
            with pytest.raises(ConnectionClosed) as refused, connected(port):
                pass
            assert refused.value.rcvd.code == 1013 and refused.value.rcvd.reason == "2 clients are connected, no more are served"
            assert one.infer({})["page"] == 2
        for _ in range(10):  # their places are free again
            with connected(port) as client:
                client.infer({})


def test_clients_take_turns_however_much_one_of_them_asks():
    diary, ask = Diary(), msgpack_numpy.packb({"name": "greedy", "seconds": 0.05})
    with running(diary) as port, connect(f"ws://127.0.0.1:{port}") as greedy, connected(port) as polite:
        diary.begun.clear()
        for _ in range(20):
            greedy.send(ask)
        assert diary.begun.wait(10)
        polite.infer({"name": "polite"})
        assert diary.answered.index("polite") < 10  # the server's own question is the first; every turn takes its time
        for _ in range(21):  # metadata, and every question has its answer
            greedy.recv(timeout=10)


def test_an_observation_that_waits_too_long_gets_an_error_and_the_next_one_an_answer():
    with running(Diary(), Limits(answer_s=0.5)) as port, connected(port) as client:
        with pytest.raises(RuntimeError, match=r"diary server: no answer within 0\.5 s"):
            client.infer({"seconds": 1.2})
        time.sleep(1)
        assert client.infer({})["page"] == 3


def test_a_client_that_leaves_without_waiting_disturbs_nobody():
    diary = Diary()
    with running(diary, Limits(connections=3)) as port, connected(port) as stays:
        for _ in range(5):
            with connect(f"ws://127.0.0.1:{port}") as leaves:
                leaves.recv()
                leaves.send(msgpack_numpy.packb({"name": "leaves", "seconds": 0.05}))
                leaves.socket.shutdown(socket.SHUT_RDWR)
            assert stays.infer({"name": "stays"})["page"]
    assert diary.answered.count("stays") == 5


def test_a_mistake_of_ours_is_told_without_our_paths(capfd):
    with running(Diary()) as port, connected(port) as client:
        with pytest.raises(RuntimeError, match="diary server: internal error, see the server's output") as told:
            client.infer({"divisor": 0})
        assert "Traceback" not in str(told.value) and ".py" not in str(told.value)
        assert client.infer({"divisor": 2})["quotient"] == 0.5
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_server_that_is_told_to_leave_answers_what_it_has_begun_and_says_goodbye():
    diary, pool = Diary(), ThreadPoolExecutor(2)
    with contextlib.ExitStack() as clients:
        with running(diary) as port:
            asks, queues = (clients.enter_context(connected(port)) for _ in range(2))
            diary.begun.clear()
            asked = pool.submit(asks.infer, {"seconds": 1.0})
            assert diary.begun.wait(10)
            queued = pool.submit(queues.infer, {"name": "queued"})
            time.sleep(0.4)
        assert asked.result(10)["page"] == 2
        with pytest.raises(RuntimeError, match="diary server: the server is leaving"):
            queued.result(10)
        with pytest.raises(ConnectionClosed) as ended:
            asks.infer({})
    assert ended.value.rcvd.code == 1001


def test_an_address_that_is_taken_is_one_line():
    with running(Diary()) as port:
        second = Server(Diary()).run("127.0.0.1", port, asyncio.Event(), lambda _: None)
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: cannot be listened on .*; choose another --port or --host"):
            asyncio.run(second)


def test_a_server_cannot_wait_for_the_end_of_what_does_not_end(monkeypatch):
    with open(os.devnull) as nothing, pytest.raises(UserError, match="standard input is neither a pipe nor a terminal; give one, or leave"):
        monkeypatch.setattr("recap_steam.serving.server.STDIN", nothing.fileno())
        serve_forever(Diary(), "127.0.0.1", 0, until_stdin_ends=True)


def test_who_listens_beyond_this_machine_is_told_what_that_means():
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert "\n" not in announcement("policy", host, 8000)
    assert announcement("policy", "::1", 8000) == "policy server: ws://[::1]:8000, health http://[::1]:8000/healthz"
    for host in ("0.0.0.0", "::", "192.168.1.7", "robot.local", ""):
        assert announcement("policy", host, 8000).endswith("\nthere is no authentication: whoever reaches this address is answered")


def test_several_clients_for_a_while_get_their_own_answers_at_a_steady_pace_in_steady_memory(service):
    """The long version is ``benchmarks/serving.py``."""
    process, clients, rounds = psutil.Process(), 4, 50

    def drive(port: int, seed: int) -> list[float]:
        observation, waited = {**robot_observation(seed), "noise": NOISE}, []
        with connected(port) as robot:
            expected = robot.infer(observation)["actions"]
            for _ in range(rounds):
                started = time.monotonic()
                np.testing.assert_array_equal(robot.infer(observation)["actions"], expected)
                waited.append(time.monotonic() - started)
        return waited

    with running(service) as port, ThreadPoolExecutor(clients) as pool:
        list(pool.map(drive, [port] * clients, range(clients)))
        before, files = process.memory_info().rss, len(os.listdir("/proc/self/fd"))
        waited = np.array(list(pool.map(drive, [port] * clients, range(clients))))
        assert process.memory_info().rss - before < 30 * 2**20
        deadline = time.monotonic() + 10
        while len(os.listdir("/proc/self/fd")) > files and time.monotonic() < deadline:  # connections that have just been closed
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= files
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as health:
            assert health.status == 200
    medians = np.median(waited, axis=1)
    assert medians.max() < 2 * medians.min()  # nobody is served before others
    first, second = np.median(waited[:, : rounds // 2]), np.median(waited[:, rounds // 2 :])
    assert second < 5 * first
