"""What labels are made from, read with every check that they belong together: one dataset's returns and values, and the critic's scale."""

import dataclasses
from pathlib import Path

import numpy as np

from recap_steam.config import Experiment
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.advantages import Advantages, compute_advantages
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.parameters import returns_parameters
from recap_steam.lineage import Lineage, check_lineage, digest_file, digest_json
from recap_steam.sidecar import read_sidecar, sidecar_path


@dataclasses.dataclass(frozen=True)
class Critic:
    """What labels need of a trained critic: its identity, its return scale and the returns it learned, with their discount per frame."""

    tag: str
    digest: str
    normalizer: ReturnNormalizer
    returns_tag: str
    gamma: float


@dataclasses.dataclass(frozen=True)
class LabelInputs:
    """One dataset's frames, both (F,) in row order: ``returns`` float32, in frames; ``values`` float64, in returns divided by |return_min|.

    ``digests``: of everything that was read, by the names that a lineage record uses.
    """

    name: str
    episodes: Episodes
    returns: np.ndarray
    values: np.ndarray
    digests: dict[str, str]


def critic_digest(critic_dir: Path | str) -> str:
    """Identity of a trained critic: digest over its lineage record (which holds the digest of the weights) and its return scale.

    Small files only, so that label stages need not read the weights.
    """
    return _digest(critic_dir, ("lineage.json", "normalizer.json"))


def ensemble_digest(critic_dir: Path | str) -> str:
    """Identity of an ensemble of progress critics: digest over its lineage record (which holds the digest of the weights) and its
    configuration."""
    return _digest(critic_dir, ("lineage.json", "config.json"))


def _digest(folder: Path | str, names: tuple[str, ...]) -> str:
    return digest_json({name: digest_file(Path(folder) / name) for name in names})


def load_critic(experiment: Experiment, tag: str, critic_dir: Path | str) -> Critic:
    """Read the critic that the label tag ``tag`` names, and check that it learned the returns that the experiment names.

    Raises:
        UserError: incomplete folder, another critic's folder, or returns of other parameters.
    """
    name = experiment.advantages[tag].critic
    returns_tag = experiment.critics[name].returns_tag
    path = Path(critic_dir) / "lineage.json"
    digest = critic_digest(critic_dir)
    lineage = Lineage.from_json(path.read_text(), path=path)
    check_lineage(
        lineage,
        path=path,
        remedy=f"train the critic again (rule train_critic, tag {name})",
        tag=name,
        parameters={"returns": returns_parameters(experiment, returns_tag)},
    )
    return Critic(name, digest, ReturnNormalizer.load(critic_dir), returns_tag, experiment.returns[returns_tag].gamma)


def load_label_inputs(experiment: Experiment, name: str, critic: Critic, episodes_path: Path | str) -> LabelInputs:
    """Read returns and values of dataset ``name``.

    Raises:
        UserError: a file is missing, belongs to another version of the dataset, to another critic or to other return parameters, or
            holds NaN; the message names the file and, for NaN, episode and frame.
    """
    config = experiment.datasets[name]
    episodes = load_episodes(episodes_path, open_dataset(name, config.path))
    returns_path = sidecar_path(config, name, f"returns_{critic.returns_tag}")
    values_path = sidecar_path(config, name, f"values_{critic.tag}")
    parameters = returns_parameters(experiment, critic.returns_tag)
    returns = read_sidecar(returns_path, "returns", episodes, ["return"], parameters=parameters).columns["return"]
    values = read_sidecar(values_path, "values", episodes, ["value"], inputs={"critic": critic.digest}).columns["value"]
    check_finite(values, "value", values_path, episodes)
    digests = {f"episodes/{name}": episodes.fingerprint}
    digests |= {f"returns/{name}": digest_file(returns_path), f"values/{name}": digest_file(values_path)}
    return LabelInputs(name, episodes, returns, critic.normalizer.without_offset(values), digests)


def check_finite(values: np.ndarray, column: str, path: Path, episodes: Episodes) -> None:
    """Raise UserError naming the first infinite value (``read_sidecar`` has refused NaN): it would become the threshold."""
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        episode, frame = (int(key[0]) for key in episodes.frame_keys(row, row + 1))
        raise UserError(f"{path}: column '{column}' is infinite at episode {episode}, frame {frame}; the critic is broken, train it again")


def score(inputs: LabelInputs, critic: Critic, lookahead: int, discount_next_value: bool) -> Advantages:
    """Return the advantages of a dataset; see ``compute_advantages``."""
    episodes = inputs.episodes
    scale = critic.normalizer.scale(episodes.prompt_codes(), episodes.tasks)
    return compute_advantages(
        inputs.returns,
        inputs.values,
        episodes.length,
        lookahead=lookahead,
        gamma=critic.gamma,
        discount_next_value=discount_next_value,
        scale=scale,
    )
