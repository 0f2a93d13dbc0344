"""``python -m recap_steam.launch``: starts a script as one process per device, on one node or on several of a Slurm job.

Every node runs one torchrun. Around it this does what neither torchrun nor Slurm does: limits visible devices to those that the job has,
shares the CPUs among the processes, passes the signal to leave on without a limit in time (torchrun kills after 30 s, which is too short
to save a large state), and leaves the last word to the script's own error line (torchrun has a traceback of its own).
"""

import argparse
import logging
import os
import signal
import sys
from types import FrameType

import psutil
import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run

from recap_steam import slurm
from recap_steam.accelerators import ACCELERATORS, of_device
from recap_steam.errors import UserError, run_main

LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # Slurm's end of time or preemption; Ctrl-C; a lost terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="nodes; several need a Slurm job of that many")
    parser.add_argument("--devices", type=int, required=True, help="processes per node, each with a device of its own")
    parser.add_argument("--threads", type=int, required=True, help="CPUs per node, shared by its processes")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="script and its arguments")
    args = parser.parse_args()
    if args.nodes != slurm.step_nodes():
        _once_per_node(args.nodes, args.threads)
    _set_environment(args.devices, args.threads)
    _require_devices(args.devices)
    sys.exit(_torchrun(["--nproc-per-node", str(args.devices), *_rendezvous(args.nodes), *args.script]))


def _once_per_node(nodes: int, threads: int) -> None:
    """Become the srun that runs this command on every node."""
    if not slurm.allocated():
        raise UserError(f"launch: {nodes} nodes need a Slurm job; set nodes to 1, or run with a Slurm profile")
    command = [*slurm.task_per_node(nodes, threads), sys.executable, "-m", "recap_steam.launch", *sys.argv[1:]]
    os.execvp(command[0], command)


def _set_environment(devices: int, threads: int) -> None:
    """What the processes inherit; a user's own values stay, but for threads, which Snakemake sets as if there were one process."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(max(threads // devices, 1))
    for accelerator in ACCELERATORS.values():
        if slurm.allocated() and not accelerator.slurm_sets_visible_devices and accelerator.visible_devices not in os.environ:
            if indices := slurm.granted(accelerator.gres):
                os.environ[accelerator.visible_devices] = ",".join(map(str, indices))


def _require_devices(devices: int) -> None:
    """Say in one line when the processes will not find their devices."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None and (visible := torch.accelerator.device_count()) < devices:
        raise UserError(f"launch: {devices} devices are asked for and {visible} are visible; lower `devices` or free the others")


def _rendezvous(nodes: int) -> list[str]:
    """torchrun's arguments for where its processes meet."""
    if nodes == 1:
        return ["--standalone"]
    place = slurm.meeting()
    return ["--nnodes", str(nodes), "--node-rank", str(place.node), "--master-addr", place.address, "--master-port", str(place.port)]


def _torchrun(arguments: list[str]) -> int:
    """Run torchrun; return 0, or the status of the first process that failed."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    leave = _Leave()
    for number in LEAVE:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, leave)
    try:
        run(parse_args(["--signals-to-handle", "SIGQUIT", *arguments]))
    except ChildFailedError as error:
        code = min(error.failures.values(), key=_order).exitcode
        if code < 0:
            print(_killed(-code), file=sys.stderr)  # it could not speak for itself
        return code if code > 0 else 128 - code
    return 0


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
            process.terminate()


def _order(failure: ProcessFailure) -> tuple[int, bool, bool]:
    """Time of the end in s; in the same second, torchrun's own SIGTERM to the others comes last, and their lost connection after a kill."""
    return failure.timestamp, failure.exitcode == -signal.SIGTERM, failure.exitcode > 0


def _killed(number: int) -> str:
    """The last word for a process that a signal ended; its exit code is minus the signal's number."""
    cause = " (out of memory, or killed by hand)" if number == signal.SIGKILL else ""
    return f"error: a process was killed by signal {number}{cause}; run again to resume from the last saved state"


if __name__ == "__main__":
    run_main(main)
