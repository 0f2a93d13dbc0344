import pytest

from recap_steam.simulation_config import CollectConfig, MetaWorldConfig

ENVIRONMENT = {
    "simulator": "metaworld",
    "task": "drawer-open-v3",
    "prompt": "open the drawer",
    "camera_name": "corner2",
    "image_size": 32,
    "action_repeat": 5,
    "max_episode_steps": 40,
}
COLLECT = {
    "environment": "drawer",
    "policy": "expert",
    "cfgrl_guidance_scale": 1.0,
    "num_episodes": 3,
    "seed": 5,
    "action_noise": 0.0,
    "noise_hold": 1,
    "intervention_probability": 0.0,
    "intervention_after": 20,
}


@pytest.fixture(scope="session")
def environment_config():
    return lambda **changes: MetaWorldConfig(**{**ENVIRONMENT, **changes})


@pytest.fixture(scope="session")
def collect_config():
    return lambda **changes: CollectConfig(**{**COLLECT, **changes})
