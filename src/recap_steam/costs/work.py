"""The work of a job: what it does how often, and all that determines how long that takes."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from recap_steam import rates
from recap_steam.config import EXPERT, Experiment, TrainingConfig, arm_name
from recap_steam.costs.jobs import Job
from recap_steam.dataset.layout import open_dataset
from recap_steam.references import all_datasets


@dataclasses.dataclass(frozen=True)
class Frames:
    """A number of frames; an upper bound where episodes will end earlier than they may."""

    number: int
    bounded: bool = False

    def __add__(self, other: "Frames") -> "Frames":
        return Frames(self.number + other.number, self.bounded or other.bounded)


NO_FRAMES = Frames(0)


@dataclasses.dataclass(frozen=True)
class Work:
    """What one job does.

    Attributes:
        tag: of what is made.
        frames: of all datasets that are read or collected.
        steps: of the optimiser, in training.
        unit: what is counted and ``units`` how often; 0 for jobs of seconds, which are not estimated.
        kind: all that determines how long a unit takes, but the device (see ``rates``).
    """

    tag: str
    frames: Frames = NO_FRAMES
    steps: int = 0
    unit: str = ""
    units: int = 0
    kind: dict[str, Any] = dataclasses.field(default_factory=dict)


class Workload:
    """The work of the jobs of one experiment.

    Args:
        results: folder of the experiment's results.
        jobs: all that will run: a dataset that will be collected anew has no frames yet.
    """

    def __init__(self, experiment: Experiment, results: Path, jobs: list[Job]):
        self.experiment, self.results = experiment, results
        self.collected = {job.option("dataset") for job in jobs if job.stage == "collect_dataset"}

    def of(self, job: Job) -> Work:
        if job.stage in ("train_critic", "train_member", "train_policy"):
            section = self.experiment.policies if job.stage == "train_policy" else self.experiment.critics
            return self._training(job.option("tag"), section[job.option("tag")])
        method = {
            "compute_values": self._pass,
            "compute_scores": self._pass,
            "cache_frames": self._cache,
            "collect_dataset": self._collection,
            "evaluate_policy": self._evaluation,
        }.get(job.stage)
        return method(job) if method else Work("")

    def frames(self, dataset: str) -> Frames:
        """By the index if there is one, else as the dataset itself says, else as many as collecting may give."""
        config = self.experiment.datasets[dataset]
        if dataset in self.collected:
            length = self.experiment.environments[config.collect.environment].max_episode_steps
            return Frames(config.collect.num_episodes * length, bounded=True)
        index = self.results / f"episodes/{dataset}.parquet"
        if index.is_file():
            return Frames(sum(pq.read_table(index, columns=["length"])["length"].to_pylist()))
        return Frames(int(open_dataset(dataset, config.path).info["total_frames"]))

    def _training(self, tag: str, config: TrainingConfig) -> Work:
        frames = sum((self.frames(name) for name in all_datasets(config)), NO_FRAMES)
        return Work(tag, frames, config.max_steps, "sample", config.max_steps * config.global_batch_size, rates.training_work(config))

    def _pass(self, job: Job) -> Work:
        tag, frames = job.option("tag"), self.frames(job.option("dataset"))
        critic = self.experiment.critics[tag]
        members = critic.ensemble_size if job.stage == "compute_scores" else 1
        kind = rates.pass_work(dataclasses.asdict(critic.model), len(critic.cameras), members)
        return Work(tag, frames, unit="frame", units=frames.number, kind=kind)

    def _cache(self, job: Job) -> Work:
        size, frames = int(job.option("image-size")), self.frames(job.option("dataset"))
        units = frames.number * len(job.options["cameras"])
        return Work(f"{size} px", frames, unit="image", units=units, kind=rates.cache_work(size))

    def _collection(self, job: Job) -> Work:
        dataset = job.option("dataset")
        collect = self.experiment.datasets[dataset].collect
        policy = self.experiment.policies.get(collect.policy)
        scale = collect.cfgrl_guidance_scale if policy and policy.advantage_tag else None
        return self._rollouts(dataset, collect.policy, scale, collect.environment, self.frames(dataset))

    def _evaluation(self, job: Job) -> Work:
        tag, policy = job.option("evaluation"), job.option("policy")
        config = self.experiment.evaluations[tag]
        scale = float(job.option("guidance-scale")) if "guidance-scale" in job.options else None
        frames = Frames(config.num_episodes * self.experiment.environments[config.environment].max_episode_steps, bounded=True)
        return self._rollouts(f"{tag}: {arm_name(policy, scale)}", policy, scale, config.environment, frames)

    def _rollouts(self, tag: str, policy: str, scale: float | None, environment: str, frames: Frames) -> Work:
        model = None if policy == EXPERT else dataclasses.asdict(self.experiment.policies[policy].model)
        kind = rates.rollout_work(self.experiment.environments[environment], model, scale)
        return Work(tag, frames, unit="frame", units=frames.number, kind=kind)
