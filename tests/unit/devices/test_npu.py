"""Devices, training, checkpoints and sharding on a device that is not torch's own: "npu", as torch_npu registers it.

The real one is replaced by tests/stubs/torch_npu, which computes on the CPU; docs/ascend.md says what that leaves open.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from recap_steam import devices
from recap_steam.training.loop import train
from tests.e2e.launching import launcher
from tests.unit.training.toy import Toy, ToyConfig, lineage

HERE = Path(__file__).parent
E2E = HERE.parents[1] / "e2e"
TIME_EMBEDDING = {"aten::linspace", "aten::pow", "aten::reciprocal", "aten::mul", "aten::sin", "aten::cos", "aten::cat"}


def run(command: list, environment: dict[str, str]) -> None:
    finished = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr


@pytest.fixture(scope="module")
def alone(npu, tmp_path_factory) -> Path:
    """The folder of one process."""
    folder = tmp_path_factory.mktemp("alone")
    run([sys.executable, HERE / "one_process.py", folder], npu)
    return folder


@pytest.fixture(scope="module")
def found(alone) -> dict:
    return json.loads((alone / "found.json").read_text())


def test_torch_finds_the_device_by_itself_and_the_table_decides(found):
    choices = found["choices"]
    assert (choices["device"], choices["current"], choices["name"]) == ("npu:0", 0, "Ascend910B3")
    assert choices["fused"] is True and choices["peak flops"] is None and choices["peak memory"] > 0
    assert choices["compile"] == "config: compile_model: nothing compiles for Ascend910B3 (npu); set it to false"


def test_a_seed_reaches_the_device(found):
    here, there = found["choices"]["seeds"]
    assert here == there


def test_autocast_is_the_devices_own(found):
    assert found["choices"]["autocast"] == ["npu", "torch.bfloat16"]


def test_gradients_go_through_the_devices_backend_and_host_numbers_through_gloo(found):
    assert found["choices"]["group"] == "cpu:gloo,npu:hccl"
    assert found["choices"]["host sums"] == [1.5, 2.0]


def test_training_resumes_exactly_and_learns_what_the_cpu_learns(alone, tmp_path):
    folders = [alone / name for name in ("whole", "resumed")]
    whole, resumed = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert whole == resumed
    assert folders[0].joinpath("metrics.jsonl").read_bytes() == folders[1].joinpath("metrics.jsonl").read_bytes()
    with devices.distributed():
        train(Toy(dropout=0.0), ToyConfig(micro_batch_size=4), tmp_path / "state", tmp_path / "cpu", lineage())
    exact, bf16 = load_file(tmp_path / "cpu/model.safetensors"), load_file(folders[0] / "model.safetensors")
    assert exact.keys() == bf16.keys()
    for name, tensor in exact.items():
        assert 0 < (bf16[name] - tensor).abs().max() < 0.05


def test_the_host_keeps_a_batch_until_the_device_has_it(found):
    assert found["copies ahead"] == 0


@pytest.mark.parametrize("kind", ["critic", "progress critic"])
def test_critics_train_without_a_number_that_the_device_lacks(found, kind):
    here, cpu = found["critics"]["losses"][kind]
    assert here == pytest.approx(cpu, rel=0.02)
    assert found["critics"]["float64"] == []


def test_a_policy_trains_and_its_folder_acts(alone, found):
    here, cpu = found["policy"]["losses"]
    assert here == pytest.approx(cpu, rel=0.02)
    actions = found["policy"]["actions"]
    assert len(actions) == 2 and all(abs(number) < 100 for chunk in actions for action in chunk for number in action)
    assert set(found["policy"]["float64"]) == TIME_EMBEDDING  # lerobot's, of a few thousand numbers


def test_what_a_policy_folder_says_of_devices_is_true_everywhere(alone):
    """lerobot refuses a configuration whose device is "npu", wherever it is read."""
    folder = alone / "policy"
    assert json.loads((folder / "config.json").read_text())["device"] == "cpu"
    steps = [
        step
        for name in ("policy_preprocessor", "policy_postprocessor")
        for step in json.loads((folder / f"{name}.json").read_text())["steps"]
    ]
    assert {step["config"]["device"] for step in steps if step["registry_name"] == "device_processor"} == {"cpu"}


@pytest.fixture(scope="module")
def two(npu, tmp_path_factory) -> Path:
    """The folder of two processes that train the real models, whole and sharded."""
    folder = tmp_path_factory.mktemp("two")
    run([*launcher(2), E2E / "sharded_models.py", folder / "report.json", "critic", "pi05"], npu)
    return folder


@pytest.mark.parametrize("name", ["critic", "pi05"])
def test_two_processes_train_the_model_of_one(two, name):
    """FSDP2 over the device's own process group, which cannot average."""
    report = json.loads((two / "report.json").read_text())
    exact, bf16 = report[f"{name}/float32"], report[f"{name}/bfloat16"]
    assert exact["same start"] and exact["weights"] < 0.01 * exact["moved"]
    assert exact["losses"][1] == pytest.approx(exact["losses"][0], rel=1e-5)
    assert bf16["losses"][1] == pytest.approx(bf16["losses"][0], rel=1e-2) and bf16["compute dtype"] == ["torch.bfloat16"]
    assert exact["held"] == pytest.approx([0.5, 0.5], rel=0.02)
    assert exact["dtypes"] == bf16["dtypes"] == ["torch.float32"]


def test_one_process_goes_on_from_the_state_of_two(npu, tmp_path):
    toy, config = HERE.parent / "training/toy.py", {"micro_batch_size": 4}
    folders = [tmp_path / "state", tmp_path / "output"]
    killed = [*launcher(2), toy, json.dumps({"dropout": 0.0, "fail_at": 13}), json.dumps(config), *folders]
    finished = subprocess.run([str(word) for word in killed], env=npu, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 1 and "killed" in finished.stderr
    run([sys.executable, toy, json.dumps({"dropout": 0.0}), json.dumps(config), *folders], npu)
    steps = [json.loads(line)["step"] for line in (folders[1] / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 31)) and (folders[1] / "model.safetensors").exists()
