"""What docs/ascend.md promises: nothing is patched, nothing that broke other ports is installed, and its table is the code's."""

import ast
import dataclasses
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from recap_steam.accelerators import ACCELERATORS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/ascend.md").read_text()
LOCKS = [REPOSITORY / "envs" / name for name in ("requirements.txt", "ascend.txt")]
OURS = ("recap_steam", "tests", "benchmarks")
# Sizes of a small pi0.5, while it is constructed: lerobot has no other way to ask for them. Never at full size. And the folder of LIBERO's
# assets, which it takes from nowhere else without a download; only where it simulates.
STATED = {"src/recap_steam/policy/pi05.py": 2, "src/recap_steam/simulation/libero_package.py": 1}


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield str(path.relative_to(REPOSITORY)), ast.parse(path.read_text())


def imported(tree: ast.Module) -> dict[str, str]:
    """Local name: what it was imported as, anywhere in a file."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def changes(tree: ast.Module) -> list[int]:
    """Lines that put something into a module or class of another library."""
    foreign = {name for name, origin in imported(tree).items() if origin.split(".")[0] not in OURS}
    lines = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            targets = [ast.Attribute(node.args[0])]
        lines += [node.lineno for target in targets if isinstance(target, ast.Attribute) and root(target) in foreign]
    return lines


def test_nothing_imports_torch_npu_or_its_monkey_patch() -> None:
    for path, tree in sources("src", "workflow", "benchmarks"):
        assert [name for name in imported(tree).values() if name.startswith(("torch_npu", "transfer_to_npu"))] == [], path
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    startup = [path for path in tracked if Path(path).name in ("sitecustomize.py", "usercustomize.py") or path.endswith(".pth")]
    assert [path for path in startup if not path.startswith("tests/")] == []


def test_no_library_is_changed_from_outside() -> None:
    found = {path: len(lines) for path, tree in sources("src", "workflow", "benchmarks") if (lines := changes(tree))}
    assert found == STATED


def test_such_a_change_would_be_found() -> None:
    patch = "import torch\nfrom lerobot import x as y\ntorch.distributed.init_process_group = None\nsetattr(y, 'a', 1)\nself.a = 1"
    assert changes(ast.parse(patch)) == [3, 4]


def test_the_environment_has_neither_tensorflow_nor_ray() -> None:
    for lock in LOCKS:
        names = re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE)
        assert len(names) > 100 and not {"tensorflow", "tensorflow-cpu", "ray"} & set(names)


def test_the_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = {name for path in (REPOSITORY / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert len(named) > 8 and named <= written


def test_the_choices_of_the_page_are_those_of_the_table() -> None:
    said = dict(re.findall(r"`(\w+)=([^`]+)`", PAGE))
    ascend = dataclasses.asdict(ACCELERATORS["ascend"])
    assert said == {name: repr(ascend[name]) for name in ("fused_optimizer", "compile_backend", "copies_ahead", "peak_flops")}
    assert all(f"`{name}`" in PAGE for name in ascend["environment"])
