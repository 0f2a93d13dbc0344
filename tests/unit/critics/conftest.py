from pathlib import Path

import pytest
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM, Gemma3TextModel
from transformers.models.siglip.configuration_siglip import SiglipConfig, SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipModel, SiglipVisionModel

from recap_steam.critics.ensemble import merge_stage
from recap_steam.training.critic_stage import train_critic_stage
from recap_steam.training.progress_stage import train_member_stage
from tests.unit.critics.experiment import Files, make
from tests.unit.critics.small import SIX_LAYERS, TEXT_TOWER, VISION


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


@pytest.fixture(scope="session")
def members(files, tmp_path_factory) -> list[Path]:
    """Folders of two members of a progress critic; do not change them."""
    folder, run = tmp_path_factory.mktemp("members"), files.with_progress()
    for number in range(2):
        train_member_stage(run.experiment, "progress", number, run.episodes, run.frames, folder / f"state{number}", folder / str(number))
    return [folder / str(number) for number in range(2)]


@pytest.fixture(scope="session")
def ensemble_dir(members, tmp_path_factory) -> Path:
    """The ensemble of ``members``; do not change it."""
    folder = tmp_path_factory.mktemp("ensemble") / "progress"
    merge_stage([str(member) for member in members], folder, overwrite=False)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Pretrained folders, written by transformers itself: whole models and the parts we need of them."""
    root = tmp_path_factory.mktemp("pretrained")
    models = {
        "siglip": SiglipModel(SiglipConfig(text_config=TEXT_TOWER, vision_config=VISION)),
        "tower": SiglipVisionModel(SiglipVisionConfig(**VISION)),
        "gemma": Gemma3ForCausalLM(Gemma3TextConfig(**SIX_LAYERS)),
        "text": Gemma3TextModel(Gemma3TextConfig(**SIX_LAYERS)),
    }
    for name, model in models.items():
        model.save_pretrained(root / name)
    return root, models
