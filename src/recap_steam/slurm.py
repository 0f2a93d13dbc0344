"""What a Slurm allocation gave this process: its nodes, its devices, and where its processes meet.

Slurm says some of it in environment variables and the rest through ``scontrol``.
"""

import dataclasses
import os
import re
import subprocess

from recap_steam.errors import UserError

PORTS = range(20000, 32000)  # below those that Linux gives to outgoing connections


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where the processes of a job of several nodes meet: at the first node."""

    node: int  # this node, counted from 0
    address: str
    port: int


def allocated() -> bool:
    """Whether this process belongs to a Slurm job."""
    return "SLURM_JOB_ID" in os.environ


def step_nodes() -> int:
    """Nodes of the job step that this process is a task of; 1 outside of any."""
    return int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))


def task_per_node(nodes: int, threads: int) -> list[str]:
    """The command that starts what follows it once on each of ``nodes`` nodes of this job, with ``threads`` CPUs.

    srun inherits no CPUs from the job since Slurm 22.05. Where one task fails the others are ended.
    """
    return ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={threads}", "--kill-on-bad-exit=1"]


def meeting() -> Meeting:
    """Where the nodes of this step meet."""
    first = _hosts(os.environ["SLURM_STEP_NODELIST"])[0]
    address = re.search(r"\bNodeAddr=(\S+)", _scontrol("-o", "show", "node", first))
    return Meeting(
        node=int(os.environ["SLURM_NODEID"]),
        address=address[1] if address else first,
        port=PORTS[int(os.environ["SLURM_JOB_ID"]) % len(PORTS)],
    )


def granted(gres: str) -> list[int] | None:
    """Indices of the devices of kind ``gres`` (``npu``) that this job has on this node; None where Slurm does not say."""
    node = os.environ["SLURMD_NODENAME"]
    for line in _scontrol("show", "job", "-d", os.environ["SLURM_JOB_ID"]).splitlines():
        nodes = re.search(r"\bNodes=(\S+) CPU_IDs=", line)
        if nodes and node in _hosts(nodes[1]):
            return device_indices(line, gres)
    return None


def device_indices(line: str, gres: str) -> list[int] | None:
    """Indices in a node's line of ``scontrol show job -d``: ``GRES=npu:910b:3(IDX:0-1,4)``; None where it has none of that kind.

    A node whose ``gres.conf`` gives a count but no files has no indices: ``(CNT:3)``.
    """
    found = re.findall(rf"\b{re.escape(gres)}(?::[^:(,=]+)?:\d+\(IDX:([\d,-]+)\)", line)
    bounds = [part.partition("-") for listed in found for part in listed.split(",")]
    return sorted(index for first, _, last in bounds for index in range(int(first), int(last or first) + 1)) or None


def _hosts(listed: str) -> list[str]:
    """Names in a host list such as ``n[0-1,7]``."""
    return _scontrol("show", "hostnames", listed).split()


def _scontrol(*words: str) -> str:
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise UserError("scontrol: not found in this Slurm job; make Slurm's commands available on the nodes (in containers too)") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"scontrol {' '.join(words)}: {error.stderr.strip() or 'failed'}; ask the cluster's administrators") from None
