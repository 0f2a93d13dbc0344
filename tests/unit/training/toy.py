"""A small real trainable: a linear regression with noise drawn per sample, run by the tests alone or under torchrun."""

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from recap_steam import devices
from recap_steam.config import OptimConfig
from recap_steam.errors import run_main
from recap_steam.lineage import Lineage
from recap_steam.training.loop import train

OPTIM = OptimConfig(
    lr=0.05,
    value_lr=None,
    adam_beta1=0.9,
    adam_beta2=0.95,
    adam_eps=1e-8,
    weight_decay=0.01,
    clip_grad=1.0,
    nonfinite_patience=2,
    lr_scheduler="cosine",
    lr_warmup_steps=3,
    min_lr=0.0,
)


@dataclasses.dataclass
class ToyConfig:
    optim: OptimConfig = OPTIM
    max_steps: int = 30
    global_batch_size: int = 8
    micro_batch_size: int | None = None
    eval_interval: int = 10
    save_interval: int = 5
    compile_model: bool = False
    seed: int = 0


class Network(nn.Sequential):
    """A forward of its own, because torch does not compile that of its own modules."""

    def forward(self, x):
        for layer in self:
            x = layer(x)
        return x


class Toy:
    def __init__(
        self,
        selection=None,
        nan_from: int | None = None,
        seconds_per_batch: float = 0.0,
        seconds_per_state: float = 0.0,
        seconds_per_export: float = 0.0,
        dropout: float = 0.1,
        fail_at: int | None = None,
    ):
        devices.seed(0)
        self.model = Network(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 1))
        rng = np.random.default_rng(0)
        self.inputs = rng.standard_normal((40, 4)).astype(np.float32)
        self.targets = self.inputs.sum(1, keepdims=True)
        self.lengths, self.weights, self.selection = [10, 30], [1.0, 1.0], selection
        self.nan_from, self.seconds_per_batch = nan_from, seconds_per_batch
        self.fail_at, self.seconds_per_export = fail_at, seconds_per_export
        self.model.register_state_dict_pre_hook(lambda *_: time.sleep(seconds_per_state))
        self.losses, self.seen = [], []  # of every call

    def parameter_groups(self):
        return [{"params": self.model.parameters()}]

    def load(self, samples, rngs):
        time.sleep(self.seconds_per_batch)
        noise = np.stack([rng.standard_normal(4, dtype=np.float32) for rng in rngs])
        return {
            "x": torch.from_numpy(self.inputs[samples] + 0.01 * noise),
            "y": torch.from_numpy(self.targets[samples]),
            "samples": torch.from_numpy(samples),
        }

    def loss(self, batch):
        error = (self.model(batch["x"]) - batch["y"]).square()
        if self.nan_from is not None and len(self.losses) >= self.nan_from:
            error = error * float("nan")
        self.losses.append(error.mean().detach())
        self.seen.append(batch["samples"])
        if len(self.seen) == self.fail_at:
            raise RuntimeError("killed")
        return error.mean(), {"squared_error": (error.sum(), error.new_tensor(float(len(error))))}

    def evaluate(self):
        prediction = self.model(torch.from_numpy(self.inputs).to(devices.device()))
        return {"eval/mae": (prediction.cpu() - torch.from_numpy(self.targets)).abs().mean().item()}

    def export(self, folder, weights, metrics):
        (folder / "started").touch()
        time.sleep(self.seconds_per_export)
        (folder / "started").unlink()
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
        (folder / "evaluation.json").write_text(json.dumps(metrics))


def lineage(**parameters) -> Lineage:
    return Lineage(stage="toy", tag="t", dataset_fingerprint=None, parameters=parameters, inputs={}, statistics={}, code="")


def main():
    """Arguments: Toy's and ToyConfig's fields as JSON, the state folder and the output folder."""
    toy, config = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    with devices.distributed():
        train(Toy(**toy), ToyConfig(**config), Path(sys.argv[3]), Path(sys.argv[4]), lineage())


if __name__ == "__main__":
    run_main(main)
