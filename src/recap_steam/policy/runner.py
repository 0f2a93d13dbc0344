"""A trained policy as a function from observations to actions."""

from pathlib import Path

import numpy as np
import torch

from recap_steam import devices
from recap_steam.dataset.resize import resize_with_pad
from recap_steam.errors import UserError
from recap_steam.policy.folder import PolicyFolder, load_policy
from recap_steam.policy.guidance import sample_guided
from recap_steam.policy.images import model_images, to_float
from recap_steam.policy.processors import encode
from recap_steam.policy.prompts import KIND_NAMES, PLAIN, POSITIVE


class PolicyRunner:
    """Batched inference. The caller supplies the noise, so an episode's actions depend neither on its neighbours nor on hidden state.

    Attributes:
        serving: what the policy's folder says about it.
        cameras: camera keys that ``act`` needs.
        state_dim, action_dim: widths of states and actions in environment units.
        noise_shape: shape of one observation's noise, (chunk_size, max_action_dim).
    """

    def __init__(self, folder: PolicyFolder):
        self._policy = folder.policy.to(devices.device())
        self._preprocessor, self._postprocessor, self.serving = folder.preprocessor, folder.postprocessor, folder.serving
        self.cameras, self.state_dim, self.action_dim = folder.serving.cameras, folder.serving.state_dim, folder.serving.action_dim
        self.noise_shape = (folder.policy.config.chunk_size, folder.policy.config.max_action_dim)

    @classmethod
    def load(cls, folder: str | Path) -> "PolicyRunner":
        """Raises UserError where the folder is incomplete or its weights do not fit."""
        return cls(load_policy(folder))

    @torch.no_grad()
    def act(
        self,
        images: dict[str, np.ndarray | None],
        states: np.ndarray,
        tasks: list[str],
        guidance_scale: float | None,
        noise: np.ndarray,
        indicator: int = POSITIVE,
    ) -> np.ndarray:
        """Next actions of B observations.

        Args:
            images: by the policy's camera names, (B, H, W, 3) uint8, resized as the training frames were; None for a camera that the robot
                lacks.
            states: (B, state_dim) float32, environment units.
            tasks: B task texts, without indicator.
            guidance_scale: w of ``v_plain + w (v_indicated - v_plain)``; None: the plain prompt.
            noise: (B, *noise_shape) float32, standard normal.
            indicator: ``POSITIVE`` or ``NEGATIVE``, the prompt that guidance leads towards.

        Returns:
            (B, n_action_steps, action_dim) float32, environment units.

        Raises:
            UserError: a camera is missing or all are None, a prompt is too long, or the policy was not trained for the guidance asked for.
        """
        if guidance_scale is not None:
            self.check_guidance(indicator)
        camera_images, masks = model_images(self._policy, self._present(images))
        scale = guidance_scale or 0
        plain = None if scale == 1 else self._prompt(states, tasks, PLAIN)
        indicated = None if scale == 0 else self._prompt(states, tasks, indicator)
        start = torch.from_numpy(noise).to(devices.device())
        chunk = sample_guided(self._policy.model, camera_images, masks, plain, indicated, scale, start)
        return self._postprocessor(chunk[:, : self.serving.n_action_steps, : self.action_dim]).numpy()

    def check_guidance(self, indicator: int) -> None:
        """Raise UserError unless the policy was trained with an advantage indicator, and this one."""
        if not self.serving.conditional:
            raise UserError("guidance scale: this policy was trained without the advantage indicator; evaluate it without guidance")
        if KIND_NAMES[indicator] not in self.serving.task_suffixes:
            raise UserError(f"indicator {KIND_NAMES[indicator]}: this policy never read it in training; use {KIND_NAMES[POSITIVE]}")

    def _present(self, images: dict[str, np.ndarray | None]) -> dict[str, torch.Tensor]:
        """The given cameras, (B, 3, S, S) float32 each; lerobot masks the others."""
        missing = [camera for camera in self.cameras if camera not in images]
        if missing or all(images[camera] is None for camera in self.cameras):
            raise UserError(
                f"camera {(missing or self.cameras)[0]}: the policy needs it, but the observation has only {', '.join(images)}; "
                "give its image, or None if the robot lacks it and has another"
            )
        size, here = self.serving.image_size, devices.device()
        given = {camera: images[camera] for camera in self.cameras if images[camera] is not None}
        return {camera: to_float(torch.from_numpy(resize_with_pad(pixels, size)).to(here)) for camera, pixels in given.items()}

    def _prompt(self, states: np.ndarray, tasks: list[str], kind: int) -> tuple[torch.Tensor, torch.Tensor]:
        suffix = self.serving.task_suffixes[KIND_NAMES[kind]]
        tokens, mask = encode(self._preprocessor, states, [task + suffix for task in tasks])
        return tokens.to(devices.device()), mask.to(devices.device())
