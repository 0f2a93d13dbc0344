"""Run with the device "npu": what one process finds there and does there, as JSON. Argument: a folder to work in.

The policy and the critic are the real ones, small; training is that of ``tests.unit.training.toy``.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from recap_steam import devices
from recap_steam.errors import UserError
from recap_steam.model_config import PolicyModelConfig
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.processors import make_processors
from recap_steam.policy.prompts import tokenizer_corpus
from recap_steam.policy.runner import PolicyRunner
from recap_steam.tokenizer import train_tokenizer
from recap_steam.training.loop import train
from recap_steam.training.optim import build_optimizer
from recap_steam.training.state import full_weights
from tests import policies
from tests.e2e import sharded_models
from tests.unit.training.toy import OPTIM, Toy, ToyConfig, lineage

TASK = "open the drawer"


def choices() -> dict:
    devices.seed(1, 2)
    optimizer = build_optimizer([{"params": torch.nn.Linear(2, 2).to(devices.device()).parameters()}], OPTIM)
    with devices.autocast():
        product = torch.ones(2, 2, device=devices.device()) @ torch.ones(2, 2, device=devices.device())
    try:
        devices.compile_backend()
    except UserError as error:
        refusal = str(error)
    return {
        "device": str(devices.device()),
        "current": torch.accelerator.current_device_index(),
        "name": devices.name(),
        "seeds": [torch.initial_seed(), torch.npu.initial_seed()],
        "fused": optimizer.param_groups[0]["fused"],
        "autocast": [product.device.type, str(product.dtype)],
        "compile": refusal,
        "peak flops": devices.peak_flops(),
        "peak memory": devices.peak_memory(),
        "group": dist.get_backend_config(),
        "host sums": devices.all_sum([1.5, 2.0]),
    }


def toy_training(folder: Path) -> dict:
    """The same training, whole, and killed and resumed."""
    config = ToyConfig(micro_batch_size=4)
    train(Toy(dropout=0.0), config, folder / "whole_state", folder / "whole", lineage())
    try:
        train(Toy(dropout=0.0, fail_at=27), config, folder / "state", folder / "resumed", lineage())
    except RuntimeError as error:
        assert str(error) == "killed"
    train(Toy(dropout=0.0), config, folder / "state", folder / "resumed", lineage())
    return {name: (folder / name / "model.safetensors").read_bytes().hex() for name in ("whole", "resumed")}


def first_losses(kind: str) -> list[float]:
    """The loss of a model's first batch on the device, in bf16, with a step of training; and on the CPU, in fp32."""
    here = sharded_models.Run(kind, sharded_models.build(kind).to(devices.device()))
    here.step()
    with torch.no_grad():
        output = sharded_models.build(kind).train()(*sharded_models.inputs(kind))
    return [here.losses[0], sharded_models.reduced(output, kind).item()]


def critics() -> dict:
    losses = {kind: first_losses(kind) for kind in ("critic", "progress critic")}
    return {"losses": losses, "float64": sorted(torch.npu.float64_operators())}


def policy(folder: Path) -> dict:
    """A policy's loss, and what it does once it is exported and loaded again."""
    losses = first_losses("pi05")
    rng = np.random.default_rng(0)
    statistics = policies.make_statistics(rng.normal(size=(50, policies.STATE_DIM)), rng.normal(size=(50, policies.ACTION_DIM)))
    tokenizer = train_tokenizer(tokenizer_corpus([TASK]), policies.SMALL.vocab_size)
    made = policies.make_policy().to(devices.device())
    processors = make_processors(policies.CONFIG, statistics, tokenizer)
    folder.mkdir()
    save_policy(folder, made, full_weights(made.model), processors, tokenizer, serving(policies.MODEL))
    runner = PolicyRunner.load(folder)
    images = {policies.CAMERA: rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)}
    states, noise = rng.normal(size=(2, policies.STATE_DIM)).astype(np.float32), rng.standard_normal((2, *runner.noise_shape), np.float32)
    actions = runner.act(images, states, [TASK] * 2, 2.0, noise)
    return {"losses": losses, "actions": actions.tolist(), "float64": sorted(torch.npu.float64_operators())}


def serving(model: PolicyModelConfig) -> Serving:
    sizes = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    shared = {name: sizes[name] for name in ("image_size", "chunk_size", "n_action_steps", "num_inference_steps", "small")}
    return Serving(
        conditional=True,
        default_guidance_scale=1.0,
        cameras=[policies.CAMERA],
        state_dim=policies.STATE_DIM,
        action_dim=policies.ACTION_DIM,
        **shared,
    )


def main() -> None:
    folder = Path(sys.argv[1])
    with devices.distributed():
        found = {"choices": choices(), "toy": toy_training(folder), "critics": critics(), "policy": policy(folder / "policy")}
    found["copies ahead"] = torch.npu.copies_ahead()
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
