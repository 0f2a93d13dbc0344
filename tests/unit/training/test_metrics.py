import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recap_steam import devices
from recap_steam.training import metrics
from recap_steam.training.metrics import MetricLog, Throughput


def test_rows_after_the_resumed_step_are_dropped_even_half_written_ones(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.0}\n{"step": 3, "a": 3.0}\n{"step": 4, "a"')
    log = MetricLog(path, tmp_path / "tensorboard", 2)
    log.write(3, {"a": 9.0})
    log.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"step": n, "a": a} for n, a in ((1, 1.0), (2, 2.0), (3, 9.0))]


def test_rows_are_json_and_free_of_the_clock(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl", tmp_path / "tensorboard", 0)
    log.write(1, {"eval/spearman": float("nan"), "b": 2.0}, {"time/steps_per_second": 3.0})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "eval/spearman": null, "b": 2.0}\n'
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"eval/spearman", "b", "time/steps_per_second"}
    assert events.Scalars("b")[0].value == 2.0


def test_throughput_is_told_at_the_end(capsys, monkeypatch):
    monkeypatch.setattr(devices, "peak_flops", lambda: 10e12)
    line = Throughput("train_critic value", 0, 2, 8)
    assert line.update(1, 0.5, 0.0, 10**12) == {}
    rates = line.update(2, 0.25, 0.0, 10**12)
    output = capsys.readouterr().out
    assert output.startswith("train_critic value: step 2/2, ") and output.endswith("ETA 00:00:00, loss 0.2500\n")
    assert "data wait 0%, peak memory " in output and "TFLOP/s per device (model FLOP utilisation " in output
    steps = rates["time/steps_per_second"]
    assert rates["time/samples_per_second"] == 8 * steps
    assert rates["time/tflops_per_device"] == pytest.approx(steps)
    assert rates["time/model_flops_utilization"] == pytest.approx(steps / 10)
    assert 0.01 < rates["time/peak_memory_gib"] < 24


def test_a_device_of_unknown_speed_has_no_utilisation(capsys):
    rates = Throughput("train_critic value", 0, 1, 8).update(1, 0.5, 0.0, 10**12)  # a CPU
    assert "time/model_flops_utilization" not in rates and "utilisation" not in capsys.readouterr().out


def test_days_that_are_left_are_hours(capsys, monkeypatch):
    clock = iter([0.0, 10.0, 10.0])
    monkeypatch.setattr(metrics.time, "monotonic", lambda: next(clock))
    Throughput("train_policy recap", 0, 10_001, 8).update(1, 0.5, 0.0, 0)
    assert "ETA 27:46:40" in capsys.readouterr().out
