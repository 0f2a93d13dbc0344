"""Labels from the scores of an ensemble of progress critics (STEAM). Other labels of the same scores are another tag, and need no model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.config import Experiment, camera_keys
from recap_steam.dataset.columns import KEY_COLUMNS
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.labels.decision import decide
from recap_steam.labels.inputs import check_finite, ensemble_digest
from recap_steam.labels.parameters import label_parameters
from recap_steam.labels.scores import EXPERT, ROLLOUT, baseline_bin, scores_above
from recap_steam.labels.thresholds import ScoredFrames, Thresholds, scored_frames
from recap_steam.lineage import digest_file
from recap_steam.sidecar import read_sidecar, sidecar_path
from recap_steam.sidecar_schemas import STEAM_ADVANTAGES

COPIED = [name for name in STEAM_ADVANTAGES.names if name not in (*KEY_COLUMNS, "advantage", "advantage_continuous")]


@dataclasses.dataclass(frozen=True)
class ScoreInputs:
    """One dataset's scores: ``score`` (F,) float64 and ``judged`` (F,) bool, in row order.

    ``ensemble``: what the sidecar says of the critics: ``ensemble_size`` and ``length_scale``. ``digests``: of everything that was read.
    """

    path: Path
    episodes: Episodes
    score: np.ndarray
    judged: np.ndarray
    ensemble: dict[str, Any]
    digests: dict[str, str]


class SteamLabels:
    """One STEAM tag of an experiment; see ``stages.LabelRule``."""

    def __init__(self, experiment: Experiment, tag: str, critic_dir: Path | str):
        self._experiment, self._config = experiment, experiment.advantages[tag]
        self._critic = experiment.critics[self._config.critic]
        self._num_bins = self._critic.model.num_bins
        self._baseline = None
        if self._config.subtract_baseline:
            self._baseline = baseline_bin(self._critic.k, self._num_bins, self._config.baseline_lookahead)
        self.critic_digest = ensemble_digest(critic_dir)
        self.parameters = label_parameters(experiment, tag)

    def read(self, dataset: str, episodes_path: Path | str) -> ScoreInputs:
        """See ``stages.LabelRule``.

        Raises:
            UserError: the scores are missing, of another version of the dataset, of other critics, of another k or of other cameras than
                the experiment's, or hold NaN or an infinite number.
        """
        config = self._experiment.datasets[dataset]
        episodes = load_episodes(episodes_path, open_dataset(dataset, config.path))
        path = sidecar_path(config, dataset, f"scores_{self._config.critic}")
        cameras = camera_keys(self._experiment, dataset, self._critic.cameras)
        expected = {"k": self._critic.k, "num_bins": self._num_bins, "cameras": cameras}
        column = "ensemble_signed_score" if self._baseline is None else "member_expected_bins"
        inputs = {"critic": self.critic_digest}
        scores = read_sidecar(path, "scores", episodes, [column, "look_ahead"], parameters=expected, inputs=inputs)
        score = scores.columns[column]
        if self._baseline is not None:
            score = scores_above(self._baseline, score, self._num_bins)
        check_finite(score, column, path, episodes)
        ensemble = {name: scores.lineage.parameters[name] for name in ("ensemble_size", "length_scale")}
        digests = {f"episodes/{dataset}": episodes.fingerprint, f"scores/{dataset}": digest_file(path)}
        return ScoreInputs(path, episodes, score, scores.columns["look_ahead"] > 0, ensemble, digests)

    def frames(self, inputs: ScoreInputs) -> ScoredFrames:
        kind = self._experiment.datasets[inputs.episodes.dataset].type
        return scored_frames(inputs.episodes, kind, inputs.score, inputs.judged)

    def facts(self, datasets: list[ScoreInputs], thresholds: Thresholds) -> dict[str, Any]:
        """The threshold that the reference states for a tag, what the baseline was, and the ensemble, which is one for all datasets."""
        return {
            "positive_threshold": thresholds.get(ROLLOUT, thresholds.get(EXPERT)),
            "baseline_bin": self._baseline,
            **datasets[0].ensemble,
        }

    def columns(self, inputs: ScoreInputs, thresholds: Thresholds) -> dict[str, np.ndarray]:
        labels = decide(self._config, self.frames(inputs), thresholds)
        copied = read_sidecar(inputs.path, "scores", inputs.episodes, COPIED).columns
        return {"advantage": labels, "advantage_continuous": inputs.score, **copied}
