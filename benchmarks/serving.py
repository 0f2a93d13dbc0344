"""What guidance and the server cost, and whether latency and memory stay what they are while several clients drive one server.

`python benchmarks/serving.py` prints three tables. The policy has the demo's sizes and random weights. The server is a process of its own,
as users start it; its clients are openpi's, in threads, each asking again as soon as it has its answer; one more sends malformed messages.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import yaml
from openpi_client import msgpack_numpy
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from reporting import machine, target
from tabulate import tabulate

from recap_steam import devices
from recap_steam.config import load_experiment
from recap_steam.policy import pi05
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.norm_stats import compute_statistics
from recap_steam.policy.processors import make_processors
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.policy.runner import PolicyRunner
from recap_steam.tokenizer import train_tokenizer

DEMO = Path(__file__).parents[1] / "config/config.yaml"
TASK, WIDTH = "open the drawer", 4  # of states and actions
SCALES = {"plain prompt": None, "conditional, guidance 1": 1.0, "guided, 1.5": 1.5}
QUARTERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="inferences of each kind")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120, help="of the clients together")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = make_policy(Path(name))
        guidance = time_guidance(PolicyRunner.load(folder), args.rounds)
        with served(folder) as (server, port):
            alone = time_answers(port, args.rounds)
            quarters = soak(server, port, args.clients, args.seconds)
    print(f"{machine()}\n\n{report(guidance, alone, quarters, args.clients)}")


def make_policy(folder: Path) -> Path:
    """The folder of a policy as the demo trains it, with random weights."""
    config, rng = load_experiment(yaml.safe_load(DEMO.read_text())).policies["recap"], np.random.default_rng(0)
    stock = pi05.make_config(config.model, config.cameras, WIDTH, WIDTH)
    devices.seed(0)
    policy = pi05.build(stock, config.model.small, initialise=True)
    statistics = {name: compute_statistics(lambda: [rng.normal(size=(500, WIDTH))]) for name in ("observation.state", "action")}
    tokenizer = train_tokenizer(tokenizer_corpus([TASK]), config.model.small.vocab_size)
    names = ("image_size", "chunk_size", "n_action_steps", "num_inference_steps", "small")
    sizes = {name: getattr(config.model, name) for name in names}
    serving = Serving(conditional=True, default_guidance_scale=1.5, cameras=config.cameras, state_dim=WIDTH, action_dim=WIDTH, **sizes)
    save_policy(folder, policy, policy.model.state_dict(), make_processors(stock, statistics, tokenizer), tokenizer, serving)
    return folder


def time_guidance(runner: PolicyRunner, rounds: int) -> dict[str, np.ndarray]:
    """Seconds (rounds,) of one observation's inference, by kind; every round has one of each."""
    rng, size = np.random.default_rng(0), runner.serving.image_size
    images = {camera: rng.integers(0, 256, (1, size, size, 3), dtype=np.uint8) for camera in runner.cameras}
    state, noise = rng.normal(size=(1, WIDTH)).astype(np.float32), rng.standard_normal((1, *runner.noise_shape), np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in SCALES}
    for _ in range(rounds + 1):
        for name, scale in SCALES.items():
            started = time.perf_counter()
            runner.act(images, state, [TASK], scale, noise)
            seconds[name].append(time.perf_counter() - started)
    return {name: np.array(taken[1:]) for name, taken in seconds.items()}  # the first one warms up


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """The server's process and port."""
    words = [sys.executable, "-m", "recap_steam.serving.policy", "--policy-dir", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            yield psutil.Process(process.pid), int(re.search(r":(\d+),", process.stdout.readline())[1])
        finally:
            process.terminate()


def observe(client: WebsocketClientPolicy, seed: int) -> dict:
    rng, metadata = np.random.default_rng(seed), client.get_server_metadata()
    image = rng.integers(0, 256, (metadata["image_size"], metadata["image_size"], 3), dtype=np.uint8)
    return {**dict.fromkeys(metadata["cameras"], image), "state": rng.normal(size=metadata["state_dim"]), "prompt": TASK}


def time_answers(port: int, rounds: int) -> np.ndarray:
    """(rounds, 2): milliseconds that one client waits for an answer, and of them in the server's inference."""
    client, found = WebsocketClientPolicy("127.0.0.1", port), []
    observation = observe(client, 0)
    for _ in range(rounds):
        started = time.perf_counter()
        timing = client.infer(observation)["server_timing"]
        found.append((1000 * (time.perf_counter() - started), timing["infer_ms"]))
    client._ws.close()
    return np.array(found)


def soak(server: psutil.Process, port: int, clients: int, seconds: float) -> list[tuple[np.ndarray, int]]:
    """By quarter of the time: milliseconds that clients waited for each answer (n,), and the server's memory at its end, bytes."""
    began, ended = time.monotonic(), threading.Event()

    def drive(seed: int) -> list[tuple[float, float]]:
        client, found = WebsocketClientPolicy("127.0.0.1", port), []
        observation = observe(client, seed)
        while not ended.is_set():
            started = time.monotonic()
            client.infer(observation)
            found.append((started - began, 1000 * (time.monotonic() - started)))
        client._ws.close()
        return found

    def disturb() -> None:
        client, rng = WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(1)
        message = msgpack_numpy.packb(observe(client, 0))
        while not ended.wait(0.02):
            client._ws.send(message[: rng.integers(len(message))])
            assert isinstance(client._ws.recv(), str)
        client._ws.close()

    memory = []
    with ThreadPoolExecutor(clients + 1) as pool:
        answers = [pool.submit(drive, seed) for seed in range(clients)]
        malformed = pool.submit(disturb)
        for _ in range(QUARTERS):
            time.sleep(seconds / QUARTERS)
            memory.append(server.memory_info().rss)
        ended.set()
        malformed.result()
        found = np.array([answer for future in answers for answer in future.result()])
    quarter = np.minimum(found[:, 0] * QUARTERS // seconds, QUARTERS - 1)
    return [(found[quarter == number, 1], memory[number]) for number in range(QUARTERS)]


def report(guidance: dict[str, np.ndarray], alone: np.ndarray, quarters: list[tuple[np.ndarray, int]], clients: int) -> str:
    plain = guidance["plain prompt"]
    rows = [[name, f"{1000 * np.median(taken):.1f}", f"{np.median(taken / plain):.2f}"] for name, taken in guidance.items()]
    costs = tabulate(rows, ["one observation, in process", "ms", "x plain"], tablefmt="github", disable_numparse=True)
    whole, inference = np.median(alone, axis=0)
    overhead = float(np.median(alone[:, 0] - alone[:, 1]))
    rows = [
        ["answer, as the client waits for it", f"{whole:.1f}"],
        ["of it inference", f"{inference:.1f}"],
        ["the rest", f"{overhead:.1f}"],
    ]
    answers = tabulate(rows, ["one client of the server, guided", "ms"], tablefmt="github", disable_numparse=True)
    rows = [
        [number + 1, len(waited), f"{np.median(waited):.0f}", f"{np.percentile(waited, 99):.0f}", f"{memory / 2**20:.0f}"]
        for number, (waited, memory) in enumerate(quarters)
    ]
    titles = [f"quarter, {clients} clients", "answers", "median, ms", "99 %, ms", "server's memory, MiB"]
    latency = tabulate(rows, titles, tablefmt="github", disable_numparse=True)
    targets = [
        target("guided, x plain", float(np.median(guidance["guided, 1.5"] / plain)), 1.3),
        target("median of the last quarter, x the second", float(np.median(quarters[-1][0]) / np.median(quarters[1][0])), 1.5),
        target("memory after the last quarter, x after the first", quarters[-1][1] / quarters[0][1], 1.02),
    ]
    return "\n\n".join([costs, answers, latency, "\n".join(targets)])


if __name__ == "__main__":
    main()
