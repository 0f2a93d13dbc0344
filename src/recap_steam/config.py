"""The experiment file as typed objects.

The schema (``config/schemas/config.schema.yaml``) is the only place that states defaults, so the dataclasses here have none. A stage
receives a *slice*: an experiment that holds only the sections, entries and keys it reads, so that a change elsewhere cannot rerun it. What
a slice does not hold is an attribute that does not exist: a stage cannot read what its rule did not pass.
"""

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

from recap_steam.errors import UserError
from recap_steam.label_config import (
    AdvantagesConfig,
    DiagnosticsConfig,
    ImportedAdvantagesConfig,
    ImportedReturnsConfig,
    ReturnsConfig,
    SteamAdvantagesConfig,
)
from recap_steam.model_config import CriticModelConfig, PolicyModelConfig, ProgressModelConfig
from recap_steam.records import build, laid_over
from recap_steam.replicates import as_replicate, written_out
from recap_steam.rounds import RoundsConfig, unroll
from recap_steam.schema import read_file, with_defaults
from recap_steam.simulation_config import CollectConfig, EvaluationConfig, LiberoConfig, MetaWorldConfig

EXPERT = "expert"  # the policy name that stands for a simulator's scripted expert


@dataclasses.dataclass(frozen=True)
class DownloadConfig:
    repo_id: str
    revision: str
    folder: str | None
    num_episodes: int
    num_successes: int | None


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    path: str
    type: str
    weight: float
    split: str
    camera_map: str | None
    sidecar_root: str | None
    collect: CollectConfig | None = None
    download: DownloadConfig | None = None


@dataclasses.dataclass(frozen=True)
class OptimConfig:
    lr: float
    value_lr: float | None
    adam_beta1: float
    adam_beta2: float
    adam_eps: float
    weight_decay: float
    clip_grad: float
    nonfinite_patience: int
    lr_scheduler: str
    lr_warmup_steps: int
    min_lr: float


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """What critics and policies share, and all that the training loop reads."""

    datasets: list[str]
    cameras: list[str]
    balance_dataset_weights: bool
    optim: OptimConfig
    max_steps: int
    global_batch_size: int
    micro_batch_size: int | None
    eval_interval: int
    save_interval: int
    gradient_checkpointing: bool
    compile_model: bool
    devices: int
    nodes: int
    do_augment: bool
    seed: int


@dataclasses.dataclass(frozen=True)
class CriticEvalConfig:
    max_samples: int
    selection_metric: str


@dataclasses.dataclass(frozen=True)
class CriticConfig(TrainingConfig):
    """A value critic (method recap)."""

    method: str
    returns_tag: str
    eval_datasets: list[str]
    eval: CriticEvalConfig
    normalization: str
    normalize_to_minus_one_zero: bool
    model: CriticModelConfig


@dataclasses.dataclass(frozen=True)
class ProgressCriticConfig(TrainingConfig):
    """An ensemble of progress critics (method steam)."""

    method: str
    k: int
    train_on_rollouts: bool
    only_success: bool
    min_episode_length: int
    length_scale_enabled: bool
    length_scale_percentile: float
    ensemble_size: int
    members: list[str] | None
    eval_datasets: list[str]
    eval: CriticEvalConfig
    model: ProgressModelConfig


@dataclasses.dataclass(frozen=True)
class PolicyEvalConfig:
    max_samples: int


@dataclasses.dataclass(frozen=True)
class PolicyConfig(TrainingConfig):
    eval_datasets: list[str]
    eval: PolicyEvalConfig
    advantage_tag: str | None
    label_control: str
    frame_filter: str
    init_from: str | None
    positive_only_conditional: bool
    unconditional_prob: float
    model: PolicyModelConfig


@dataclasses.dataclass(frozen=True)
class Experiment:
    experiment: str
    environments: dict[str, MetaWorldConfig | LiberoConfig]
    datasets: dict[str, DatasetConfig]
    camera_maps: dict[str, dict[str, str | None]]
    returns: dict[str, ReturnsConfig | ImportedReturnsConfig]
    critics: dict[str, CriticConfig | ProgressCriticConfig]
    advantages: dict[str, AdvantagesConfig | SteamAdvantagesConfig | ImportedAdvantagesConfig]
    policies: dict[str, PolicyConfig]
    evaluations: dict[str, EvaluationConfig]
    rounds: dict[str, RoundsConfig]
    diagnostics: DiagnosticsConfig
    accelerator: str | None
    accelerator_model: str | None
    accelerator_partition: str | None
    cpus_per_device: int
    mem_mb_per_device: int

    @property
    def judged_labels(self) -> dict[str, AdvantagesConfig | SteamAdvantagesConfig]:
        """Label tags with a critic and a threshold: all but the imported ones."""
        return {tag: labels for tag, labels in self.advantages.items() if not isinstance(labels, ImportedAdvantagesConfig)}


def whole_experiment(raw: dict) -> dict:
    """Validate the experiment ``raw`` and return it with all defaults, the replicate's seeds and all rounds; ``raw`` is not changed."""
    return unroll(written_out(with_defaults(raw)))


def load_experiment(raw: dict) -> Experiment:
    """Return the experiment ``raw``, validated and whole, as typed objects; ``raw`` is not changed."""
    return build(Experiment, whole_experiment(raw))


def read_experiment(path: Path, seed: int | None = None) -> Experiment:
    """Return the experiment of a file, or its replicate ``seed`` as ``make evidence`` names it.

    Raises:
        UserError: no such file, or no experiment.
    """
    raw = read_file(path)
    experiment = load_experiment(raw)
    return experiment if seed is None else load_experiment(as_replicate(raw, experiment.experiment, seed))


def load_slice(*slices: dict) -> Experiment:
    """Return one or more slices of a validated experiment, laid over each other, as typed objects.

    No default is filled in; reading an absent key is an AttributeError.
    """
    return build(Experiment, functools.reduce(laid_over, slices))


def camera_keys(experiment: Experiment, dataset: str, cameras: list[str]) -> dict[str, str | None]:
    """Return the dataset's key of each camera that a critic or policy names; None for a camera that the robot lacks.

    Raises:
        UserError: the dataset's camera map does not mention a camera, names one image twice, or none at all.
    """
    name = experiment.datasets[dataset].camera_map
    if name is None:
        return {camera: camera for camera in cameras}
    known = experiment.camera_maps[name]
    unmapped = [camera for camera in cameras if camera not in known]
    if unmapped:
        raise UserError(
            f"config: camera_maps.{name}: no camera '{unmapped[0]}', which dataset '{dataset}' needs; "
            "map it to a key of the dataset, or to null if the robot lacks it"
        )
    keys = {camera: known[camera] for camera in cameras}
    present = [key for key in keys.values() if key is not None]
    if not present:
        raise UserError(f"config: camera_maps.{name}: dataset '{dataset}' has none of the cameras {', '.join(cameras)}; map one to a key")
    if twice := [key for key in present if present.count(key) > 1]:
        raise UserError(f"config: camera_maps.{name}: two cameras are {twice[0]}, which a model would see twice; map one of them to null")
    return keys


EXECUTION_KEYS = ("micro_batch_size", "save_interval", "gradient_checkpointing", "compile_model", "devices", "nodes")
SITE_KEYS = ("accelerator", "accelerator_model", "accelerator_partition", "cpus_per_device", "mem_mb_per_device")  # where it is computed
ENSEMBLE_KEYS = ("ensemble_size", "members")  # of which a member knows nothing, so that a larger ensemble trains only what is new


def result_parameters(config: TrainingConfig) -> dict[str, Any]:
    """Return what the result of a training run depends on: all but how it is executed, so that a run that was too large for its device
    goes on from its state with smaller micro batches."""
    parameters = {key: value for key, value in vars(config).items() if key not in (*EXECUTION_KEYS, *ENSEMBLE_KEYS)}
    return {key: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value for key, value in parameters.items()}


def meta_folder(name: str, dataset: DatasetConfig) -> str:
    """Return the folder of a dataset's sidecars: ``<path>/meta``, or ``<sidecar_root>/<name>`` for a read-only dataset."""
    return os.path.join(dataset.sidecar_root, name) if dataset.sidecar_root else os.path.join(os.path.normpath(dataset.path), "meta")


def evaluation_arms(experiment: Experiment, tag: str) -> list[tuple[str, float | None]]:
    """Return (policy, guidance scale) of every arm of an evaluation, in order; the scale is None for a policy without indicator."""
    config = experiment.evaluations[tag]
    conditioned = {name for name, policy in experiment.policies.items() if policy.advantage_tag is not None}
    return [(policy, scale) for policy in config.policies for scale in (config.cfgrl_guidance_scale if policy in conditioned else [None])]


def arm_name(policy: str, guidance_scale: float | None) -> str:
    """Return the file stem of an arm."""
    return f"{policy}_plain" if guidance_scale is None else f"{policy}_w{guidance_scale:g}"
