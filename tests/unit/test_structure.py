"""The structure that the code promises: rooms import downwards, CPU stages stay light, scripts stay thin, nothing names a host."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src/recap_steam"
SCRIPTS = sorted((REPOSITORY / "workflow/scripts").glob("*.py"))
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    *("errors", "accelerators", "files", "background", "lineage", "rates", "schema", "records"),
    *("model_config", "label_config", "simulation_config", "replicates", "rounds", "config"),
    *("model_checks", "steam_checks", "import_checks", "simulation_checks", "references"),
    *("dataset", "sidecar_schemas", "sidecar", "labels"),  # neither torch nor lerobot up to here
    *("tokenizer", "devices", "slurm", "launch", "weights", "critics", "policy", "training", "serving"),
    *("simulation", "report", "costs"),
)
CPU_ROOMS = (*ROOMS[: ROOMS.index("labels") + 1], "report", "costs")
HEAVY = ("torch", "lerobot", "transformers", "mujoco", "metaworld")
# Package indices, download hosts and folders of one machine; written so that this file does not contain what it looks for.
HOST = re.compile("|".join([r"\bpy" + r"pi\.", "python" + r"hosted\.", r"\bdownload" + r"\.\w+\.", "/wo" + "rk/", "/ro" + "ot/"]), re.I)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, anywhere in it: ``from a.b import c`` as ``a.b.c``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_has_its_place() -> None:
    assert {room(path) for path in MODULES} - {"__init__"} == set(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_rooms_import_only_downwards(path: Path) -> None:
    if path.parent == PACKAGE and path.name == "__init__.py":
        assert not list(imports(path))
        return
    for imported in imports(path):
        package, *parts = imported.split(".")
        if package == PACKAGE.name and parts:
            assert ROOMS.index(parts[0]) <= ROOMS.index(room(path)), f"{name(path)} imports {imported}, which is above it"


def test_the_library_knows_nothing_of_snakemake() -> None:
    assert [name(path) for path in MODULES if any(imported.split(".")[0] == "snakemake" for imported in imports(path))] == []


def test_cpu_rooms_load_no_heavy_library() -> None:
    """Importing lerobot costs a job 12 seconds and more."""
    modules = [name(path) for path in MODULES if room(path) in CPU_ROOMS]
    code = f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\nprint(*(h for h in {HEAVY!r} if h in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_one_file_names_accelerators() -> None:
    """All others ask torch.accelerator or that file, so that the same code runs on CUDA, Ascend and a CPU. Prose may say what it means."""
    vendor = re.compile(r"\b(cuda|nccl|npu|hccl|torch_npu|ascend|nvidia)\b|\b(CUDA|NCCL|ASCEND|NPU|HCCL|GPU)_|\bgpu:|NVIDIA ")
    files = [*MODULES, *(REPOSITORY / "workflow").rglob("*.*"), REPOSITORY / "Snakefile", *(REPOSITORY / "benchmarks").glob("*.py")]
    assert len(files) > 100
    found = {file: vendor.findall(file.read_text()) for file in files if file.suffix in ("", ".py", ".smk", ".html")}
    naming = [str(file.relative_to(REPOSITORY)) for file, names in found.items() if names]
    assert naming == ["src/recap_steam/accelerators.py"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_parser_and_one_call(path: Path) -> None:
    tree = ast.parse(path.read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    stages = [imported for imported in imports(path) if imported.startswith("recap_steam.") and imported.endswith("_stage")]
    assert ast.get_docstring(tree)
    assert functions == ["main"]
    assert len(stages) == 1
    assert ast.unparse(tree.body[-1]) == "if __name__ == '__main__':\n    run_main(main)"
    assert len(path.read_text().splitlines()) < 40


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 250
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 50, f"{name(path)}.{node.name}"


def test_no_file_names_a_package_host_or_a_place_on_a_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\n")
    files = [REPOSITORY / file for file in tracked if file and (REPOSITORY / file).is_file()]
    assert len(files) > 50
    text = [file for file in files if file.suffix not in (".png", ".mp4", ".parquet")]
    assert [str(file) for file in text if HOST.search(file.read_text(errors="replace"))] == []
