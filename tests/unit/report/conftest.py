from pathlib import Path

import pytest

from tests.experiments import run_small


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """The folder in which the small experiment ran to its end; paths of its configuration are relative to it. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_small()
    return folder
