import pytest

from recap_steam.serving.policy import PolicyService
from tests.policies import save_small_policy
from tests.serving import running


@pytest.fixture(scope="session")
def policy_dir(tmp_path_factory):
    """A policy's folder; do not change it."""
    return save_small_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def policy_port(policy_dir):
    """Port of a server whose clients may choose their guidance."""
    with running(PolicyService(policy_dir, guidance_scale=1.5, request_guidance=True)) as port:
        yield port
