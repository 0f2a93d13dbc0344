"""Training of a value critic: normalised returns as two-hot targets, held-out episodes as the judge."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recap_steam.config import CriticConfig, OptimConfig
from recap_steam.critics.baselines import BASELINES, TimeTable
from recap_steam.critics.folder import CriticCard, save_critic
from recap_steam.critics.frames import model_inputs
from recap_steam.critics.images import draw_augmentation
from recap_steam.critics.metrics import JudgedFrames, Predictions, calibration, grouped_metrics, value_metrics
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.critics.value_head import cross_entropy, describe
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.tokenizer import PreTrainedTokenizerFast
from recap_steam.training.critic_data import FrameMixture, LabelledFrames
from recap_steam.training.held_out import predict, titled
from recap_steam.training.order import spread

TRAINING_FRAMES = 1_000  # training frames that are judged like held-out ones, for the gap


class CriticTraining:
    """A value critic as the training loop sees it (``loop.Trainable``).

    Args:
        config, model, card, tokenizer, normalizer: the critic and what is saved with it.
        training: the datasets that it learns from; held_out: those that it is judged on, possibly none.
        weights: mixture share of each training dataset.
    """

    def __init__(
        self,
        config: CriticConfig,
        model: ValueCritic,
        card: CriticCard,
        tokenizer: PreTrainedTokenizerFast,
        normalizer: ReturnNormalizer,
        training: list[LabelledFrames],
        held_out: list[LabelledFrames],
        weights: list[float],
    ):
        self.config, self.model, self.card, self.tokenizer, self.normalizer = config, model, card, tokenizer, normalizer
        self.support = card.architecture.support
        self.training, self.weights = FrameMixture(training, self.support), weights
        self.held_out = FrameMixture(held_out, self.support) if held_out else None
        self.lengths = self.training.lengths
        metric = config.eval.selection_metric
        self.selection = (f"eval/{metric}", "min" if metric in ("loss", "mae") else "max") if held_out else None
        self.baselines = self._baselines() if held_out else {}
        model.text.requires_grad_(not config.model.freeze_vlm)
        model.vision.requires_grad_(not config.model.freeze_vision_encoder)

    def parameter_groups(self) -> list[dict]:
        """The critic token and head learn at ``value_lr``, all else at ``lr``."""
        return parameter_groups(self.model, self.config.optim)

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """See ``loop.Trainable``; the draws are those of the augmentation."""
        batch = self.training.batch(samples)
        if self.config.do_augment:
            draws = np.stack([draw_augmentation(rng, self.card.cameras) for rng in rngs])  # absent cameras too: they do not shift others'
            batch["augmentation"] = torch.from_numpy(draws[batch["camera_mask"].numpy()])
        return batch

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Cross-entropy, and the absolute error of the expected value."""
        logits = self.model(*model_inputs(batch))
        with torch.no_grad():
            error = (describe(logits, self.support).value - batch["target"]).abs()
        return cross_entropy(logits, batch["lower"], batch["weight"]).mean(), {"mae": (error.sum(), torch.ones_like(error).sum())}

    def evaluate(self) -> dict[str, float]:
        """``eval/...`` on held-out frames (``critics.metrics``), ``eval_train/...`` on training frames without augmentation, ``gap/...``
        between them, and the held-out metrics of the baselines. Without held-out data, on training frames only."""
        samples = spread(self.training.lengths, TRAINING_FRAMES)
        found = value_metrics(self.training.targets[samples], self._predict(self.training, samples), self.support)
        metrics = titled("eval_train", found)
        if self.held_out is None:
            return metrics
        samples, frames = self._judged()
        predictions = self._predict(self.held_out, samples)
        found = grouped_metrics(frames, predictions, self.support) | calibration(frames.target, predictions.value)
        metrics |= titled("eval", found)
        gaps = {f"gap/{name}": metrics[f"eval/{name}"] - metrics[f"eval_train/{name}"] for name in ("loss", "mae")}
        return {**metrics, **gaps, **self.baselines}

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        save_critic(folder, self.card, weights, self.tokenizer, self.normalizer, metrics)

    def _judged(self) -> tuple[np.ndarray, JudgedFrames]:
        """The held-out samples that are judged, and what is true of them."""
        samples = spread(self.held_out.lengths, self.config.eval.max_samples)
        return samples, self.held_out.judged(samples)

    def _predict(self, data: FrameMixture, samples: np.ndarray) -> Predictions:
        """Predictions of ``samples``."""

        def describe_batch(batch: dict[str, Tensor]) -> Tensor:
            logits = self.model(*model_inputs(batch))
            found, loss = describe(logits, self.support), cross_entropy(logits, batch["lower"], batch["weight"])
            return torch.stack([found.value, found.best_bin.float(), loss])

        value, best_bin, loss = predict(data.batch, describe_batch, samples)
        return Predictions(value, best_bin.astype(np.int64), loss)

    def _baselines(self) -> dict[str, float]:
        samples, frames = self._judged()
        frame_index = self.held_out.frame_index[samples]
        metrics = {}
        for title, num_bins in BASELINES.items():
            table = TimeTable(self.training.targets, self.training.frame_index, num_bins, self.support)
            metrics |= titled(title, grouped_metrics(frames, table.predict(frames.target, frame_index), self.support))
        return metrics


def parameter_groups(model: ValueCritic | ProgressCritic, optim: OptimConfig) -> list[dict]:
    """What is trained of a critic: its value parameters at ``value_lr``, all else at ``lr``."""
    value = model.value_parameters()
    others = [p for p in model.parameters() if p.requires_grad and all(p is not q for q in value)]
    return [{"params": others}, {"params": value, "lr": optim.value_lr or optim.lr}]
