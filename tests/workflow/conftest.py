"""Two trees that dry runs share."""

import pytest

from tests.workflow.tree import Tree, copy_workflow, make_weights


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The workflow as a fresh clone has it. Only for dry runs."""
    return copy_workflow(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The workflow after the demo. Only for dry runs."""
    tree = copy_workflow(tmp_path_factory.mktemp("finished"))
    make_weights(tree.path / "another")  # where a test gives another path to weights
    tree.finish()
    return tree
