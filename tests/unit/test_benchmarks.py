"""Benchmarks that are too long for here, or need what is not here, run with small sizes, and say what they skip."""

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from recap_steam import rates
from recap_steam.config import load_experiment
from recap_steam.costs.known import KnownRates, read_rates

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch) -> Callable[..., ModuleType]:
    """A benchmark as a module, with its command line's arguments in place."""

    def loaded(name: str, *arguments: str) -> ModuleType:
        monkeypatch.syspath_prepend(BENCHMARKS)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        return importlib.import_module(name)

    return loaded


def test_the_accelerator_benchmark_runs_with_small_models(load, capsys):
    load("gpu", "--smoke").main()
    output = capsys.readouterr().out
    for expected in ("| critic, activations recomputed", "value pass:", "| pi0.5, activations recomputed"):
        assert expected in output
    checks = [line for line in output.splitlines() if "bf16 against fp32" in line]
    assert len(checks) == 4
    assert all(line.endswith(": met") for line in checks)


def test_the_accelerator_benchmark_notices_a_wrong_gradient(load, monkeypatch, capsys):
    gpu = load("gpu", "--smoke")
    exact = gpu.loss_and_gradients

    def wrong(trainable, batch, dtype):
        loss, gradients = exact(trainable, batch, dtype)
        if dtype == torch.bfloat16:
            gradients |= {"expert": [torch.ones_like(tensor) for tensor in gradients["expert"]]} if "expert" in gradients else {}
        return loss, gradients

    monkeypatch.setattr(gpu, "loss_and_gradients", wrong)
    monkeypatch.setattr(gpu, "speed", lambda *_, **__: [])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 1
    assert re.search(r"cosine of the gradients \(expert\).*MISSED", capsys.readouterr().out)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here is an accelerator")
def test_without_an_accelerator_it_says_so(load, capsys):
    load("gpu").main()
    assert capsys.readouterr().out.startswith("skipped: torch sees no accelerator")


def test_without_its_dataset_the_input_benchmark_says_so(load, capsys, tmp_path):
    load("input_pipeline", "--data", str(tmp_path)).main()
    assert capsys.readouterr().out == f"skipped: no dataset at {tmp_path}; give its folder with --data\n"


def test_every_case_of_the_full_size_critic_runs_small(load):
    benchmark = load("full_size_critic")
    found = {name: benchmark.measure(case, small=True) for name, case in benchmark.CASES.items()}
    assert len({case["flops"] / case["samples"] for case in found.values() if case["flops"]}) == 1  # recomputation does not count
    assert "| vision" in benchmark.report(found)


def test_the_full_size_benchmark_leaves_the_rates_of_the_full_size_experiment(load, monkeypatch, tmp_path):
    """Its critic is of the sizes of the experiment's folders."""
    monkeypatch.setenv(rates.FOLDER, str(tmp_path / "rates"))
    models = load("models")
    benchmark = models.make_experiment(tmp_path, ["one", "two"], models.FULL_SIZE_CRITIC).critics["value"]
    models.leave_training_rate(benchmark, 2, 3.0)
    models.leave_pass_rate(benchmark, 8, 4.0)
    known = KnownRates(read_rates([tmp_path / "rates"]), None)
    raw = yaml.safe_load((BENCHMARKS.parent / "config/experiments/full_size.yaml").read_text())
    for tower, content in (
        ("siglip", {"vision_config": models.FULL_SIZE_CRITIC["siglip_config"]}),
        ("gemma3", models.FULL_SIZE_CRITIC["gemma3_config"]),
    ):
        (tmp_path / tower).mkdir()
        (tmp_path / tower / "config.json").write_text(json.dumps(content))
        raw["critics"]["value"]["model"][f"{tower}_path"] = str(tmp_path / tower)
    critic = load_experiment(raw).critics["value"]
    assert known.of("train_critic", rates.training_work(critic)).device_seconds == 1.5
    assert known.of("compute_values", rates.pass_work(dataclasses.asdict(critic.model), 2)).device_seconds == 0.5


def test_scores_encode_each_frame_once(load, capsys):
    load("steam_scores", "--episodes", "1", "--length", "70").main()
    assert re.search(r"each frame once +\| +70 .*pair by pair +\| +138 .*at least 1\.8: met", capsys.readouterr().out, re.DOTALL)


def test_videos_are_drawn_both_ways(load, capsys):
    load("videos", "--length", "4", "--rounds", "1").main()
    assert re.search(r"marker by NumPy .*every frame by Matplotlib .*times faster .*at least 5", capsys.readouterr().out, re.DOTALL)


def test_serving_is_measured_through_a_server_of_its_own(load, capsys):
    load("serving", "--rounds", "3", "--clients", "2", "--seconds", "2").main()
    output = capsys.readouterr().out
    for expected in (
        r"\| guided, 1\.5 +\| ",
        r"\| the rest +\| ",
        r"\| 4 +\| +[1-9]\d* ",
        r"- memory after the last quarter, x after the first: ",
    ):
        assert re.search(expected, output), expected
