"""Rule train_policy: from the experiment and its files to a trained policy's folder."""

import hashlib
from pathlib import Path

from recap_steam import devices
from recap_steam.config import Experiment, PolicyConfig, camera_keys, result_parameters
from recap_steam.dataset.frames import FrameCache
from recap_steam.errors import UserError, rerun, run_target
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file
from recap_steam.model_config import PolicyModelConfig
from recap_steam.policy import pi05
from recap_steam.policy.folder import Serving, load_serving
from recap_steam.policy.norm_stats import load_statistics, norm_stats_lineage
from recap_steam.policy.processors import load_processors, make_processors, statistics_of
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.policy.samples import Source, load_held_out, load_sources
from recap_steam.references import all_datasets, labelled_datasets
from recap_steam.sidecar import sidecar_path
from recap_steam.tokenizer import PreTrainedTokenizerFast, check_vocabulary, load_tokenizer, train_tokenizer
from recap_steam.training.loop import train
from recap_steam.training.order import mixture_weights
from recap_steam.training.policy import PolicyTraining
from recap_steam.training.policy_samples import Views
from recap_steam.weights import TensorFolder


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
        training = load_sources(experiment, tag, episodes_dir)
        held_out = load_held_out(experiment, tag, episodes_dir, like=training[0])
        views = {source.name: _views(experiment, config, source, frames_dir) for source in [*training, *held_out]}
        policy, processors, tokenizer = _start(experiment, tag, training, norm_stats, init_dir)
        if config.gradient_checkpointing:
            pi05.enable_gradient_checkpointing(policy.model)  # a switch of the modules, not of config.json
        weights = mixture_weights(experiment, config, [len(source.selected) for source in training])
        trainable = PolicyTraining(config, policy, processors, tokenizer, training, held_out, views, weights)
        inputs = _inputs(experiment, tag, [*training, *held_out], views, norm_stats, init_dir)
        train(trainable, config, state_dir, output_dir, _lineage(experiment, tag, inputs))


def _views(experiment: Experiment, config: PolicyConfig, source: Source, frames_dir: Path) -> Views:
    size = config.model.image_size
    cache = FrameCache.open(frames_dir / f"{source.name}_{size}px.arrow", source.episodes, image_size=size)
    return Views(cache, list(camera_keys(experiment, source.name, config.cameras).values()))


def _start(experiment: Experiment, tag: str, sources: list[Source], norm_stats: Path, init_dir: Path | None) -> tuple:
    """The policy that training starts from, its processors and its tokenizer. Only process 0 has weights yet."""
    config = experiment.policies[tag]
    stock = pi05.make_config(config.model, config.cameras, sources[0].states.shape[1], sources[0].actions.shape[1])
    weights = init_dir or config.model.pretrained_path
    with devices.blueprint():
        policy = pi05.build(stock, config.model.small, initialise=weights is None)
    if init_dir:
        _check_start(tag, config.init_from, init_dir)
        _check_robot(tag, init_dir, load_serving(init_dir), sources[0])
        statistics = statistics_of(load_processors(stock, init_dir)[0])
        tokenizer = load_tokenizer(init_dir / "tokenizer")
    else:
        statistics = load_statistics(norm_stats, **norm_stats_lineage(experiment, tag, [source.episodes for source in sources]))
        tokenizer = _tokenizer(config.model, sources)
    check_vocabulary(tokenizer, policy.model.get_parameter(pi05.EMBEDDING).shape[0], f"policies.{tag}.model.tokenizer_path")
    if weights:
        devices.on_main(lambda: pi05.load_weights(policy, weights))
    return policy, make_processors(stock, statistics, tokenizer), tokenizer


def _check_start(tag: str, start: str, init_dir: Path) -> None:
    """The folder is that of policy ``start``."""
    path = init_dir / "lineage.json"
    if not path.is_file():
        raise UserError(f"policies.{tag}.init_from: {path} not found; {run_target('policies')}")
    check_lineage(Lineage.from_json(path.read_text(), path=path), path=path, remedy=rerun("train_policy"), stage="train_policy", tag=start)


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


def _inputs(
    experiment: Experiment, tag: str, sources: list[Source], views: dict[str, Views], norm_stats: Path, init_dir: Path | None
) -> dict[str, str]:
    """Digests of everything that training reads; process 0 reads the files."""
    config = experiment.policies[tag]
    inputs = {f"episodes/{source.name}": source.episodes.fingerprint for source in sources}
    inputs |= {f"frames/{source.name}": views[source.name].cache.digest for source in sources}
    inputs |= {f"states/{source.name}": hashlib.sha256(source.states).hexdigest() for source in sources}  # not in the fingerprint
    weights, tokenizer = init_dir or config.model.pretrained_path, None if init_dir else _tokenizer_folder(config.model)
    files = {"init/lineage.json": init_dir / "lineage.json"} if init_dir else {"norm_stats": norm_stats}  # its statistics and tokenizer
    if weights:
        files |= {f"{'init' if init_dir else 'pretrained'}/{path.name}": path for path in TensorFolder(weights).files}
    if tokenizer:
        files |= {f"tokenizer/{path.name}": path for path in tokenizer.glob("tokenizer*.json")}
    for name in labelled_datasets(experiment, config):
        files[f"advantages/{name}"] = sidecar_path(experiment.datasets[name], name, f"advantages_{config.advantage_tag}")
    return inputs | devices.on_main(lambda: {name: digest_file(path) for name, path in files.items()})


def _lineage(experiment: Experiment, tag: str, inputs: dict[str, str]) -> Lineage:
    """``parameters.start`` says what training starts from: ``policy <tag>`` (another policy of the experiment), ``pretrained`` (the base
    model, the paper's rule for every round) or ``random``."""
    config = experiment.policies[tag]
    base = "pretrained" if config.model.pretrained_path else "random"
    parameters = {
        "policy": result_parameters(config),
        "start": f"policy {config.init_from}" if config.init_from else base,
        "cameras": {name: camera_keys(experiment, name, config.cameras) for name in all_datasets(config)},
        "weights": {name: experiment.datasets[name].weight for name in config.datasets},
    }
    return Lineage("train_policy", tag, None, parameters, inputs, {}, code_digest(__name__))
