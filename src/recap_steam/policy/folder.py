"""A policy's folder: lerobot's own layout, which stock lerobot loads, plus ``serving.json``, which says how to prompt and guide it.

config.json, model.safetensors      PI05Policy.from_pretrained(folder)
policy_{pre,post}processor.json     make_pre_post_processors(config, pretrained_path=folder, preprocessor_overrides=
  and their state files             {"tokenizer_processor": {"tokenizer_name": f"{folder}/tokenizer"}})
tokenizer/                          AutoTokenizer.from_pretrained
serving.json                        ``Serving``
"""

import dataclasses
import json
from pathlib import Path

import safetensors.torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from lerobot.processor import PolicyProcessorPipeline
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from recap_steam.errors import UserError, rerun, run_target
from recap_steam.model_config import SmallPi05Config
from recap_steam.policy.pi05 import EMBEDDING, LM_HEAD, build, load_weights
from recap_steam.policy.processors import load_processors
from recap_steam.policy.prompts import KIND_NAMES, SUFFIXES, TEMPLATE

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Serving:
    """What whoever serves the policy must know beside lerobot's files.

    Attributes:
        conditional: whether it was trained with the advantage indicator.
        default_guidance_scale: guidance to serve with; None: the plain prompt, without indicator (imitation).
        cameras: camera keys, in order.
        small: sizes of a small pi0.5; None: full size.
        prompt_template: of the text that the model reads.
        task_suffixes: by prompt kind that occurred in training, what to append to the task text.
    """

    conditional: bool
    default_guidance_scale: float | None
    cameras: list[str]
    image_size: int
    state_dim: int
    action_dim: int
    chunk_size: int
    n_action_steps: int
    num_inference_steps: int
    small: SmallPi05Config | None
    prompt_template: str = TEMPLATE
    task_suffixes: dict[str, str] = dataclasses.field(default_factory=lambda: dict(zip(KIND_NAMES, SUFFIXES, strict=True)))
    schema_version: int = SCHEMA_VERSION


@dataclasses.dataclass(frozen=True)
class PolicyFolder:
    """A loaded policy, on the CPU and in eval mode, with its processors."""

    policy: PI05Policy
    preprocessor: PolicyProcessorPipeline
    postprocessor: PolicyProcessorPipeline
    serving: Serving


def save_policy(
    folder: Path,
    policy: PI05Policy,
    weights: dict[str, Tensor],
    processors: tuple[PolicyProcessorPipeline, PolicyProcessorPipeline],
    tokenizer: PreTrainedTokenizerBase,
    serving: Serving,
) -> None:
    """Write a policy folder. ``weights``: full state dict of ``policy.model``."""
    policy.config.save_pretrained(folder)
    weights = {f"model.{name}": tensor.contiguous() for name, tensor in weights.items()}
    weights[f"model.{LM_HEAD}"] = weights[f"model.{EMBEDDING}"].clone()  # lerobot's loader copies the untrained head over the embedding
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for pipeline in processors:
        pipeline.save_pretrained(folder)
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "serving.json").write_text(json.dumps(dataclasses.asdict(serving), indent=2, sort_keys=True) + "\n")


def load_policy(folder: str | Path) -> PolicyFolder:
    """Load a policy folder strictly.

    Raises:
        UserError: a file is missing or unreadable, or the weights do not fit.
    """
    folder = Path(folder)
    serving = load_serving(folder)
    config = PreTrainedConfig.from_pretrained(folder)
    policy = build(config, serving.small, initialise=False)
    load_weights(policy, folder)
    return PolicyFolder(policy.eval(), *load_processors(config, folder), serving)


def load_serving(folder: str | Path) -> Serving:
    """Read ``serving.json`` of a policy folder.

    Raises:
        UserError: it is unreadable or of another schema version, or a file that belongs beside it is missing.
    """
    path = Path(folder) / "serving.json"
    try:
        document = json.loads(path.read_text())
        small = document.pop("small")
        serving = Serving(**document, small=SmallPi05Config(**small) if small else None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not readable as a policy's serving file ({error!r}); give the folder of a policy trained here") from error
    if serving.schema_version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema version {serving.schema_version}, expected {SCHEMA_VERSION}; {rerun('train_policy')}")
    for name in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json", "tokenizer/tokenizer.json"):
        if not (path.parent / name).is_file():
            raise UserError(f"{path.parent / name}: not found; the policy folder is incomplete; {run_target('policies')}")
    return serving
