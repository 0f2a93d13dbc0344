"""docs/reference_defects.md names a test for every defect of the reference implementation, and every test that it names exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = [line for line in (TESTS.parent / "docs/reference_defects.md").read_text().splitlines() if re.match(r"\| \d+ \|", line)]
DEFECTS = {int(row.split("|")[1]): re.findall(r"`([\w/]+\.py)::(\w+)`", row) for row in ROWS}


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_defect_is_listed_once_with_a_test() -> None:
    assert sorted(int(row.split("|")[1]) for row in ROWS) == list(range(1, 49))
    assert [number for number, tests in DEFECTS.items() if not tests] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = [(path, test) for tests in DEFECTS.values() for path, test in tests]
    known = {path: functions(TESTS / path) if (TESTS / path).exists() else set() for path, _ in named}
    assert [f"{path}::{test}" for path, test in named if test not in known[path]] == []


def test_every_test_named_after_a_defect_is_on_the_page() -> None:
    found = [(str(path.relative_to(TESTS)), test) for path in sorted(TESTS.rglob("test_*.py")) for test in sorted(functions(path))]
    numbered = [(test, int(number[1])) for test in found if (number := re.match(r"test_defect_(\d\d)_", test[1]))]
    assert len(numbered) > 50
    assert ["::".join(test) for test, number in numbered if test not in DEFECTS[number]] == []
