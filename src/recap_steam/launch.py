"""``python -m recap_steam.launch``: starts a script as one process per device, on one node or on several of a Slurm job.

Every node runs one torchrun. Around it this does what neither torchrun nor Slurm does: limits visible devices to those that the job has,
shares the CPUs among the processes, passes the signal to leave on without a limit in time (torchrun kills after 30 s, which is too short
to save a large state), and leaves the last word to the script's own error line (torchrun has a traceback of its own).
"""

import argparse
import contextlib
import fcntl
import logging
import os
import re
import signal
import sys
import tempfile
from types import FrameType

import psutil
import torch
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run

from recap_steam import slurm
from recap_steam.accelerators import ACCELERATORS, Accelerator, of_device
from recap_steam.errors import UserError, run_main

ON_CPU = "RECAP_STEAM_ON_CPU"
NO_DEVICE = ("", "-1", "NoDevFiles")  # in a variable of visible devices: a user's words, and what older Slurm says in a job without
LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # Slurm's end of time or preemption; Ctrl-C; a lost terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="nodes; several need a Slurm job of that many")
    parser.add_argument("--devices", type=int, required=True, help="processes per node, each with a device of its own")
    parser.add_argument("--threads", type=int, required=True, help="CPUs per node, shared by its processes")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="script and its arguments")
    args = parser.parse_args()
    if args.nodes > 1 and args.nodes != slurm.step_nodes():
        _once_per_node(args.nodes, args.threads)
    _set_environment(args.devices, args.threads)
    _check_devices(args.devices)
    _choose_devices(args.devices)
    sys.exit(_torchrun(args.nodes, ["--nproc-per-node", str(args.devices), *args.script]))


def _once_per_node(nodes: int, threads: int) -> None:
    """Become the srun that runs this command on every node."""
    if not slurm.allocated():
        raise UserError(f"launch: {nodes} nodes need a Slurm job; set nodes to 1, or run with a Slurm profile")
    command = [*slurm.task_per_node(nodes, threads), sys.executable, "-m", "recap_steam.launch", *sys.argv[1:]]
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise slurm.not_found(command[0]) from None


def _set_environment(devices: int, threads: int) -> None:
    """What the processes inherit. A user's own values stay, but for threads, which Snakemake sets as for one process."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(max(threads // devices, 1))
    if not any(accelerator.visible_devices in os.environ for accelerator in ACCELERATORS.values()):
        for accelerator in ACCELERATORS.values():
            if not accelerator.slurm_sets_visible_devices and (indices := slurm.granted(accelerator.gres)):
                os.environ[accelerator.visible_devices] = ",".join(map(str, indices))
    if accelerator := _accelerator():
        for variable, value in accelerator.environment.items():
            os.environ.setdefault(variable, value)


def _accelerator() -> Accelerator | None:
    """The accelerator that torch sees here; None for none, and for one that we know nothing about."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return None if device is None else of_device(device.type)


def _check_devices(devices: int) -> None:
    """Say it where the processes would not find their devices, or could take those of another job."""
    if not torch.accelerator.is_available():
        _check_given()
        return
    accelerator, visible = _accelerator(), torch.accelerator.device_count()
    if visible < devices:
        raise UserError(
            f"launch: {devices} devices are asked for and {visible} visible; set `devices` to at most {visible}, or free others"
        )
    if accelerator and slurm.allocated() and accelerator.visible_devices not in os.environ:
        raise UserError(
            f"launch: Slurm does not say which devices are this job's; make scontrol available here and give their files in gres.conf, "
            f"or set {accelerator.visible_devices}"
        )


def _check_given() -> None:
    """Refuse to compute for days on the CPUs of a node whose devices were given to this job."""
    for accelerator in ACCELERATORS.values():
        given = os.environ.get(accelerator.visible_devices, "")
        if given not in NO_DEVICE and ON_CPU not in os.environ:
            raise UserError(
                f"launch: {accelerator.visible_devices}={given}, but torch sees no device; install its driver and a torch made for it, "
                f"or set {ON_CPU}=1 to compute on the CPU"
            )


def _choose_devices(devices: int) -> None:
    """Show the processes free devices only, as jobs on one machine would all begin with the first. Where too few are free, they share."""
    if not (accelerator := _accelerator()):
        return
    given = os.environ.get(accelerator.visible_devices)
    free: list[str] = []
    for device in given.split(",") if given else map(str, range(torch.accelerator.device_count())):
        if len(free) < devices and _take(f"{accelerator.visible_devices}_{device}"):
            free.append(device)
    if len(free) == devices:
        os.environ[accelerator.visible_devices] = ",".join(free)


def _take(device: str) -> bool:
    """Take a device, until this process ends; return whether it was free of this user's other jobs."""
    name = re.sub(r"\W", "_", f"recap_steam_{os.getuid()}_{device}")
    handle = os.open(os.path.join(tempfile.gettempdir(), name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    return True


def _torchrun(nodes: int, arguments: list[str]) -> int:
    """Run torchrun on this node; return 0, or the status of the first process that failed."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    where = _rendezvous(nodes)
    leave = _Leave()
    for number in LEAVE:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, leave)
    try:
        run(parse_args(["--signals-to-handle", "SIGQUIT", *where, *arguments]))
    except ChildFailedError as error:
        code = min(error.failures.values(), key=_order).exitcode
        if code > 0:
            return code
        if not leave.told or slurm.node() == 0:  # what all nodes were told, one says
            print(_killed(-code), file=sys.stderr)
        return 128 - code
    except SignalException as error:
        return 128 + int(error.sigval)
    except DistError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"launch: the {nodes} nodes did not meet ({reason}); see that they reach each other, and run again") from None
    return 0


def _rendezvous(nodes: int) -> list[str]:
    """torchrun's arguments for where its processes meet."""
    if nodes == 1:
        return ["--standalone"]
    address, port = slurm.meeting_point()
    return ["--nnodes", str(nodes), "--node-rank", str(slurm.node()), "--master-addr", address, "--master-port", str(port)]


class _Leave:
    """Handler of the signals to leave: tells the processes, once, and lets torchrun wait for them."""

    def __init__(self):
        self.told = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.told:
            return
        processes = psutil.Process().children()
        if not processes:
            sys.exit(128 + number)
        self.told = True
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()


def _order(failure: ProcessFailure) -> tuple[bool, int, bool]:
    """What ended the job comes first: not SIGTERM, which torchrun and Slurm send to all; in the same second, not connections lost to it."""
    return failure.exitcode == -signal.SIGTERM, failure.timestamp, failure.exitcode > 0


def _killed(number: int) -> str:
    """The last word for a process that a signal ended; its exit code is minus the signal's number."""
    cause = " (out of memory, or killed by hand)" if number == signal.SIGKILL else ""
    return f"error: a process was killed by signal {number}{cause}; run again to resume from the last saved state"


if __name__ == "__main__":
    run_main(main)
