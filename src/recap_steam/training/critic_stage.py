"""Rule train_critic: from an experiment's files to a trained critic folder."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam import devices
from recap_steam.config import CriticConfig, Experiment, camera_keys, result_parameters
from recap_steam.critics.architecture import Architecture
from recap_steam.critics.folder import CriticCard
from recap_steam.critics.frames import CriticFrames
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.prompts import prompt_text
from recap_steam.critics.weights import load_pretrained
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.frames import FrameCache
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.normalizer import fit_normalizer
from recap_steam.lineage import Lineage, code_digest, digest_file
from recap_steam.sidecar import read_sidecar, sidecar_path
from recap_steam.tokenizer import PreTrainedTokenizerFast, check_vocabulary, load_tokenizer, train_tokenizer
from recap_steam.training.critic import CriticTraining, LabelledFrames
from recap_steam.training.loop import train
from recap_steam.training.order import mixture_weights


@dataclasses.dataclass(frozen=True)
class Source:
    """What a critic reads of one dataset: ``keys`` of ``config.camera_keys``, ``returns`` (F,) float32 in frames."""

    episodes: Episodes
    cache: FrameCache
    keys: dict[str, str | None]
    returns: np.ndarray
    returns_path: Path


def train_critic_stage(
    experiment: Experiment, tag: str, episodes_dir: Path | str, frames_dir: Path | str, state_dir: Path | str, output_dir: Path | str
) -> None:
    """Train critic ``tag`` and write its folder. Runs under torchrun.

    Raises:
        UserError: an input is missing or belongs to something else, the model's parts do not fit, or what ``loop.train`` raises.
    """
    config = experiment.critics[tag]
    with devices.distributed():
        names = [*config.datasets, *config.eval_datasets]
        sources = {name: _read(experiment, config, name, Path(episodes_dir), Path(frames_dir)) for name in names}
        trainable = _trainable(experiment, config, sources)
        train(trainable, config, Path(state_dir), Path(output_dir), _lineage(experiment, tag, sources))


def _read(experiment: Experiment, config: CriticConfig, name: str, episodes_dir: Path, frames_dir: Path) -> Source:
    dataset = experiment.datasets[name]
    episodes = load_episodes(episodes_dir / f"{name}.parquet", open_dataset(name, dataset.path))
    size = config.model.image_size
    cache = FrameCache.open(frames_dir / f"{name}_{size}px.arrow", episodes, image_size=size)
    path = sidecar_path(dataset, name, f"returns_{config.returns_tag}")
    parameters = dataclasses.asdict(experiment.returns[config.returns_tag])
    returns = read_sidecar(path, "returns", episodes, ["return"], parameters=parameters).columns["return"]
    return Source(episodes, cache, camera_keys(experiment, name, config.cameras), returns, path)


def _trainable(experiment: Experiment, config: CriticConfig, sources: dict[str, Source]) -> CriticTraining:
    training = [sources[name] for name in config.datasets]
    tokenizer = _tokenizer(config, training)
    card = CriticCard(
        architecture=Architecture.from_config(config.model),
        cameras=config.cameras,
        camera_maps={name: sources[name].keys for name in config.datasets},
        image_size=config.model.image_size,
        max_token_len=config.model.max_token_len,
    )
    check_vocabulary(tokenizer, card.architecture.gemma3["vocab_size"], "critics.*.model.tokenizer_path")
    triples = [(source.returns, source.episodes.prompt_codes(), source.episodes.tasks) for source in training]
    normalizer = fit_normalizer(triples, config.normalization, offset=0.0 if config.normalize_to_minus_one_zero else 1.0)

    def labelled(name: str) -> LabelledFrames:
        source = sources[name]
        codes, tasks = source.episodes.prompt_codes(), source.episodes.tasks
        frames = CriticFrames(source.cache, list(source.keys.values()), card.prompts(tasks, tokenizer), codes)
        return LabelledFrames(frames, source.episodes, normalizer.normalize(source.returns, codes, tasks))

    return CriticTraining(
        config,
        _model(config, card.architecture),
        card,
        tokenizer,
        normalizer,
        [labelled(name) for name in config.datasets],
        [labelled(name) for name in config.eval_datasets],
        mixture_weights(experiment, config, [source.episodes.num_frames for source in training]),
    )


def _model(config: CriticConfig, architecture: Architecture) -> ValueCritic:
    """The critic that training starts from; whole in process 0 only."""
    devices.seed(config.seed)
    with devices.blueprint():
        model = ValueCritic(architecture)
    devices.on_main(lambda: load_pretrained(model, config.model.siglip_path, config.model.gemma3_path))
    if config.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    return model


def _tokenizer(config: CriticConfig, training: list[Source]) -> PreTrainedTokenizerFast:
    model = config.model
    if folder := model.tokenizer_path or model.gemma3_path:
        return load_tokenizer(folder)
    texts = [prompt_text(task) for source in training for task in source.episodes.tasks]
    return train_tokenizer(texts, Architecture.from_config(model).gemma3["vocab_size"])


def _lineage(experiment: Experiment, tag: str, sources: dict[str, Source]) -> Lineage:
    config = experiment.critics[tag]
    parameters = result_parameters(config)
    parameters["returns"] = dataclasses.asdict(experiment.returns[config.returns_tag])
    parameters["weights"] = {name: experiment.datasets[name].weight for name in config.datasets}
    parameters["camera_maps"] = {name: source.keys for name, source in sources.items()}
    inputs = {f"episodes/{name}": source.episodes.fingerprint for name, source in sources.items()}
    inputs |= {f"frames/{name}": source.cache.digest for name, source in sources.items()}
    inputs |= {f"returns/{name}": digest_file(source.returns_path) for name, source in sources.items()}
    inputs |= devices.on_main(lambda: _pretrained_digests(config))
    return Lineage("train_critic", tag, None, parameters, inputs, {}, code_digest(__name__))


def _pretrained_digests(config: CriticConfig) -> dict[str, str]:
    """Digests of the pretrained weights, their architecture and the tokenizer that training starts from."""
    model = config.model
    read = [(key, getattr(model, key), ("config.json", "*.safetensors")) for key in ("siglip_path", "gemma3_path")]
    read.append(("tokenizer", model.tokenizer_path or model.gemma3_path, ("tokenizer*.json",)))
    paths = [(key, path) for key, folder, patterns in read if folder for pattern in patterns for path in Path(folder).glob(pattern)]
    return {f"{key}/{path.name}": digest_file(path) for key, path in paths}
