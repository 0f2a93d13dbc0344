"""Floating-point operations of a model, counted while it runs."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


def _attention(query, key, value, *_, **__) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(grad, query, key, value, *_, **__) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


# Fused attention that torch's registry lacks: the CPU's, and that of devices outside torch.
_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._scaled_dot_product_fused_attention_overrideable: _attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward: _attention_backward,
}


class ModelFlops(TorchDispatchMode):
    """While active, adds up the operations of matrix products, convolutions and attention by torch's own formulas.

    What gradient checkpointing computes a second time does not count: it is not the model's work. torch's ``FlopCounterMode`` counts it,
    and hooks every module besides. Compiled code shows no operations: count in eager mode.

    Attributes:
        total: operations so far; a multiply-add is two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        packet = function.overloadpacket
        if not _recomputing():
            if packet in _ATTENTION:
                self.total += _ATTENTION[packet](*args, **kwargs)
            elif packet in flop_registry:
                self.total += flop_registry[packet](*args, **kwargs, out_val=result)
        return result


def _recomputing() -> bool:
    """Within a backward pass, only gradient checkpointing computes with autograd switched on."""
    return torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled()
