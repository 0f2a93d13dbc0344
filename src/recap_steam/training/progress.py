"""Training of a progress critic, one member of an ensemble: order and distance of two frames as target, held-out pairs as judge."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recap_steam.config import ProgressCriticConfig
from recap_steam.critics.folder import write_folder
from recap_steam.critics.frames import model_inputs
from recap_steam.critics.images import draw_augmentation
from recap_steam.critics.progress_folder import ProgressCard
from recap_steam.critics.progress_metrics import JudgedPairs, grouped_pair_metrics, majority, pair_metrics
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.tokenizer import PreTrainedTokenizerFast
from recap_steam.training.critic import parameter_groups
from recap_steam.training.held_out import predict, titled
from recap_steam.training.progress_data import PairedFrames, PairMixture

TRAINING_PAIRS = 1_000  # training pairs that are judged like held-out ones, for the gap
INPUTS = ("places", "camera_mask", "first", "second", "tokens", "token_mask", "prompt")  # of ``ProgressCritic.forward``, behind the images


class ProgressTraining:
    """A progress critic as the training loop sees it (``loop.Trainable``); a sample is a pair.

    Args:
        config, model, card, tokenizer: the critic and what is saved with it.
        training: the datasets that it learns from; held_out: those that it is judged on, possibly none.
        weights: mixture share of each training dataset.
    """

    def __init__(
        self,
        config: ProgressCriticConfig,
        model: ProgressCritic,
        card: ProgressCard,
        tokenizer: PreTrainedTokenizerFast,
        training: list[PairedFrames],
        held_out: list[PairedFrames],
        weights: list[float],
    ):
        self.config, self.model, self.card, self.tokenizer = config, model, card, tokenizer
        self.num_bins = card.architecture.num_bins
        self.training, self.weights = PairMixture(training), weights
        self.held_out = PairMixture(held_out) if held_out else None
        self.lengths = self.training.lengths
        metric = config.eval.selection_metric
        self.selection = (f"eval/{metric}", "min" if metric == "loss" else "max") if held_out else None
        model.vision.requires_grad_(not config.model.freeze_vision_encoder)
        model.text.requires_grad_(not config.model.freeze_language_model)

    def parameter_groups(self) -> list[dict]:
        """The classifier learns at ``value_lr``, all else at ``lr``."""
        return parameter_groups(self.model, self.config.optim)

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """See ``loop.Trainable``; the draws are the stride, then the augmentation of every image of the pair."""
        batch = self.training.batch(samples, rngs, share_frames=not self.config.do_augment)
        if self.config.do_augment:
            draws = [[draw_augmentation(rng, self.card.cameras) for rng in rngs] for _ in ("first", "second")]
            draws = np.concatenate(draws)  # (2 p, cameras, DRAWS), absent cameras too: they do not shift others'
            batch["augmentation"] = torch.from_numpy(draws[batch["camera_mask"].numpy()])
        return batch

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Cross-entropy with label smoothing, and the metrics of ``critics.progress_metrics``."""
        logits, bins = self.model(*model_inputs(batch, INPUTS)), batch["bin"]
        with torch.no_grad():
            distance = (logits.argmax(1) - bins).abs()
            ahead = logits.softmax(1)[:, self.num_bins // 2 :].sum(1)
            columns = {"accuracy": distance == 0, "accuracy_neighbor": distance <= 1, "progress_value_mean": ahead}
            metrics = {name: (column.float().sum(), torch.ones_like(ahead).sum()) for name, column in columns.items()}
        return cross_entropy(logits, bins, label_smoothing=self.config.model.label_smoothing), metrics

    def evaluate(self) -> dict[str, float]:
        """``eval/...`` on held-out pairs (``critics.progress_metrics``), ``eval_train/...`` on training pairs without augmentation,
        ``gap/...`` between them, and the held-out metrics of the majority. Without held-out data, on training pairs only."""
        samples = self.training.spread(TRAINING_PAIRS)
        learned = self.training.judged(samples)
        metrics = titled("eval_train", pair_metrics(learned.bin, self._predict(self.training, samples)))
        if self.held_out is None:
            return metrics
        samples = self.held_out.spread(self.config.eval.max_samples)
        pairs = self.held_out.judged(samples)
        metrics |= titled("eval", grouped_pair_metrics(pairs, self._predict(self.held_out, samples)))
        gaps = {f"gap/{name}": metrics[f"eval/{name}"] - metrics[f"eval_train/{name}"] for name in ("loss", "accuracy")}
        return {**metrics, **gaps, **self._baseline(learned, pairs)}

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        write_folder(folder, self.card, weights, self.tokenizer, metrics)

    def _predict(self, data: PairMixture, samples: np.ndarray) -> np.ndarray:
        """Log-probabilities of ``samples``, (n, num_bins) float64."""

        def log_probabilities(batch: dict[str, Tensor]) -> Tensor:
            return self.model(*model_inputs(batch, INPUTS)).log_softmax(1).T

        return predict(data.fixed_batch, log_probabilities, samples).T

    def _baseline(self, learned: JudgedPairs, pairs: JudgedPairs) -> dict[str, float]:
        return titled("baseline_majority", grouped_pair_metrics(pairs, majority(learned.bin, self.num_bins, len(pairs.bin))))
