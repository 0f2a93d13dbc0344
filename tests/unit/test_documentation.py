"""Links between the documents lead somewhere, and both readmes have the same parts."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
READMES = [REPOSITORY / "README.md", REPOSITORY / "README.zh.md"]
DOCUMENTS = [*READMES, REPOSITORY / "config/README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_both_readmes_have_the_same_parts() -> None:
    parts = [[line.split()[0] for line in path.read_text().splitlines() if re.match(r"#+ |```\w", line)] for path in READMES]
    assert parts[0] == parts[1] and len(parts[0]) > 10
