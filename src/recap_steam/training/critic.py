"""Training of a value critic: normalised returns as two-hot targets, held-out episodes as the judge."""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recap_steam import devices
from recap_steam.config import CriticConfig
from recap_steam.critics.folder import CriticCard, save_critic
from recap_steam.critics.frames import CriticFrames, collate, model_inputs
from recap_steam.critics.images import draw_augmentation
from recap_steam.critics.metrics import TIME_BINS, Predictions, TimeTable, value_metrics
from recap_steam.critics.model import ValueCritic
from recap_steam.critics.value_head import cross_entropy, describe
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.tokenizer import PreTrainedTokenizerFast
from recap_steam.training.order import locate, spread

EVALUATION_FRAMES = 10_000  # held-out frames that are judged, spread evenly over all of them
TRAINING_FRAMES = 1_000  # training frames that are judged in the same way, for the gap
EVALUATION_BATCH = 64


@dataclasses.dataclass(frozen=True)
class LabelledFrames:
    """One dataset: its frames, their normalised returns ``targets`` (F,) float64 and ``frame_index`` (F,) int64."""

    frames: CriticFrames
    targets: np.ndarray
    frame_index: np.ndarray


class FrameMixture:
    """Concatenated datasets; a sample is a position in the concatenation."""

    def __init__(self, parts: list[LabelledFrames]):
        self.parts = parts
        self.lengths = [len(part.targets) for part in parts]
        self.targets = np.concatenate([part.targets for part in parts])
        self.frame_index = np.concatenate([part.frame_index for part in parts])

    def batch(self, samples: np.ndarray) -> dict[str, Tensor]:
        """Images and prompts of ``samples`` (n,); see ``critics.frames.collate``."""
        source, rows = locate(self.lengths, samples)
        images, tokens = [None] * len(samples), [None] * len(samples)
        for index in np.unique(source):
            places = np.flatnonzero(source == index)
            part = self.parts[index].frames
            for place, image, ids in zip(places, part.images(rows[places]), part.tokens(rows[places]), strict=True):
                images[place], tokens[place] = image, ids
        return collate(np.stack(images), tokens)


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
        self.training, self.weights = FrameMixture(training), weights
        self.held_out = FrameMixture(held_out) if held_out else None
        self.lengths = self.training.lengths
        self.selection = ("eval/mae", "min") if held_out else None
        self.support = card.architecture.support
        self.baselines = self._baselines() if held_out else {}
        model.text.requires_grad_(not config.model.freeze_vlm)
        model.vision.requires_grad_(not config.model.freeze_vision_encoder)

    def parameter_groups(self) -> list[dict]:
        """The critic token and head learn at ``value_lr``, all else at ``lr``."""
        optim, value = self.config.optim, self.model.value_parameters()
        others = [p for p in self.model.parameters() if p.requires_grad and all(p is not q for q in value)]
        return [{"params": others}, {"params": value, "lr": optim.value_lr or optim.lr}]

    def load(self, samples: np.ndarray, rngs: list[np.random.Generator]) -> dict[str, Tensor]:
        """See ``loop.Trainable``; the draws are those of the augmentation."""
        batch = self._labelled(self.training, samples)
        if self.config.do_augment:
            batch["augmentation"] = torch.from_numpy(np.stack([draw_augmentation(rng, self.card.cameras) for rng in rngs]))
        return batch

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Cross-entropy, and the absolute error of the expected value."""
        logits = self.model(*model_inputs(batch))
        with torch.no_grad():
            error = (describe(logits, self.support).value - batch["target"]).abs()
        return cross_entropy(logits, batch["lower"], batch["weight"]).mean(), {"mae": (error.sum(), torch.ones_like(error).sum())}

    def evaluate(self) -> dict[str, float]:
        """``eval/...`` on held-out frames, ``eval_train/...`` on training frames without augmentation, ``gap/...`` between them, and the
        held-out metrics of the baselines. Without held-out data, on training frames only."""
        metrics = self._judge("eval_train", self.training, TRAINING_FRAMES)
        if self.held_out is None:
            return metrics
        metrics |= self._judge("eval", self.held_out, EVALUATION_FRAMES)
        gaps = {f"gap/{name}": metrics[f"eval/{name}"] - metrics[f"eval_train/{name}"] for name in ("loss", "mae")}
        return {**metrics, **gaps, **self.baselines}

    def export(self, folder: Path, weights: dict[str, Tensor], metrics: dict[str, float]) -> None:
        save_critic(folder, self.card, weights, self.tokenizer, self.normalizer, metrics)

    def _labelled(self, data: FrameMixture, samples: np.ndarray) -> dict[str, Tensor]:
        targets = data.targets[samples]
        lower, weight = self.support.two_hot(targets)
        labels = {"lower": lower, "weight": weight.astype(np.float32), "target": targets.astype(np.float32)}
        return data.batch(samples) | {name: torch.from_numpy(array) for name, array in labels.items()}

    def _judge(self, title: str, data: FrameMixture, count: int) -> dict[str, float]:
        samples = spread(data.lengths, count)
        found = value_metrics(data.targets[samples], self._predict(data, samples), self.support)
        return {f"{title}/{name}": value for name, value in found.items()}

    def _predict(self, data: FrameMixture, samples: np.ndarray) -> Predictions:
        """Predictions of ``samples``; the processes share them, each with the same number of forward passes."""
        world = devices.world_size()
        padded = np.concatenate([samples, np.repeat(samples[-1:], -len(samples) % world)])
        mine = np.split(padded, world)[devices.rank()]
        parts = []
        for start in range(0, len(mine), EVALUATION_BATCH):
            batch = self._labelled(data, mine[start : start + EVALUATION_BATCH])
            batch = {name: tensor.to(devices.device()) for name, tensor in batch.items()}
            logits = self.model(*model_inputs(batch))
            found, loss = describe(logits, self.support), cross_entropy(logits, batch["lower"], batch["weight"])
            parts.append([tensor.cpu().numpy() for tensor in (found.value, found.best_bin, loss)])
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        everyone = [np.concatenate(column)[: len(samples)] for column in zip(*devices.gather(columns), strict=True)]
        return Predictions(*everyone)

    def _baselines(self) -> dict[str, float]:
        samples = spread(self.held_out.lengths, EVALUATION_FRAMES)
        targets, frame_index = self.held_out.targets[samples], self.held_out.frame_index[samples]
        metrics = {}
        for title, num_bins in (("baseline_constant", 1), ("baseline_time", TIME_BINS)):
            table = TimeTable(self.training.targets, self.training.frame_index, num_bins, self.support)
            found = value_metrics(targets, table.predict(targets, frame_index), self.support)
            metrics |= {f"{title}/{name}": value for name, value in found.items()}
        return metrics
