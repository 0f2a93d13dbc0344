"""Accelerators by name: what Slurm, the environment and torch call them, and what differs between them.

No other file names one: a new accelerator is a new entry here.
"""

import dataclasses

NONE = "none"  # the name that stands for CPU nodes of a cluster


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """One kind of accelerator.

    Attributes:
        device_type: torch's word for it, as in ``torch.device(device_type)``.
        gres: Slurm's word for it (generic resource).
        gres_resources: further resources of a job with such a gres, in the words of Snakemake's Slurm plugin.
        visible_devices: environment variable that limits a process to some devices of its node, by comma-separated indices.
        slurm_sets_visible_devices: whether Slurm sets that variable in a job.
        environment: variables that processes get where the user has not set them (docs/training.md, "Environment").
        fused_optimizer: whether torch's fused AdamW runs there.
        compile_backend: of ``torch.compile``; None: nothing compiles there.
        copies_ahead: whether a copy from ordinary host memory, which is not page-locked, may be left to run: at its return that memory is
            no longer needed.
        peak_flops: dense bf16 FLOP/s with fp32 accumulation, by a pattern of the device's own name, from data sheets.
    """

    device_type: str
    gres: str
    gres_resources: dict[str, int]
    visible_devices: str
    slurm_sets_visible_devices: bool
    environment: dict[str, str]
    fused_optimizer: bool
    compile_backend: str | None
    copies_ahead: bool
    peak_flops: dict[str, float]


ACCELERATORS = {
    "cuda": Accelerator(
        device_type="cuda",
        gres="gpu",
        gres_resources={"tasks_per_gpu": 0},  # else the plugin asks for a task per GPU; torchrun starts the processes
        visible_devices="CUDA_VISIBLE_DEVICES",
        slurm_sets_visible_devices=True,
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"},  # batches differ in size; fixed segments break into pieces
        fused_optimizer=True,
        compile_backend="inductor",
        copies_ahead=True,  # the driver copies that memory into its own first
        # NVIDIA's data sheets (A100, H100, H200, L40S, and the Ada white paper); where those count sparsity, half of what they say.
        peak_flops={
            r"NVIDIA A100\b.*": 312e12,
            r"NVIDIA H100 PCIe": 756.5e12,
            r"NVIDIA H100 NVL": 835.5e12,
            r"NVIDIA H100 80GB HBM3": 989.5e12,
            r"NVIDIA H200": 989.5e12,
            r"NVIDIA L40S": 362.05e12,
            r"NVIDIA GeForce RTX 4090": 165.2e12,
        },
    ),
    "ascend": Accelerator(
        device_type="npu",
        gres="npu",
        gres_resources={},
        visible_devices="ASCEND_RT_VISIBLE_DEVICES",
        slurm_sets_visible_devices=False,
        environment={
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",  # as for CUDA
            "HCCL_CONNECT_TIMEOUT": "1800",  # s; processes meet when process 0 has read the model, which its 120 s are too short for
        },
        # docs/ascend.md says where each of these is documented
        fused_optimizer=True,
        compile_backend=None,
        copies_ahead=False,  # the copy is queued with the address alone
        peak_flops={},  # no data sheet gives them by these names
    ),
}


def of_device(device_type: str) -> Accelerator | None:
    """Return the accelerator that torch calls ``device_type``; None for the CPU and for devices without an entry here."""
    return next((accelerator for accelerator in ACCELERATORS.values() if accelerator.device_type == device_type), None)


def resources(accelerator: str, model: str | None, devices: int, nodes: int) -> dict[str, str | int]:
    """Return what a job asks of Slurm, in the words of Snakemake's Slurm plugin: ``devices`` accelerators on each of ``nodes`` nodes.

    A job of one node is one task, which starts its own processes. A job of several is one task a node: it starts them itself by ``srun``
    (the plugin's word for that is mpi), once the plugin has given it all nodes.

    Args:
        accelerator: name in ``ACCELERATORS``, or ``NONE`` for CPU nodes.
        model: the cluster's name (gres type) of the model of accelerator to use; None: any.
    """
    asked: dict[str, str | int] = {"nodes": nodes}
    if accelerator != NONE:
        known = ACCELERATORS[accelerator]
        asked |= {"gres": ":".join(filter(None, (known.gres, model, str(devices)))), **known.gres_resources}
    if nodes > 1:
        asked |= {"tasks": nodes, "mpi": "srun"}
    return asked
