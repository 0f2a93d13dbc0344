"""What a job asks of Slurm, for each kind of accelerator, one node and several."""

import re

import pytest

from recap_steam.accelerators import ACCELERATORS, NONE, of_device, resources

GRES = re.compile(r"[a-z0-9_]+(:[a-z0-9_]+)?:\d+")  # the one form that the plugin takes


@pytest.mark.parametrize(
    ("accelerator", "model", "devices", "nodes", "expected"),
    [
        ("cuda", None, 8, 1, {"nodes": 1, "gres": "gpu:8", "tasks_per_gpu": 0}),
        ("cuda", "h200", 8, 1, {"nodes": 1, "gres": "gpu:h200:8", "tasks_per_gpu": 0}),
        ("cuda", None, 8, 2, {"nodes": 2, "gres": "gpu:8", "tasks_per_gpu": 0, "tasks": 2, "mpi": "srun"}),
        ("ascend", None, 1, 1, {"nodes": 1, "gres": "npu:1"}),
        ("ascend", "ascend910b", 8, 4, {"nodes": 4, "gres": "npu:ascend910b:8", "tasks": 4, "mpi": "srun"}),
        (NONE, None, 8, 1, {"nodes": 1}),
        (NONE, None, 8, 2, {"nodes": 2, "tasks": 2, "mpi": "srun"}),
    ],
)
def test_resources(accelerator: str, model: str | None, devices: int, nodes: int, expected: dict) -> None:
    found = resources(accelerator, model, devices, nodes)
    assert found == expected
    assert "gres" not in found or GRES.fullmatch(found["gres"])


@pytest.mark.parametrize("name", ACCELERATORS)
def test_an_accelerator_is_found_by_its_device_type(name: str) -> None:
    assert of_device(ACCELERATORS[name].device_type) is ACCELERATORS[name]


def test_the_cpu_is_no_accelerator() -> None:
    assert NONE not in ACCELERATORS
    assert of_device("cpu") is None
