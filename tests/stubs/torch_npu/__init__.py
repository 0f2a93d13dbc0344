"""A stand-in for Huawei's torch_npu: ``import torch`` loads it by its entry point, as it does the real one, and there is a device "npu".

``PYTHONPATH`` names the folder above, ``STUB_NPU`` what ``npu.cpp`` was compiled to (``tests/unit/devices/conftest.py``).
"""

import sys


def npu_fusion_attention(*_, **__) -> None:
    """transformers imports it where there is such a device, for an attention that nothing here asks for."""
    raise NotImplementedError


def _autoload() -> None:
    import torch
    import torch.distributed as dist

    from torch_npu import npu

    sys.modules["torch.npu"] = npu
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", npu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dist.Backend.register_backend("hccl", npu.process_group, devices=["npu"])
