"""Critics on the frames of an episode under way: the numbers of the value pass and of the score pass, one frame at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from recap_steam import devices
from recap_steam.critics.folder import Card, SavedCritic, load_critic
from recap_steam.critics.frames import collate_images, collate_tokens, model_inputs
from recap_steam.critics.member_scores import ensemble_columns
from recap_steam.critics.progress_folder import load_ensemble
from recap_steam.critics.value_head import describe
from recap_steam.critics.value_pass import COLUMNS
from recap_steam.dataset.resize import resize_with_pad
from recap_steam.errors import UserError
from recap_steam.labels.normalizer import ReturnNormalizer

Images = dict[str, np.ndarray | None]  # by camera, (1, H, W, 3) uint8; None: the robot lacks it
Judge = Callable[[Images, str, int], dict[str, Any]]  # of images, prompt and number of the frame


class LiveCritic(Protocol):
    """A critic that follows episodes."""

    card: Card
    metadata: dict[str, Any]

    def follow(self) -> Judge:
        """What judges the frames of one client, in order; raises UserError where the prompt or the cameras do not fit."""


class LiveValue:
    """A value critic: judges every frame by itself."""

    def __init__(self, folder: Path):
        self._critic = load_critic(folder)
        self._critic.model.to(devices.device())
        self.card, normalizer = self._critic.card, ReturnNormalizer.load(folder)
        self.metadata = {"return_min": normalizer.return_min, "offset": normalizer.offset}

    def follow(self) -> Judge:
        return self._judge

    @torch.no_grad()
    def _judge(self, images: Images, prompt: str, frame: int) -> dict[str, float]:
        """``value``, ``value_std`` and ``value_entropy`` as in the sidecar."""
        batch = _image_batch(self.card, images) | _token_batch(self._critic, prompt)
        with devices.autocast():
            found = describe(self._critic.model(*model_inputs(devices.to_device(batch))), self.card.architecture.support)
        return {column: getattr(found, name).item() for column, name in COLUMNS.items()}


class LiveScore:
    """An ensemble of progress critics: judges the frame that lies k frames back by what the current one shows."""

    def __init__(self, folder: Path):
        self._ensemble = load_ensemble(folder)
        self._ensemble.model.to(devices.device())
        self.card = self._ensemble.card
        self.metadata = {"k": self.card.k, "ensemble_size": self.card.ensemble_size}

    def follow(self) -> Judge:
        return _Episode(self._ensemble).judge


class _Episode:
    """The features of a client's last k frames, on the device. A frame number that does not grow, or another prompt, starts an episode."""

    def __init__(self, ensemble: SavedCritic):
        self._ensemble, self._members, self._k = ensemble, ensemble.model.members, ensemble.card.k
        self._prompt: str | None = None
        self._texts: list[Tensor] = []  # by member, (1, H)
        self._frames: dict[int, list[Tensor]] = {}  # by frame, then by member, (1, H)

    @torch.no_grad()
    def judge(self, images: Images, prompt: str, frame: int) -> dict[str, Any]:
        """``score`` and ``member_scores`` of frame ``score_frame``; None where the frame k frames back was not sent."""
        with devices.autocast():
            if prompt != self._prompt:
                tokens = devices.to_device(_token_batch(self._ensemble, prompt))
                self._texts = [member.encode_prompts(tokens["tokens"], tokens["token_mask"]) for member in self._members]
                self._prompt, self._frames = prompt, {}
            inputs = model_inputs(devices.to_device(_image_batch(self._ensemble.card, images)), ("places", "camera_mask"))
            features = [member.encode_frames(*inputs) for member in self._members]
            self._remember(frame, features)
            return self._score(self._frames.get(frame - self._k), features, frame - self._k)

    def _remember(self, frame: int, features: list[Tensor]) -> None:
        kept = {} if frame <= max(self._frames, default=-1) else {n: old for n, old in self._frames.items() if n >= frame - self._k}
        self._frames = {**kept, frame: features}

    def _score(self, earlier: list[Tensor] | None, now: list[Tensor], frame: int) -> dict[str, Any]:
        if earlier is None:
            return {"score": None, "member_scores": None, "score_frame": None}
        logits = [member.classify(*pair) for member, *pair in zip(self._members, earlier, now, self._texts, strict=True)]
        columns = ensemble_columns(softmax(torch.stack(logits).cpu().numpy().astype(np.float64), axis=-1), self._k)
        members = columns["member_values"][0].tolist()
        return {"score": float(columns["ensemble_signed_score"][0]), "member_scores": members, "score_frame": frame}


def _image_batch(card: Card, images: Images) -> dict[str, Tensor]:
    """Host batch of one frame."""
    present = [images[camera] is not None for camera in card.cameras]
    if not any(present):
        raise UserError(f"camera {card.cameras[0]}: this critic needs it or another of {', '.join(card.cameras)}; send an image")
    given = [resize_with_pad(images[camera], card.image_size) for camera in card.cameras if images[camera] is not None]
    return collate_images(np.concatenate(given), np.array([present]))


def _token_batch(critic: SavedCritic, prompt: str) -> dict[str, Tensor]:
    """Host batch of one prompt."""
    return collate_tokens(critic.card.prompts([prompt], critic.tokenizer).take(np.array([0])))
