"""Rule train_policy: from the experiment and its files to a trained policy's folder."""

import dataclasses
from pathlib import Path

from recap_steam import devices
from recap_steam.config import Experiment
from recap_steam.dataset.frames import FrameCache
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, code_digest, digest_file
from recap_steam.model_config import PolicyModelConfig
from recap_steam.policy import pi05
from recap_steam.policy.folder import Serving, load_serving
from recap_steam.policy.norm_stats import load_statistics, norm_stats_lineage
from recap_steam.policy.processors import load_processors, make_processors, statistics_of
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.policy.samples import Source, load_sources
from recap_steam.sidecar import sidecar_path
from recap_steam.tokenizer import PreTrainedTokenizerFast, load_tokenizer, train_tokenizer
from recap_steam.training.loop import train
from recap_steam.training.order import mixture_weights
from recap_steam.training.policy import PolicyTraining


def train_policy_stage(
    experiment: Experiment,
    tag: str,
    episodes_dir: Path,
    frames_dir: Path,
    norm_stats: Path,
    state_dir: Path,
    output_dir: Path,
    init_dir: Path | None = None,
) -> None:
    """Train policy ``tag``. Called in every process of torchrun; resumes from ``state_dir``.

    Args:
        norm_stats: the policy's statistics; unused if it starts from another policy, whose own it keeps.
        init_dir: folder of the policy that training starts from (``init_from``).

    Raises:
        UserError: inputs that are missing or of another lineage, weights that do not fit, and what ``train`` raises.
    """
    config = experiment.policies[tag]
    if (config.init_from is None) != (init_dir is None):
        raise UserError(f"policies.{tag}.init_from is {config.init_from}, so --init-dir must be {'absent' if init_dir else 'given'}")
    with devices.distributed():
        devices.seed(config.seed)
        sources = load_sources(experiment, tag, episodes_dir, with_labels=True)
        size = config.model.image_size
        frames = [FrameCache.open(frames_dir / f"{s.name}_{size}px.arrow", s.episodes, image_size=size) for s in sources]
        policy, processors, tokenizer = _start(experiment, tag, sources, norm_stats, init_dir)
        weights = mixture_weights(experiment, config, [len(source.selected) for source in sources])
        trainable = PolicyTraining(config, policy, processors, tokenizer, sources, frames, weights)
        lineage = _lineage(experiment, tag, sources, frames, norm_stats, init_dir)
        train(trainable, config, state_dir, output_dir, lineage)


def _start(experiment: Experiment, tag: str, sources: list[Source], norm_stats: Path, init_dir: Path | None) -> tuple:
    """The policy that training starts from, its processors and its tokenizer."""
    config = experiment.policies[tag]
    stock = pi05.make_config(config.model, config.cameras, sources[0].states.shape[1], sources[0].actions.shape[1])
    policy = pi05.build(stock, config.model.small)
    if init_dir:
        _check_robot(tag, init_dir, load_serving(init_dir), sources[0])
        statistics = statistics_of(load_processors(stock, init_dir)[0])
        pi05.load_weights(policy, init_dir / "model.safetensors")
        tokenizer = load_tokenizer(init_dir / "tokenizer")
    else:
        statistics = load_statistics(norm_stats, **norm_stats_lineage(experiment, tag, sources))
        tokenizer = _tokenizer(config.model, sources)
        if config.model.pretrained_path:
            pi05.load_weights(policy, Path(config.model.pretrained_path) / "model.safetensors")
    embedded = policy.model.get_parameter(pi05.EMBEDDING).shape[0]
    if len(tokenizer) > embedded:
        raise UserError(f"policies.{tag}.model: the tokenizer has {len(tokenizer)} tokens, the model embeds {embedded}; give its own")
    return policy, make_processors(stock, statistics, tokenizer), tokenizer


def _check_robot(tag: str, init_dir: Path, start: Serving, source: Source) -> None:
    was, now = (start.state_dim, start.action_dim), (source.states.shape[1], source.actions.shape[1])
    if was != now:
        raise UserError(
            f"policies.{tag}.init_from: {init_dir} was trained with {was[0]} state and {was[1]} action dimensions, dataset {source.name} "
            f"has {now[0]} and {now[1]}; continue on data of the same robot"
        )


def _tokenizer_folder(model: PolicyModelConfig) -> Path | None:
    """Where a given tokenizer lies; None: one is trained on the prompts."""
    if model.tokenizer_path:
        return Path(model.tokenizer_path)
    return Path(model.pretrained_path) / "tokenizer" if model.pretrained_path else None


def _tokenizer(model: PolicyModelConfig, sources: list[Source]) -> PreTrainedTokenizerFast:
    if folder := _tokenizer_folder(model):
        return load_tokenizer(folder)
    if model.small is None:
        raise UserError("policies.*.model.tokenizer_path: a full-size policy needs PaliGemma's tokenizer; give its local folder")
    tasks = sorted({task for source in sources for task in source.episodes.tasks})
    return train_tokenizer(tokenizer_corpus(tasks), model.small.vocab_size)


def _lineage(
    experiment: Experiment, tag: str, sources: list[Source], frames: list[FrameCache], norm_stats: Path, init_dir: Path | None
) -> Lineage:
    config = experiment.policies[tag]
    inputs = {f"episodes/{source.name}": source.episodes.fingerprint for source in sources}
    inputs |= {f"frames/{source.name}": cache.digest for source, cache in zip(sources, frames, strict=True)}
    files = {"init": init_dir / "model.safetensors"} if init_dir else {"norm_stats": norm_stats}
    if config.model.pretrained_path:
        files["pretrained"] = Path(config.model.pretrained_path) / "model.safetensors"
    if not init_dir and (folder := _tokenizer_folder(config.model)):
        files["tokenizer"] = folder / "tokenizer.json"
    if config.advantage_tag:
        stem = f"advantages_{config.advantage_tag}"
        files |= {f"advantages/{name}": sidecar_path(experiment.datasets[name], name, stem) for name in config.datasets}
    inputs |= {name: digest_file(path) for name, path in files.items()}
    parameters = {"policy": dataclasses.asdict(config), "weights": {name: experiment.datasets[name].weight for name in config.datasets}}
    return Lineage("train_policy", tag, None, parameters, inputs, {}, code_digest(__name__))
