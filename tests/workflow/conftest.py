"""Two trees that dry runs share."""

import pytest

from tests.workflow.tree import Tree, copy_workflow


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The workflow as a fresh clone has it. Only for dry runs."""
    return copy_workflow(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The workflow after the demo. Only for dry runs."""
    tree = copy_workflow(tmp_path_factory.mktemp("finished"))
    (tree.path / "another").mkdir()  # weights, where a test gives another path to them
    tree.finish()
    return tree
