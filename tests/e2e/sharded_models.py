"""Run by torchrun: trains the real small models two steps, whole and sharded, side by side, and reports how they differ.

Arguments: file to write the report to, as JSON ``{model/dtype: {...}}``, and the models.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from recap_steam import devices
from recap_steam.devices import accelerator
from recap_steam.training.flops import ModelFlops
from recap_steam.training.optim import build_optimizer
from recap_steam.training.state import full_weights
from tests.unit.critics import small
from tests.unit.training.toy import OPTIM

MODELS = {
    "critic": {},
    "critic, VLM frozen": {"freeze_vlm": True},
    "critic, checkpointing": {"checkpointing": True},
    "critic, compiled": {"compiled": True},
    "progress critic": {},
    "progress critic, towers frozen, checkpointing": {"freeze_vlm": True, "checkpointing": True},
    "pi05": {},
    "pi05, expert only, checkpointing": {"train_expert_only": True, "checkpointing": True},
    "pi05, vision frozen, checkpointing": {"freeze_vision_encoder": True, "checkpointing": True},
}


def build(name: str, checkpointing: bool = False, freeze_vlm: bool = False, **changes) -> nn.Module:
    devices.seed(1)
    if "critic" in name:
        model = small.progress_critic() if name.startswith("progress") else small.critic()
        model.text.requires_grad_(not freeze_vlm)
        model.vision.requires_grad_(not (freeze_vlm and name.startswith("progress")))
        if checkpointing:
            model.enable_gradient_checkpointing()
        return model
    from recap_steam.policy import pi05  # lerobot takes long to import: only where a policy is built
    from tests import policies

    config = pi05.make_config(dataclasses.replace(policies.MODEL, **changes), [policies.CAMERA], policies.STATE_DIM, policies.ACTION_DIM)
    model = pi05.build(config, policies.SMALL, initialise=True).model
    for parameter_name, parameter in model.named_parameters():
        if ".dense." in parameter_name:  # zero at first: nothing would depend on the prompt
            nn.init.normal_(parameter, std=0.3)
    if checkpointing:
        pi05.enable_gradient_checkpointing(model)
    return model


def policy_inputs() -> tuple:
    """The arguments of pi0.5's forward: two cameras, of which one sample lacks one."""
    draw = torch.Generator().manual_seed(3)
    images = [torch.rand(2, 3, 32, 32, generator=draw) * 2 - 1 for _ in range(2)]
    masks = [torch.ones(2, dtype=torch.bool), torch.tensor([True, False])]
    tokens, token_mask = torch.randint(4, 500, (2, 9), generator=draw), torch.ones(2, 9, dtype=torch.bool)
    actions, noise = (torch.randn(2, 4, 32, generator=draw) for _ in range(2))
    return images, masks, tokens, token_mask, actions, noise, torch.rand(2, generator=draw)


def inputs(name: str) -> tuple:
    if "critic" not in name:
        return policy_inputs()
    return small.pair_batch(2) if name.startswith("progress") else small.batch(2)


def reduced(output: Tensor, name: str) -> Tensor:
    """A policy's squared errors or a critic's logits to one number."""
    return (output.square() if "critic" in name else output).mean()


def on_device(tensors: Any) -> Any:
    return tree_map(lambda tensor: tensor.to(devices.device()), tensors)


def loss(model: nn.Module, name: str) -> Tensor:
    with devices.autocast():
        return reduced(model(*on_device(inputs(name))), name)


def act(model: nn.Module) -> Tensor:
    model.eval()
    images, masks, tokens, token_mask, _, noise, _ = on_device(policy_inputs())
    with torch.no_grad(), devices.autocast(), devices.gathered(model):
        return model.sample_actions(images, masks, tokens, token_mask, noise=noise)


class Run:
    """A model, its optimiser and what training it showed."""

    def __init__(self, name: str, model: nn.Module):
        self.name, self.model = name, model.train()
        self.optimizer = build_optimizer([{"params": [p for p in model.parameters() if p.requires_grad]}], OPTIM)
        self.losses, self.norms = [], []

    def step(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(2):
            value = loss(self.model, self.name)
            (value / 2).backward()
        self.norms.append(devices.whole(nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)).item())
        self.optimizer.step()
        self.losses.append(value.item())


def flops(run: Run) -> int:
    with torch.compiler.set_stance("force_eager"), ModelFlops() as counter:
        loss(run.model, run.name).backward()
    return counter.total


def held(tensors: list[Tensor]) -> float:
    """Share of the elements that lies in this process."""
    return sum(tensor.to_local().numel() for tensor in tensors) / sum(tensor.numel() for tensor in tensors)


def compare(name: str, compiled: bool = False, **options) -> dict:
    whole = Run(name, build(name, **options).to(devices.device()))
    start = {key: tensor.cpu().clone() for key, tensor in whole.model.state_dict().items()}
    with devices.blueprint():
        shapes = build(name, **options)
    alone = devices.is_main() or all(parameter.is_meta for parameter in shapes.parameters())
    sharded = Run(name, devices.shard(shapes))
    if compiled:
        sharded.model.compile(backend="eager")  # traced as for any backend; generating code would take minutes
    weights = full_weights(sharded.model)
    report = {"others built only shapes": alone, "same start": all(torch.equal(weights[key], start[key]) for key in weights)}
    gathered = []
    blocks = next(part for part in sharded.model.modules() if isinstance(part, nn.ModuleList))
    linear = next(part for part in blocks[0].modules() if isinstance(part, nn.Linear))
    linear.register_forward_hook(lambda module, *_: gathered.append(str(module.weight.dtype)))
    for _ in range(2):
        whole.step()
        sharded.step()
    report["flops"] = [flops(whole), flops(sharded)]
    if "critic" not in name:
        report["actions"] = (act(whole.model) - act(sharded.model)).abs().max().item()
    weights = full_weights(sharded.model)
    end = {key: tensor.cpu() for key, tensor in whole.model.state_dict().items()}
    moments = [state[key] for state in sharded.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    parameters = list(sharded.model.parameters())
    return report | {
        "losses": [whole.losses, sharded.losses],
        "norms": [whole.norms, sharded.norms],
        "weights": max(((weights[key] - end[key]).abs().max().item() for key in weights), default=0.0),
        "moved": max(((end[key] - start[key]).abs().max().item() for key in start), default=0.0),
        "dtypes": sorted({str(tensor.dtype) for tensor in [*parameters, *moments]}),
        "compute dtype": sorted(set(gathered)),
        "held": [max(devices.gather(held(tensors))) for tensors in (parameters, moments)],
    }


def main() -> None:
    report = {}
    with devices.distributed():
        for dtype in (torch.float32, torch.bfloat16):
            accelerator.compute_dtype = lambda dtype=dtype: dtype  # what an accelerator would say
            for name in sys.argv[2:]:
                found = devices.gather(compare(name, **MODELS[name]))
                report[f"{name}/{str(dtype).removeprefix('torch.')}"] = found[0] | {
                    "others built only shapes": all(one["others built only shapes"] for one in found)
                }
        if devices.is_main():
            Path(sys.argv[1]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
