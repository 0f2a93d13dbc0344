"""pi0.5's flow-matching loss of a batch of samples, and the draws that it needs."""

import numpy as np
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from torch import Tensor

from recap_steam.policy.images import augment, mask_absent, model_images, to_float


def draw_flow(config: PI05Config, rngs: list[np.random.Generator]) -> dict[str, np.ndarray]:
    """Time (n,) and noise (n, chunk_size, max_action_dim), float32, of n samples; each draws from its own generator, time first.

    The distribution of the time is lerobot's: offset + scale * Beta, so that most samples are close to pure noise.
    """
    beta = np.array([rng.beta(config.time_sampling_beta_alpha, config.time_sampling_beta_beta) for rng in rngs])
    shape = (config.chunk_size, config.max_action_dim)
    return {
        "time": (beta * config.time_sampling_scale + config.time_sampling_offset).astype(np.float32),
        "noise": np.stack([rng.standard_normal(shape, np.float32) for rng in rngs]),
    }


def image_inputs(policy: PI05Policy, batch: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Images and masks per camera as ``PI05Pytorch`` takes them.

    Args:
        batch: on the device; ``images`` (n, cameras, S, S, 3) uint8, ``camera_mask`` (n, cameras) bool
            and, to be augmented, ``augmentation`` (n, cameras, draws).
    """
    cameras = policy.config.image_features
    images, _ = model_images(policy, {camera: to_float(batch["images"][:, place]) for place, camera in enumerate(cameras)})
    if "augmentation" in batch:
        images = [augment(image, batch["augmentation"][:, place]) for place, image in enumerate(images)]
    return mask_absent(images, batch["camera_mask"])


def sample_losses(policy: PI05Policy, batch: dict[str, Tensor], action_dim: int) -> Tensor:
    """(n,) mean squared error of each sample's velocity, over its real action dimensions and the steps inside its episode.

    lerobot averages over steps past the end of the episode too. Nothing here waits for the device.
    """
    prompt, flow = (batch["tokens"], batch["token_mask"]), (batch["actions"], batch["noise"], batch["time"])
    errors = policy.model(*image_inputs(policy, batch), *prompt, *flow)[..., :action_dim]
    valid = (~batch["action_is_pad"]).float()
    return (errors.mean(-1) * valid).sum(1) / valid.sum(1)
