"""What refers to what in a whole experiment, and its check: names exist, nothing held out is trained on, nothing waits for itself."""

import difflib
import os
from collections.abc import Iterable, Iterator

from recap_steam.accelerators import ACCELERATORS, NONE
from recap_steam.config import (
    EXPERT,
    Experiment,
    PolicyConfig,
    ProgressCriticConfig,
    TrainingConfig,
    camera_keys,
    meta_folder,
)
from recap_steam.errors import config_error
from recap_steam.import_checks import check_imports
from recap_steam.label_config import AdvantagesConfig, ImportedReturnsConfig
from recap_steam.model_checks import check_models
from recap_steam.simulation_checks import check_simulation
from recap_steam.steam_checks import check_steam


def all_datasets(config: TrainingConfig) -> list[str]:
    """Return the datasets that a critic or policy is trained or judged on."""
    return [*config.datasets, *config.eval_datasets]


def value_datasets(experiment: Experiment, critic: str) -> list[str]:
    """Return the datasets that a critic values or scores: those it learned from, those held out, those to be labelled."""
    labelled = [name for advantages in experiment.judged_labels.values() if advantages.critic == critic for name in advantages.datasets]
    return list(dict.fromkeys([*all_datasets(experiment.critics[critic]), *labelled]))


def returns_datasets(experiment: Experiment, tag: str) -> list[str]:
    """Return the datasets that have returns of a tag: all of them, or those for which they are imported."""
    config = experiment.returns[tag]
    return config.datasets if isinstance(config, ImportedReturnsConfig) else list(experiment.datasets)


def cached_cameras(experiment: Experiment, dataset: str, image_size: int) -> list[str]:
    """Return the camera keys, sorted, that all critics and policies read from a dataset at one image size: each video is decoded once."""
    readers = [user for user, names in _readers(experiment) if dataset in names and user.model.image_size == image_size]
    keys = [key for reader in readers for key in camera_keys(experiment, dataset, reader.cameras).values()]
    return sorted({key for key in keys if key is not None})


def _readers(experiment: Experiment) -> Iterator[tuple[TrainingConfig, list[str]]]:
    """Yield every critic and policy with the datasets of which it reads frames."""
    for tag, critic in experiment.critics.items():
        yield critic, value_datasets(experiment, tag)
    for policy in experiment.policies.values():
        yield policy, all_datasets(policy)


def labelled_datasets(experiment: Experiment, policy: PolicyConfig) -> list[str]:
    """Return the training datasets of a policy that have labels; in the others, demonstrations, every frame is positive."""
    if policy.advantage_tag is None:
        return []
    return [name for name in policy.datasets if name in experiment.advantages[policy.advantage_tag].datasets]


def check_references(experiment: Experiment) -> None:
    """Check what the schema cannot: references between sections of a whole experiment (a slice of one need not pass).

    Raises:
        UserError: naming the key, what is wrong and the remedy.
    """
    check_names(experiment)
    _check_paths(experiment)
    _check_sidecar_folders(experiment)
    _check_cameras(experiment)
    _check_splits(experiment)
    _check_labels(experiment)
    check_models(experiment)
    check_steam(experiment)
    check_imports(experiment, {tag: value_datasets(experiment, tag) for tag in experiment.critics})
    check_simulation(experiment)
    _check_cycles(experiment)
    _check_accelerator(experiment.accelerator)


def _check_accelerator(name: str | None) -> None:
    if name not in (None, NONE, *ACCELERATORS):
        raise config_error("accelerator", f"'{name}' is not one of {', '.join((NONE, *ACCELERATORS))}; a profile says which its nodes have")


def check_names(experiment: Experiment) -> None:
    """Check that every name that one section uses is an entry of the section that it refers to.

    Raises:
        UserError: naming the key, and the entry that is closest.
    """
    for key, section, names in _references(experiment):
        known = [*getattr(experiment, section), *([EXPERT] if key.endswith((".collect.policy", ".policies")) else [])]
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known) or 'none'}"
                raise config_error(key, f"'{name}' is not an entry of {section}; {hint}")


def _references(experiment: Experiment) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield (key, section that it refers to, names used there)."""
    for name, dataset in experiment.datasets.items():
        yield f"datasets.{name}.camera_map", "camera_maps", [dataset.camera_map] if dataset.camera_map else []
        if dataset.collect:
            yield f"datasets.{name}.collect.environment", "environments", [dataset.collect.environment]
            yield f"datasets.{name}.collect.policy", "policies", [dataset.collect.policy]
    for tag, critic in experiment.critics.items():
        yield f"critics.{tag}.returns_tag", "returns", [] if isinstance(critic, ProgressCriticConfig) else [critic.returns_tag]
        yield f"critics.{tag}.datasets", "datasets", critic.datasets
        yield f"critics.{tag}.eval_datasets", "datasets", critic.eval_datasets
    for tag, returns in experiment.returns.items():
        yield f"returns.{tag}.datasets", "datasets", returns.datasets if isinstance(returns, ImportedReturnsConfig) else []
    for tag, advantages in experiment.advantages.items():
        yield f"advantages.{tag}.critic", "critics", [advantages.critic] if tag in experiment.judged_labels else []
        yield f"advantages.{tag}.datasets", "datasets", advantages.datasets
    for tag, policy in experiment.policies.items():
        yield f"policies.{tag}.advantage_tag", "advantages", [policy.advantage_tag] if policy.advantage_tag else []
        yield f"policies.{tag}.datasets", "datasets", policy.datasets
        yield f"policies.{tag}.eval_datasets", "datasets", policy.eval_datasets
        yield f"policies.{tag}.init_from", "policies", [policy.init_from] if policy.init_from else []
    for tag, evaluation in experiment.evaluations.items():
        yield f"evaluations.{tag}.environment", "environments", [evaluation.environment]
        yield f"evaluations.{tag}.policies", "policies", evaluation.policies
        yield f"evaluations.{tag}.video_critic", "critics", [evaluation.video_critic] if evaluation.video_critic else []


def _check_paths(experiment: Experiment) -> None:
    """No two datasets share a folder: their sidecars would overwrite each other."""
    owners: dict[str, str] = {}
    for name, dataset in experiment.datasets.items():
        owner = owners.setdefault(os.path.realpath(dataset.path), name)
        if owner != name:
            raise config_error(f"datasets.{name}.path", f"{dataset.path} is also the path of '{owner}'; use one name for one dataset")
        if dataset.collect and dataset.download:
            raise config_error(f"datasets.{name}", "is to be collected and downloaded; remove `collect` or `download`")


def _check_sidecar_folders(experiment: Experiment) -> None:
    """Sidecars can be written: returns, labels, and what critics say."""
    written = {name for tag in experiment.returns for name in returns_datasets(experiment, tag)}
    written |= {name for tag in experiment.critics for name in value_datasets(experiment, tag)}
    written |= {name for labels in experiment.advantages.values() for name in labels.datasets}
    for name in (name for name in experiment.datasets if name in written):
        dataset = experiment.datasets[name]
        folder = existing = meta_folder(name, dataset)
        while not os.path.exists(existing):
            existing = os.path.dirname(existing) or "."
        expected = dataset.collect or dataset.sidecar_root or os.path.isdir(dataset.path)  # a missing dataset is another mistake
        if expected and not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
            raise config_error(f"datasets.{name}", f"{folder} cannot be written; set sidecar_root to a folder that can")


def _check_cameras(experiment: Experiment) -> None:
    """Every camera of a critic or policy has a key in each dataset that it sees, or is declared absent there."""
    for user, names in _readers(experiment):
        for name in names:
            camera_keys(experiment, name, user.cameras)


def _check_splits(experiment: Experiment) -> None:
    """Held-out datasets are never trained on, and what judges a critic or policy is held out."""
    trained = [(f"critics.{tag}", critic) for tag, critic in experiment.critics.items()]
    trained += [(f"policies.{tag}", policy) for tag, policy in experiment.policies.items()]
    for key, entry in trained:
        for name in entry.datasets:
            if experiment.datasets[name].split == "eval":
                remedy = "remove it here, or set its split to train"
                raise config_error(f"{key}.datasets", f"'{name}' is held out (datasets.{name}.split is eval); {remedy}")
        for name in entry.eval_datasets:
            if experiment.datasets[name].split != "eval":
                raise config_error(f"{key}.eval_datasets", f"'{name}' is not held out; set datasets.{name}.split to eval")


def _check_labels(experiment: Experiment) -> None:
    """Every rollout that a conditioned policy sees is labelled (demonstrations are positive without), every threshold has frames."""
    for tag, policy in experiment.policies.items():
        if policy.label_control != "none" and not policy.advantage_tag:
            problem = f"{policy.label_control}, but there are no labels; give an advantage_tag, or remove it"
            raise config_error(f"policies.{tag}.label_control", problem)
        if policy.advantage_tag:
            labelled = labelled_datasets(experiment, policy)
            for name in policy.datasets:
                if name not in labelled and experiment.datasets[name].type == "rollout":
                    raise config_error(
                        f"policies.{tag}.datasets",
                        f"'{name}' has no labels of {policy.advantage_tag}; add it to advantages.{policy.advantage_tag}.datasets",
                    )
    for tag, advantages in experiment.advantages.items():
        types = {experiment.datasets[name].type for name in advantages.datasets}
        if isinstance(advantages, AdvantagesConfig) and advantages.pool == "rollout" and "rollout" not in types:
            raise config_error(f"advantages.{tag}.pool", "rollout, but no dataset of the tag has type rollout; use pool: all, or add one")


def _check_cycles(experiment: Experiment) -> None:
    """No dataset is collected by a policy that needs it, no policy starts from itself."""
    needs = _needs(experiment)
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> None:
        if node in path:
            raise config_error(node, f"needs itself: {' -> '.join([*path[path.index(node) :], node])}; break the circle")
        if node not in done:
            for other in needs.get(node, []):
                visit(other, [*path, node])
            done.add(node)

    for node in needs:
        visit(node, [])


def _needs(experiment: Experiment) -> dict[str, list[str]]:
    """What each entry is made from: {"section.name": ["section.name", ...]}."""
    needs: dict[str, list[str]] = {}
    for key, section, names in _references(experiment):
        entry = ".".join(key.split(".")[:2])
        needs.setdefault(entry, []).extend(f"{section}.{name}" for name in names if name != EXPERT)
    return needs
