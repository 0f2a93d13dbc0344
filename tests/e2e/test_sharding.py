"""The real models, cut among processes, are the models of one process; each process holds its share, in fp32."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.launching import finish, start
from tests.e2e.sharded_models import MODELS

FEW = ("critic", "critic, VLM frozen")  # in four processes


def report(folder: Path, processes: int, names: tuple[str, ...]) -> dict:
    path = folder / "report.json"
    finish(start(Path(__file__).with_name("sharded_models.py"), [path, *names], processes))
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> dict:
    return report(tmp_path_factory.mktemp("two"), 2, tuple(MODELS))


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> dict:
    return report(tmp_path_factory.mktemp("four"), 4, FEW)


@pytest.mark.parametrize("name", MODELS)
def test_two_processes_train_the_model_of_one(two, name):
    found = two[f"{name}/float32"]
    assert found["others built only shapes"] and found["same start"]
    for whole, sharded in (found["losses"], found["norms"]):
        np.testing.assert_allclose(sharded, whole, rtol=1e-5)
    assert found["weights"] < 0.01 * found["moved"]
    assert found.get("actions", 0.0) < 1e-4


@pytest.mark.parametrize("name", FEW)
def test_so_do_four(four, name):
    found = four[f"{name}/float32"]
    for whole, sharded in (found["losses"], found["norms"]):
        np.testing.assert_allclose(sharded, whole, rtol=1e-5)
    assert found["weights"] < 0.01 * found["moved"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operations_are_those_of_the_whole_model_without_what_is_recomputed(two, dtype):
    counts = {name: two[f"{name}/{dtype}"]["flops"] for name in MODELS}
    assert all(whole == sharded > 0 for whole, sharded in counts.values())
    assert counts["critic, checkpointing"] == counts["critic, compiled"] == counts["critic"]
    assert counts["pi05, expert only, checkpointing"] < counts["pi05"]


@pytest.mark.parametrize("name", MODELS)
def test_bf16_in_two_processes_is_bf16_in_one(two, name):
    found, exact = two[f"{name}/bfloat16"], two[f"{name}/float32"]
    assert found["compute dtype"] == ["torch.bfloat16"] and exact["compute dtype"] == ["torch.float32"]
    for whole, sharded in (found["losses"], found["norms"]):
        np.testing.assert_allclose(sharded, whole, rtol=1e-2)
    assert found["losses"][1] != exact["losses"][1]  # bf16 was computed in, indeed
    assert found.get("actions", 0.0) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_defect_23_every_process_holds_its_share_of_fp32_weights_and_moments(two, four, dtype):
    for processes, reports in ((2, two), (4, four)):
        for name in FEW:
            found = reports[f"{name}/{dtype}"]
            assert found["dtypes"] == ["torch.float32"]
            np.testing.assert_allclose(found["held"], 1 / processes, rtol=0.02)
