"""Models that are larger than a device: built without memory, cut among the processes (FSDP2), gathered layer by layer.

What is cut: parameters, gradients and optimiser state, all fp32, so that N processes hold 1/N each. What is gathered at a time: the linear
layers of one block, in the compute dtype, around their forward and backward; and the rest of the model (norms, embeddings, heads), in fp32,
from the first forward to the end of the backward pass. Autocast would cast the same weights, so the numbers are those of one device.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.overrides import TorchFunctionMode

from recap_steam.devices import accelerator
from recap_steam.devices.processes import is_main, world_size


@contextlib.contextmanager
def blueprint() -> Iterator[None]:
    """Around the construction of a model: process 0 builds it, every other process only its shapes (on the meta device).

    Fill its weights in process 0 (``on_main``); ``shard`` hands every process its part.
    """
    with contextlib.ExitStack() as stack:
        if not is_main():
            stack.enter_context(torch.device("meta"))
            stack.enter_context(_StayOnMeta())
        yield


class _StayOnMeta(TorchFunctionMode):
    """Constructors that move what they built (``module.to("cpu")``) leave shapes where they are."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.to:
            args = tuple(torch.device("meta") if isinstance(argument, torch.device) else argument for argument in args)
        return function(*args, **(kwargs or {}))


def shard(module: nn.Module) -> nn.Module:
    """Move a module to this process's device; with several processes, cut it, whether or not it was built in a ``blueprint``.

    The weights are those of process 0, the only one that needs memory for a whole model. Parameters become new objects: collect them for
    the optimiser afterwards. No two modules may share a parameter.
    """
    if world_size() == 1:
        return module.to(accelerator.device())
    weights = module.state_dict() if is_main() else {}
    constants = {name: buffer for name, buffer in module.named_buffers() if name not in module.state_dict()}
    module.to_empty(device="meta")
    _cut(module)
    module.to_empty(device=accelerator.device())
    set_model_state_dict(module, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    buffers = dict(module.named_buffers())
    for name, constant in constants.items():
        if is_main():
            buffers[name].copy_(constant)
        dist.broadcast(buffers[name], src=0)
    return module


_NEVER_CALLED = NonDynamicallyQuantizableLinear  # a part of nn.MultiheadAttention, which reads its weight without calling it


def _cut(module: nn.Module) -> None:
    """Turn the parameters into this process's parts.

    Linear layers of a block are gathered together. They are that and not the block, because a model may call a block's parts by themselves,
    as lerobot's pi0.5 does. The last block stays gathered until its backward pass: that comes at once, and where nothing reads its output,
    as in pi0.5's prefix, no hook would gather its keys and values again. A frozen head outside the blocks may never run; by itself, it is
    never gathered.
    """
    mesh = dist.init_device_mesh(accelerator.device().type, (world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=accelerator.compute_dtype(), reduce_dtype=torch.float32, cast_forward_inputs=False)
    for blocks in _lists(module):
        for block in blocks:
            if linears := [part for part in block.modules() if isinstance(part, nn.Linear)]:
                fully_shard(linears, mesh=mesh, mp_policy=policy, reshard_after_forward=block is not blocks[-1])
    for part in module.modules():
        if isinstance(part, nn.Linear) and not isinstance(part, FSDPModule | _NEVER_CALLED) and not part.weight.requires_grad:
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_force_sum_reduction_for_comms(True)  # a sum, then a division: not every backend can average


def _lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    """Every outermost list of modules: the blocks of a tower or language model."""
    for child in module.children():
        yield from [child] if isinstance(child, nn.ModuleList) else _lists(child)


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold what a sharded module gathers as a whole; needed by methods other than ``forward``, around which FSDP2 does it by itself.

    The module must have run forward before. Its blocks gather themselves, so every process must make the same calls.
    """
    parts = [part for part in module.modules() if isinstance(part, FSDPModule)]
    if parts:
        module.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that may be spread over processes, as one that is not."""
    return value.full_tensor() if isinstance(value, DTensor) else value
