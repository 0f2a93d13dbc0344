"""Where an experiment's results lie and how the report reads them. What is not there reads as None: the report shows what exists."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from recap_steam.config import Experiment, ProgressCriticConfig, arm_name, evaluation_arms
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.frames import FrameCache
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.normalizer import FILE_NAME as NORMALIZER_FILE
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.lineage import METADATA_KEY, Lineage
from recap_steam.sidecar import Sidecar, read_sidecar, sidecar_path

ArmKey = tuple[str, float | None]  # policy, and guidance scale or None for plain imitation


@dataclasses.dataclass(frozen=True)
class Arm:
    """One policy at one guidance scale on n initial states: (n,) ``seed`` int64, ``success`` bool, ``num_frames`` int64.

    ``control`` says what was done to the labels of a policy that shows whether they matter; empty for all others. ``may_stop``: the
    evaluation lets arms stop early, so that they are compared on the states that both saw, by a p-value that allows it.
    """

    policy: str
    guidance_scale: float | None
    seed: np.ndarray
    success: np.ndarray
    num_frames: np.ndarray
    control: str = ""
    may_stop: bool = False

    @property
    def key(self) -> ArmKey:
        return self.policy, self.guidance_scale

    @property
    def label(self) -> str:
        return arm_label(self.key)

    @property
    def title(self) -> str:
        return f"{self.label} (control: {self.control})" if self.control else self.label


def arm_label(key: ArmKey) -> str:
    policy, scale = key
    return policy if scale is None else f"{policy}, guidance {scale:g}"


LABEL_CONTROLS = {"none": "", "shuffled": "labels shuffled", "all_positive": "all labels positive"}


class Results:
    """Reader of ``results/<experiment>`` and of the datasets' sidecars. Every method returns None (or nothing) for what is not there."""

    def __init__(self, experiment: Experiment, root: Path):
        self.experiment = experiment
        self.root = root
        self.ensembles = {tag: critic for tag, critic in experiment.critics.items() if isinstance(critic, ProgressCriticConfig)}
        self.value_critics = {tag: critic for tag, critic in experiment.critics.items() if tag not in self.ensembles}

    @functools.cache  # noqa: B019 (one reader a process)
    def episodes(self, dataset: str) -> Episodes | None:
        path = self.root / "episodes" / f"{dataset}.parquet"
        return load_episodes(path, open_dataset(dataset, self.experiment.datasets[dataset].path)) if path.exists() else None

    def notes(self, dataset: str) -> list[str]:
        """What the index accepted though it deserves a look, such as demonstrations without a recorded outcome."""
        return _lineage(self.root / "episodes" / f"{dataset}.parquet").statistics["notes"]

    def frames(self, dataset: str, image_size: int) -> FrameCache | None:
        path = self.root / "frames" / f"{dataset}_{image_size}px.arrow"
        return FrameCache.open(path, self.episodes(dataset)) if path.exists() else None

    def sidecar_file(self, dataset: str, kind: str, tag: str) -> Path:
        return sidecar_path(self.experiment.datasets[dataset], dataset, f"{kind}_{tag}")

    def sidecar(self, dataset: str, kind: str, tag: str, columns: list[str]) -> Sidecar | None:
        path = self.sidecar_file(dataset, kind, tag)
        episodes = self.episodes(dataset)
        return read_sidecar(path, kind, episodes, columns) if episodes is not None and path.exists() else None

    def sidecar_lineage(self, dataset: str, kind: str, tag: str) -> Lineage | None:
        path = self.sidecar_file(dataset, kind, tag)
        return _lineage(path) if path.exists() else None

    def normalizer(self, critic: str) -> ReturnNormalizer | None:
        folder = self.root / "critics" / critic
        return ReturnNormalizer.load(folder) if (folder / NORMALIZER_FILE).exists() else None

    def thresholds(self, tag: str) -> dict[str, float]:
        """Thresholds of a label tag, by pool, task text or dataset name."""
        path = self.root / "thresholds" / f"{tag}.yaml"
        return read_fragment(path)["thresholds"] if path.exists() else {}

    def positive_counts(self, tag: str) -> list[dict]:
        """What came out of a label tag by dataset and outcome: frames, above the threshold, positive."""
        path = self.root / "thresholds" / f"{tag}.yaml"
        return read_fragment(path)["positive_counts"] if path.exists() else []

    def diagnostics(self) -> list[Path]:
        """Folders of the diagnostics that exist, by label tag and dataset."""
        folders = [
            self.root / "diagnostics" / tag / name for tag, labels in self.experiment.judged_labels.items() for name in labels.datasets
        ]
        return [folder for folder in folders if any(folder.glob("*.png"))]

    def document(self, *parts: str) -> dict | None:
        """A JSON file below the results folder."""
        path = self.root.joinpath(*parts)
        return json.loads(path.read_text()) if path.exists() else None

    def evaluations(self, critics: Iterable[str]) -> Iterator[tuple[str, dict[str, float | None]]]:
        """(critic, what its evaluation.json says) of those of ``critics`` that have one; a metric of nothing is null."""
        for tag in critics:
            if evaluation := self.document("critics", tag, "evaluation.json"):
                yield tag, evaluation

    def metrics(self, kind: str, tag: str) -> list[dict]:
        """The rows of a training's metrics.jsonl, one mapping an optimiser step that was logged."""
        path = self.root / kind / tag / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def is_merged(self, critic: str) -> bool:
        """Whether the critic is an ensemble of members that were there before, so that its datasets have no meaning."""
        return critic in self.ensembles and self.ensembles[critic].members is not None

    def members(self, critic: str) -> list[str]:
        """Tags, below ``critics``, of the members that are trained for an ensemble; none where it is merged from others."""
        config = self.ensembles[critic]
        return [] if self.is_merged(critic) else [f"{critic}/members/{member}" for member in range(config.ensemble_size)]

    def arms(self, evaluation: str) -> list[Arm]:
        """The arms of an evaluation that exist, in the order of the experiment; the first policy's is the reference.

        Raises:
            UserError: when two arms did not start from the same initial states, which a paired comparison needs.
        """
        arms = [self._arm(evaluation, path, policy, scale) for path, policy, scale in self.arm_files(evaluation) if path.exists()]
        for arm in arms[1:]:
            if not np.array_equal(arm.seed, arms[0].seed[: len(arm.seed)] if arm.may_stop else arms[0].seed):
                raise UserError(
                    f"evaluation {evaluation}: {arm.label} and {arms[0].label} were run on different initial states; "
                    f"delete {self.root / 'evaluations' / evaluation} and run the target evaluations again"
                )
        return arms

    def arm_lineages(self, evaluation: str) -> Iterator[tuple[Path, Lineage]]:
        """(file, lineage) of every arm that exists."""
        yield from ((path, _lineage(path)) for path, _, _ in self.arm_files(evaluation) if path.exists())

    def arm_files(self, evaluation: str) -> list[tuple[Path, str, float | None]]:
        """(file, policy, guidance scale or None for plain imitation) of every arm that the experiment names."""
        folder = self.root / "evaluations" / evaluation
        return [(folder / f"{arm_name(*arm)}.parquet", *arm) for arm in evaluation_arms(self.experiment, evaluation)]

    def _arm(self, evaluation: str, path: Path, policy: str, scale: float | None) -> Arm:
        table = pq.read_table(path, columns=["episode", "seed", "success", "num_frames"]).sort_by("episode")
        columns = {name: table[name].to_numpy() for name in table.column_names}
        config = self.experiment.policies.get(policy)  # none of the scripted expert
        control = LABEL_CONTROLS[config.label_control] if config else ""
        may_stop = self.experiment.evaluations[evaluation].stop_below is not None
        return Arm(policy, scale, columns["seed"], columns["success"], columns["num_frames"], control, may_stop)

    def lineages(self) -> dict[str, Lineage]:
        """Lineage of every artefact that exists, by its path, from data to evaluation."""
        return {str(path): _lineage(path) for path in self.artefacts() if path.exists()}

    def artefacts(self) -> Iterator[Path]:
        """Files of everything that states its lineage, whether they exist or not, from data to evaluation."""
        experiment = self.experiment
        yield from (self.root / "episodes" / f"{dataset}.parquet" for dataset in experiment.datasets)
        sidecars = {"returns": experiment.returns, "values": self.value_critics, "scores": self.ensembles}
        for kind, tags in {**sidecars, "advantages": experiment.advantages}.items():
            yield from (self.sidecar_file(dataset, kind, tag) for tag in tags for dataset in experiment.datasets)
        trained = [tag for critic in self.ensembles for tag in self.members(critic)]
        yield from (self.root / "critics" / tag / "lineage.json" for tag in (*trained, *experiment.critics))
        yield from (self.root / "thresholds" / f"{tag}.yaml" for tag in experiment.judged_labels)
        yield from (self.root / "policies" / tag / "lineage.json" for tag in experiment.policies)
        yield from (path for tag in experiment.evaluations for path, _, _ in self.arm_files(tag))


def _lineage(path: Path) -> Lineage:
    if path.suffix == ".yaml":
        return read_fragment(path)["lineage"]
    text = path.read_text() if path.suffix == ".json" else pq.read_metadata(path).metadata[METADATA_KEY]
    return Lineage.from_json(text, path=path)
