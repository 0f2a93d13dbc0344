import pytest

from recap_steam.training.critic_stage import train_critic_stage
from tests.unit.critics.experiment import Files, make


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Files:
    """An experiment up to the critic's inputs."""
    return make(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="session")
def critic_dir(files, tmp_path_factory):
    """A trained critic folder; do not change it."""
    folder = tmp_path_factory.mktemp("critic")
    train_critic_stage(files.experiment, "value", files.episodes, files.frames, folder / "state", folder / "value")
    return folder / "value"
