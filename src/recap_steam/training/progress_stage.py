"""Rule train_member: from an experiment's files to the folder of one member of an ensemble of progress critics."""

import copy
import dataclasses
from pathlib import Path

import numpy as np

from recap_steam import devices
from recap_steam.config import Experiment, ProgressCriticConfig, result_parameters
from recap_steam.critics.architecture import ProgressArchitecture
from recap_steam.critics.ensemble import TRAINED
from recap_steam.critics.pairs import LengthScale, PairSamples, eligible_episodes, fit_length_scale
from recap_steam.critics.progress_folder import ProgressCard
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.errors import config_error
from recap_steam.lineage import Lineage, code_digest
from recap_steam.references import all_datasets
from recap_steam.training.critic_parts import Source, pretrained_digests, start_model, start_tokenizer
from recap_steam.training.loop import train
from recap_steam.training.order import mixture_weights
from recap_steam.training.progress import PairedFrames, ProgressTraining


@dataclasses.dataclass(frozen=True)
class PairSource(Source):
    """A dataset with its episodes that critics may learn from: ``eligible`` (E,) bool."""

    eligible: np.ndarray


def train_member_stage(
    experiment: Experiment,
    tag: str,
    member: int,
    episodes_dir: Path | str,
    frames_dir: Path | str,
    state_dir: Path | str,
    output_dir: Path | str,
) -> None:
    """Train member number ``member`` of critic ``tag`` and write its folder. Runs under torchrun.

    Members start from the same backbone; the classifier and the order of the data are drawn by [seed, member].

    Raises:
        UserError: an input is missing or belongs to something else, the model's parts do not fit, or what ``loop.train`` raises.
    """
    config = experiment.critics[tag]
    with devices.distributed():
        sources = {name: _read(experiment, tag, name, Path(episodes_dir), Path(frames_dir)) for name in all_datasets(config)}
        trainable = _trainable(experiment, config, sources, member)
        lineage = _lineage(experiment, tag, member, sources, trainable.card)
        train(trainable, _with_own_order(config, member), Path(state_dir), Path(output_dir), lineage)


def _read(experiment: Experiment, tag: str, name: str, episodes_dir: Path, frames_dir: Path) -> PairSource:
    config, kind = experiment.critics[tag], experiment.datasets[name].type
    source = Source.read(experiment, config, name, episodes_dir, frames_dir)
    eligible = eligible_episodes(source.episodes, config.min_episode_length, config.only_success and kind == "rollout")
    if name in config.datasets and not eligible.any():
        wanted = "successful episode" if config.only_success and kind == "rollout" else "episode"
        message = f"'{name}' has no {wanted} of {config.min_episode_length} frames or more; remove it"
        raise config_error(f"critics.{tag}.datasets", message)
    if not eligible_episodes(source.episodes, config.min_episode_length, False).any():
        message = f"'{name}' has no episode of {config.min_episode_length} frames or more; remove it"
        raise config_error(f"critics.{tag}.eval_datasets", message)
    return PairSource(**vars(source), eligible=eligible)


def _trainable(experiment: Experiment, config: ProgressCriticConfig, sources: dict[str, PairSource], member: int) -> ProgressTraining:
    training = [sources[name] for name in config.datasets]
    card = ProgressCard(
        architecture=ProgressArchitecture.from_config(config.model),
        cameras=config.cameras,
        camera_maps={name: sources[name].keys for name in config.datasets},
        image_size=config.model.image_size,
        max_token_len=config.model.max_token_len,
        k=config.k,
        length_scale=_length_scale(config, training),
    )
    tokenizer = start_tokenizer(config.model, training, card.prompt_template, card.architecture.gemma3["vocab_size"])

    def paired(name: str) -> PairedFrames:
        """Critics learn from eligible episodes and are judged on all that are long enough, by outcome."""
        source, episodes = sources[name], sources[name].episodes
        used = source.eligible if name in config.datasets else eligible_episodes(episodes, config.min_episode_length, False)
        pairs = PairSamples(episodes, used, card.k, card.architecture.num_bins, card.length_scale)
        return PairedFrames(source.frames(card, tokenizer), episodes, pairs, source.eligible)

    parts = [paired(name) for name in config.datasets]
    model = start_model(config, ProgressCritic, card.architecture)
    devices.seed(config.seed, member)
    model.reset_head()
    weights = mixture_weights(experiment, config, [len(part.pairs) for part in parts])
    return ProgressTraining(config, model, card, tokenizer, parts, [paired(name) for name in config.eval_datasets], weights)


def _length_scale(config: ProgressCriticConfig, training: list[PairSource]) -> LengthScale | None:
    if not config.length_scale_enabled:
        return None
    return fit_length_scale([source.episodes.length[source.eligible] for source in training], config.length_scale_percentile)


def _with_own_order(config: ProgressCriticConfig, member: int) -> ProgressCriticConfig:
    """The configuration with a seed of this member, which orders the data; a slice of one cannot be made again from its fields."""
    own = copy.copy(config)
    object.__setattr__(own, "seed", int(np.random.SeedSequence([config.seed, member]).generate_state(1)[0]))
    return own


def _lineage(experiment: Experiment, tag: str, member: int, sources: dict[str, PairSource], card: ProgressCard) -> Lineage:
    """``parameters.rollouts`` are the training datasets that are not expert data."""
    config = experiment.critics[tag]
    parameters = result_parameters(config)
    parameters["member"] = member
    parameters["weights"] = {name: experiment.datasets[name].weight for name in config.datasets}
    parameters["camera_maps"] = {name: source.keys for name, source in sources.items()}
    parameters["rollouts"] = [name for name in config.datasets if experiment.datasets[name].type == "rollout"]
    parameters["eligible_episodes"] = {name: int(sources[name].eligible.sum()) for name in config.datasets}
    parameters["length_scale"] = card.length_scale and dataclasses.asdict(card.length_scale)
    inputs = {name: digest for source in sources.values() for name, digest in source.digests().items()}
    inputs |= devices.on_main(lambda: pretrained_digests(config.model))
    return Lineage(TRAINED, tag, None, parameters, inputs, {}, code_digest(__name__))
