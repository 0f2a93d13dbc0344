"""What a Slurm allocation gave this process: its nodes, its devices, and where its processes meet.

Slurm says some of it in environment variables and the rest through ``scontrol``.
"""

import os
import re
import shutil
import subprocess

from recap_steam.errors import UserError

PORTS = range(20000, 32000)  # below those that Linux gives to outgoing connections


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


def node() -> int:
    """Number of this node in the step, from 0; 0 outside of any."""
    return int(os.environ.get("SLURM_NODEID", "0"))


def meeting_point() -> tuple[str, int]:
    """Address and port at which the nodes of this step meet: on its first node."""
    first = _hosts(os.environ["SLURM_STEP_NODELIST"])[0]
    address = re.search(r"\bNodeAddr=(\S+)", _scontrol("-o", "show", "node", first))
    return address[1] if address else first, PORTS[int(os.environ["SLURM_JOB_ID"]) % len(PORTS)]


def granted(gres: str) -> list[int] | None:
    """Indices of this job's devices of kind ``gres`` (Slurm's word) on this node; None where it has none, or Slurm cannot say."""
    name = os.environ.get("SLURMD_NODENAME")  # not set where salloc leaves its shell, which may be no node of the job
    if not allocated() or name is None or shutil.which("scontrol") is None:
        return None
    for line in _scontrol("show", "job", "-d", os.environ["SLURM_JOB_ID"]).splitlines():
        nodes = re.search(r"\bNodes=(\S+) CPU_IDs=", line)
        if nodes and name in _hosts(nodes[1]):
            return device_indices(line, gres)
    return None


def device_indices(line: str, gres: str) -> list[int] | None:
    """Indices in a node's line of ``scontrol show job -d``: ``GRES=name:model:3(IDX:0-1,4)``; None where it has none of that kind.

    A node whose ``gres.conf`` gives a count but no files has no indices: ``(CNT:3)``.
    """
    found = re.findall(rf"\b{re.escape(gres)}(?::[^:(,=]+)?:\d+\(IDX:([\d,-]+)\)", line)
    bounds = [part.partition("-") for listed in found for part in listed.split(",")]
    return sorted(index for first, _, last in bounds for index in range(int(first), int(last or first) + 1)) or None


def not_found(program: str) -> UserError:
    """What to raise where one of Slurm's commands is missing."""
    return UserError(f"{program}: not found in this Slurm job; make Slurm's commands available on the nodes (in containers too)")


def _hosts(listed: str) -> list[str]:
    """Names in a host list such as ``n[0-1,7]``."""
    return _scontrol("show", "hostnames", listed).split()


def _scontrol(*words: str) -> str:
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise not_found("scontrol") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"scontrol {' '.join(words)}: {error.stderr.strip() or 'failed'}; ask the cluster's administrators") from None
