"""What the stages that train critics share: the data of one dataset, the model and the tokenizer that training starts from."""

import dataclasses
from pathlib import Path

from torch import nn

from recap_steam import devices
from recap_steam.config import CriticConfig, Experiment, ProgressCriticConfig, camera_keys
from recap_steam.critics.folder import Card
from recap_steam.critics.frames import CriticFrames
from recap_steam.critics.prompts import prompt_text
from recap_steam.critics.weights import load_pretrained
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.frames import FrameCache
from recap_steam.dataset.layout import open_dataset
from recap_steam.lineage import digest_file
from recap_steam.model_config import TowersConfig
from recap_steam.tokenizer import PreTrainedTokenizerFast, check_vocabulary, load_tokenizer, train_tokenizer


@dataclasses.dataclass(frozen=True)
class Source:
    """What a critic reads of one dataset; ``keys`` of ``config.camera_keys``."""

    name: str
    episodes: Episodes
    cache: FrameCache
    keys: dict[str, str | None]

    @classmethod
    def read(
        cls, experiment: Experiment, config: CriticConfig | ProgressCriticConfig, name: str, episodes_dir: Path, frames_dir: Path
    ) -> "Source":
        """Raises UserError where index or frame cache are missing or of something else."""
        size = config.model.image_size
        episodes = load_episodes(episodes_dir / f"{name}.parquet", open_dataset(name, experiment.datasets[name].path))
        cache = FrameCache.open(frames_dir / f"{name}_{size}px.arrow", episodes, image_size=size)
        return cls(name, episodes, cache, camera_keys(experiment, name, config.cameras))

    def frames(self, card: Card, tokenizer: PreTrainedTokenizerFast) -> CriticFrames:
        prompts = card.prompts(self.episodes.tasks, tokenizer)
        return CriticFrames(self.cache, list(self.keys.values()), prompts, self.episodes.prompt_codes())

    def digests(self) -> dict[str, str]:
        """Of what is read, by the names that a lineage record uses."""
        return {f"episodes/{self.name}": self.episodes.fingerprint, f"frames/{self.name}": self.cache.digest}


def start_model[Model: nn.Module](config: CriticConfig | ProgressCriticConfig, kind: type[Model], architecture: object) -> Model:
    """The critic of class ``kind`` that training starts from, drawn by the seed and loaded where folders are given; whole in process 0
    only."""
    devices.seed(config.seed)
    with devices.blueprint():
        model = kind(architecture)
    devices.on_main(lambda: load_pretrained(model, config.model.siglip_path, config.model.gemma3_path))
    if config.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    return model


def start_tokenizer(model: TowersConfig, sources: list[Source], template: str, vocab_size: int) -> PreTrainedTokenizerFast:
    """The given tokenizer, or one trained on the prompts; ``vocab_size`` is the text model's.

    Raises:
        UserError: it has more tokens than the text model knows.
    """
    if folder := model.tokenizer_path or model.gemma3_path:
        tokenizer = load_tokenizer(folder)
    else:
        tokenizer = train_tokenizer([prompt_text(task, template) for source in sources for task in source.episodes.tasks], vocab_size)
    check_vocabulary(tokenizer, vocab_size, "critics.*.model.tokenizer_path")
    return tokenizer


def pretrained_digests(model: TowersConfig) -> dict[str, str]:
    """Digests of the pretrained weights, their architecture and the tokenizer that training starts from."""
    read = [(key, getattr(model, key), ("config.json", "*.safetensors")) for key in ("siglip_path", "gemma3_path")]
    read.append(("tokenizer", model.tokenizer_path or model.gemma3_path, ("tokenizer*.json",)))
    paths = [(key, path) for key, folder, patterns in read if folder for pattern in patterns for path in Path(folder).glob(pattern)]
    return {f"{key}/{path.name}": digest_file(path) for key, path in paths}
