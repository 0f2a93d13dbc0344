"""The one return scale of a critic: fitted on its training data, saved with it, used unchanged by everything downstream."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from recap_steam.errors import UserError
from recap_steam.files import atomic_output

FILE_NAME = "normalizer.json"


@dataclasses.dataclass(frozen=True)
class ReturnNormalizer:
    """Maps returns in frames to the critic's scale: ``x / |return_min| + offset``, where -1 + offset is the worst return seen in training.

    The same function serves training targets and evaluation, and labels use the same ``scale``, so these can never be on two scales.

    Attributes:
        return_min: least return of the training datasets, in frames (RLinf), or of each task, by task text (the pi*0.6 paper scales
            the values of a task to (-1, 0)).
        offset: 0 for values from -1 to 0, 1 for values from 0 to 1. Labels subtract it, so advantages do not depend on it.
    """

    return_min: float | dict[str, float]
    offset: float = 0.0

    @property
    def per_task(self) -> bool:
        return isinstance(self.return_min, dict)

    def scale(self, prompt_codes: np.ndarray, tasks: list[str]) -> float | np.ndarray:
        """Return |return_min|, 1 where it is 0: a float, or (n,) float64 by frame when the scale is per task.

        Args:
            prompt_codes: (n,) int, each frame's index into ``tasks``; not read when the scale is global.
            tasks: task texts.

        Raises:
            UserError: a task did not occur in training, so it has no scale.
        """
        if not self.per_task:
            return abs(self.return_min) or 1.0
        unseen = [task for task in tasks if task not in self.return_min]
        if unseen:
            raise UserError(
                f"critic's {FILE_NAME}: the task {unseen[0]!r} did not occur in its training data, so it has no return scale; "
                "train the critic on a dataset with this task or with normalization: global"
            )
        return np.array([abs(self.return_min[task]) or 1.0 for task in tasks])[prompt_codes]

    def normalize(self, values: np.ndarray, prompt_codes: np.ndarray, tasks: list[str]) -> np.ndarray:
        """Return ``values`` (n,), returns in frames, on the critic's scale, as float64."""
        return np.asarray(values, np.float64) / self.scale(prompt_codes, tasks) + self.offset

    def without_offset(self, values: np.ndarray) -> np.ndarray:
        """Return a critic's ``values`` (n,) in returns divided by |return_min|, as float64: at the end of an episode they are 0."""
        return np.asarray(values, np.float64) - self.offset

    def save(self, folder: Path) -> None:
        """Write ``normalizer.json`` into a critic folder, whole or not at all."""
        path = Path(folder) / FILE_NAME
        with atomic_output(path) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "ReturnNormalizer":
        """Read ``normalizer.json`` of a critic folder.

        Raises:
            UserError: the file is missing or is not a normaliser; one without offset is none, since its scale would be a guess.
        """
        path = Path(folder) / FILE_NAME
        try:
            content = json.loads(path.read_text())
            return_min, offset = content["return_min"], float(content["offset"])
            if isinstance(return_min, dict):
                return cls({task: float(value) for task, value in return_min.items()}, offset)
            return cls(float(return_min), offset)
        except FileNotFoundError:
            raise UserError(f"{path}: missing, so this critic's return scale is unknown; train the critic again") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a return normaliser ({error}); train the critic again") from None


def fit_normalizer(
    datasets: Iterable[tuple[np.ndarray, np.ndarray, list[str]]], normalization: str, offset: float = 0.0
) -> ReturnNormalizer:
    """Fit the return scale on the training datasets.

    Args:
        datasets: of each training dataset: returns (F,) in frames, prompt codes (F,) into its task texts, task texts.
        normalization: ``global`` or ``per_task``.
        offset: see ``ReturnNormalizer``.
    """
    if normalization == "global":
        return ReturnNormalizer(min(float(returns.min()) for returns, _, _ in datasets), offset)
    least: dict[str, float] = {}
    for returns, prompt_codes, tasks in datasets:
        minimum = np.full(len(tasks), np.inf)
        np.minimum.at(minimum, prompt_codes, returns)
        for task, value in zip(tasks, minimum, strict=True):
            least[task] = min(float(value), least.get(task, np.inf))
    return ReturnNormalizer(least, offset)
