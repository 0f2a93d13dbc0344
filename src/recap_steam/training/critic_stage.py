"""Rule train_critic: from an experiment's files to a trained critic folder."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam import devices
from recap_steam.config import CriticConfig, Experiment, result_parameters
from recap_steam.critics.architecture import Architecture
from recap_steam.critics.folder import CriticCard
from recap_steam.critics.model import ValueCritic
from recap_steam.labels.normalizer import fit_normalizer
from recap_steam.labels.parameters import returns_parameters
from recap_steam.lineage import Lineage, code_digest, digest_file
from recap_steam.references import all_datasets
from recap_steam.sidecar import read_sidecar, sidecar_path
from recap_steam.training.critic import CriticTraining, LabelledFrames
from recap_steam.training.critic_parts import Source, pretrained_digests, start_model, start_tokenizer
from recap_steam.training.loop import train
from recap_steam.training.order import mixture_weights


@dataclasses.dataclass(frozen=True)
class ReturnSource(Source):
    """A dataset with its ``returns`` (F,) float32, in frames."""

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
        sources = {name: _read(experiment, config, name, Path(episodes_dir), Path(frames_dir)) for name in all_datasets(config)}
        trainable = _trainable(experiment, config, sources)
        train(trainable, config, Path(state_dir), Path(output_dir), _lineage(experiment, tag, sources))


def _read(experiment: Experiment, config: CriticConfig, name: str, episodes_dir: Path, frames_dir: Path) -> ReturnSource:
    source = Source.read(experiment, config, name, episodes_dir, frames_dir)
    path = sidecar_path(experiment.datasets[name], name, f"returns_{config.returns_tag}")
    parameters = returns_parameters(experiment, config.returns_tag)
    returns = read_sidecar(path, "returns", source.episodes, ["return"], parameters=parameters).columns["return"]
    return ReturnSource(**vars(source), returns=returns, returns_path=path)


def _trainable(experiment: Experiment, config: CriticConfig, sources: dict[str, ReturnSource]) -> CriticTraining:
    training = [sources[name] for name in config.datasets]
    card = CriticCard(
        architecture=Architecture.from_config(config.model),
        cameras=config.cameras,
        camera_maps={name: sources[name].keys for name in config.datasets},
        image_size=config.model.image_size,
        max_token_len=config.model.max_token_len,
    )
    tokenizer = start_tokenizer(config.model, training, card.prompt_template, card.architecture.gemma3["vocab_size"])
    triples = [(source.returns, source.episodes.prompt_codes(), source.episodes.tasks) for source in training]
    normalizer = fit_normalizer(triples, config.normalization, offset=0.0 if config.normalize_to_minus_one_zero else 1.0)

    def labelled(name: str) -> LabelledFrames:
        source = sources[name]
        targets = normalizer.normalize(source.returns, source.episodes.prompt_codes(), source.episodes.tasks)
        return LabelledFrames(source.frames(card, tokenizer), source.episodes, targets)

    return CriticTraining(
        config,
        start_model(config, ValueCritic, card.architecture),
        card,
        tokenizer,
        normalizer,
        [labelled(name) for name in config.datasets],
        [labelled(name) for name in config.eval_datasets],
        mixture_weights(experiment, config, [source.episodes.num_frames for source in training]),
    )


def _lineage(experiment: Experiment, tag: str, sources: dict[str, ReturnSource]) -> Lineage:
    config = experiment.critics[tag]
    parameters = result_parameters(config)
    parameters["returns"] = returns_parameters(experiment, config.returns_tag)
    parameters["weights"] = {name: experiment.datasets[name].weight for name in config.datasets}
    parameters["camera_maps"] = {name: source.keys for name, source in sources.items()}
    inputs = {name: digest for source in sources.values() for name, digest in source.digests().items()}
    inputs |= {f"returns/{name}": digest_file(source.returns_path) for name, source in sources.items()}
    inputs |= devices.on_main(lambda: pretrained_digests(config.model))
    return Lineage("train_critic", tag, None, parameters, inputs, {}, code_digest(__name__))
