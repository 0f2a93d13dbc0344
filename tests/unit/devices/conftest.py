"""Compiles the device "npu" of tests/stubs/torch_npu, once for this source, torch and compiler."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

from tests.e2e.launching import ROOT, environment

SOURCE = ROOT / "tests/stubs/torch_npu/npu.cpp"
TORCH = Path(torch.__file__).parent


@pytest.fixture(scope="session")
def npu(pytestconfig) -> dict[str, str]:
    """The environment of a process in which ``import torch`` finds torch_npu."""
    compiler = shutil.which("g++")
    headers = Path(sysconfig.get_paths()["include"])
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("no g++ or no Python headers: the device npu of the tests cannot be compiled")
    key = hashlib.sha256(f"{torch.__version__} {TORCH} {headers} {SOURCE.read_text()}".encode()).hexdigest()[:16]
    library = pytestconfig.cache.mkdir("stub_npu") / f"stub_npu_{key}.so"
    if not library.exists():
        _compile(compiler, headers, library)
    paths = [str(SOURCE.parents[1]), environment()["PYTHONPATH"]]
    return environment() | {"PYTHONPATH": os.pathsep.join(paths), "STUB_NPU": str(library), "HF_HUB_OFFLINE": "1"}


def _compile(compiler: str, headers: Path, library: Path) -> None:
    """Two processes may do it at once: the file appears whole."""
    part = library.with_suffix(f".{os.getpid()}")
    include = [TORCH / "include", TORCH / "include/torch/csrc/api/include", headers]
    command = [
        compiler,
        "-std=c++17",
        "-O0",
        "-w",
        "-shared",
        "-fPIC",
        "-DTORCH_EXTENSION_NAME=stub_npu",
        *(f"-I{path}" for path in include),
    ]
    libraries = [f"-L{TORCH / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    subprocess.run([*command, SOURCE, *libraries, "-o", part], check=True)
    os.replace(part, library)
