"""``python -m recap_steam.serving.policy --policy-dir DIR``: serves a policy to robots, configured by its folder alone."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.errors import UserError, run_main
from recap_steam.lineage import digest_file
from recap_steam.policy.folder import Serving
from recap_steam.policy.prompts import KIND_NAMES, PLAIN, POSITIVE
from recap_steam.policy.runner import PolicyRunner
from recap_steam.serving import observation as check
from recap_steam.serving.command import make_parser
from recap_steam.serving.server import serve_forever

GUIDANCE = ["guidance_scale", "indicator"]
NO_POLICY_KEYS = "this is a policy server, it returns actions; values and scores of frames come from a value server"


@dataclasses.dataclass(frozen=True)
class Guidance:
    """The prompt that leads, by name (``KIND_NAMES``), and how far."""

    indicator: str
    scale: float

    @property
    def weight(self) -> float | None:
        """As ``PolicyRunner.act`` takes it: None for the plain prompt, which is not guided."""
        return None if self.indicator == KIND_NAMES[PLAIN] else self.scale

    def change(self, indicator: str | None, scale: float | None) -> "Guidance":
        """With what is given in place of its own.

        Raises:
            UserError: a scale for the plain prompt.
        """
        changed = Guidance(indicator or self.indicator, self.scale if scale is None else scale)
        if scale is not None and changed.weight is None:
            raise UserError(f"guidance_scale: the {changed.indicator} prompt is not guided; leave it out, or choose another indicator")
        return changed


def default_guidance(serving: Serving) -> Guidance:
    """What a policy's folder says."""
    if serving.default_guidance_scale is None:
        return Guidance(KIND_NAMES[PLAIN], 1.0)
    return Guidance(KIND_NAMES[POSITIVE], serving.default_guidance_scale)


class PolicyService:
    """A policy behind a server; its denoising noise is drawn from ``seed`` unless a client sends its own.

    Args:
        indicator, guidance_scale: None: what the folder says.
        request_guidance: whether an observation may choose its own.

    Raises:
        UserError: the folder is incomplete, or its policy was not trained for this guidance.
    """

    kind = "policy"

    def __init__(
        self,
        folder: Path,
        *,
        guidance_scale: float | None = None,
        indicator: str | None = None,
        request_guidance: bool = False,
        seed: int = 0,
    ):
        self._runner, self._request_guidance = PolicyRunner.load(folder), request_guidance
        self._rng = np.random.default_rng(seed)
        serving = self._runner.serving
        self._guidance = default_guidance(serving).change(indicator, guidance_scale)
        self.metadata = {
            **{name: getattr(serving, name) for name in ("cameras", "state_dim", "action_dim", "n_action_steps", "image_size")},
            **{name: getattr(serving, name) for name in ("prompt_template", "task_suffixes")},
            "noise_shape": self._runner.noise_shape,
            "indicator": self._guidance.indicator,
            "guidance_scale": self._guidance.weight,
            "request_guidance": request_guidance,
            "weights": digest_file(Path(folder) / "model.safetensors"),
        }

    def session(self) -> "PolicyService":
        return self

    def example(self) -> dict[str, Any]:
        image = np.zeros((self.metadata["image_size"], self.metadata["image_size"], 3), np.uint8)
        return {**dict.fromkeys(self._runner.cameras, image), "state": np.zeros(self._runner.state_dim, np.float32), "prompt": "move"}

    def infer(self, observation: dict[str, Any]) -> dict[str, np.ndarray]:
        """The next actions, ``actions`` (n_action_steps, action_dim) float32 in the robot's units.

        Raises:
            UserError: the observation is wrong, or the actions are not finite.
        """
        runner = self._runner
        self._check_keys(observation)
        images, state = check.images_of(observation, runner.cameras), check.numbers(observation, "state", (runner.state_dim,))
        prompt, guidance = self._prompt_of(observation), self._guidance_of(observation)
        noise, indicator = self._noise_of(observation), KIND_NAMES.index(guidance.indicator)
        (actions,) = runner.act(images, state, [prompt], guidance.weight, noise, indicator)
        if not np.isfinite(actions).all():
            raise UserError(f"the policy's actions are not finite at guidance {guidance.weight}; use a smaller guidance_scale")
        return {"actions": actions}

    def _check_keys(self, observation: dict[str, Any]) -> None:
        needed = [*self._runner.cameras, "state", "prompt"]
        if not self._request_guidance and (asked := [key for key in GUIDANCE if key in observation]):
            raise UserError(f"key '{asked[0]}': requests may not choose it here; start the server with --request-guidance")
        check.check_keys(observation, needed, ["noise", *(GUIDANCE if self._request_guidance else [])], NO_POLICY_KEYS)

    def _prompt_of(self, observation: dict[str, Any]) -> str:
        prompt = check.text(observation, "prompt")
        if any(suffix and suffix.strip() in prompt for suffix in self._runner.serving.task_suffixes.values()):
            raise UserError("key 'prompt': it has an indicator, which this server appends itself; send the task alone")
        return prompt

    def _guidance_of(self, observation: dict[str, Any]) -> Guidance:
        indicator = check.one_of(observation, "indicator", list(KIND_NAMES)) if "indicator" in observation else None
        scale = check.number(observation, "guidance_scale") if "guidance_scale" in observation else None
        return self._guidance.change(indicator, scale)

    def _noise_of(self, observation: dict[str, Any]) -> np.ndarray:
        if "noise" in observation:
            return check.numbers(observation, "noise", self._runner.noise_shape)
        return self._rng.standard_normal((1, *self._runner.noise_shape), np.float32)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed; give a whole number from 0 on")
    return int(text)


def main() -> None:
    parser = make_parser("recap_steam.serving.policy", __doc__)
    parser.add_argument("--policy-dir", type=Path, required=True, help="a trained policy, results/<experiment>/policies/<tag>")
    parser.add_argument("--indicator", choices=KIND_NAMES, help="prompt that guidance leads towards (default: what the folder says)")
    parser.add_argument(
        "--guidance-scale", type=float, help="0: plain prompt, 1: the indicator's, more: beyond (default: what the folder says)"
    )
    parser.add_argument("--request-guidance", action="store_true", help="let an observation choose guidance_scale and indicator")
    parser.add_argument("--seed", type=_seed, default=0, help="of the denoising noise (default: %(default)s)")
    arguments = vars(parser.parse_args())
    folder, *serving = (arguments.pop(name) for name in ("policy_dir", "host", "port", "until_stdin_ends"))
    serve_forever(PolicyService(folder, **arguments), *serving)


if __name__ == "__main__":
    run_main(main)
