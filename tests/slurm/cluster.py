"""A real Slurm on this machine, its nodes with eight devices of each accelerator on paper: started for tests, stopped without a trace.

    with cluster.running():                     # munged, slurmctld, a slurmd for each node; accounting=True: slurmdbd and mariadbd too
        ...                                     # sbatch, squeue, snakemake --profile slurm

It needs root and Debian's packages slurm-wlm and munge (slurmdbd and mariadb-server for accounting). ``Unavailable`` says what is missing.
A machine whose own Slurm is configured is never touched.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ETC = Path("/etc/slurm")  # no other place: Snakemake's job steps drop every SLURM_* variable, and SLURM_CONF with them
STATE = Path("/var/lib/recap-steam-slurm")
NAME = "recapsteamtests"  # of the cluster; marks our files and, in the environment, the processes of our jobs
NODES = ("n0", "n1", "spare0", "spare1")
PARTITIONS = dict.fromkeys(("cpu", "gpu", "npu"), "n[0-1]") | {"spare": "spare[0-1]"}  # nodes that a test may lose without harm to others
ACCOUNT = "default"
FILES = ("slurm.conf", "gres.conf", "slurmdbd.conf")
FOREIGN = (Path("/etc/slurm-llnl/slurm.conf"), Path("/run/slurm/conf"))  # older Debian; a node that gets its configuration from elsewhere
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db", "mysql")
PORT = 17002


class Unavailable(Exception):
    """Slurm cannot run here; says why."""


@contextlib.contextmanager
def running(accounting: bool = False) -> Iterator[None]:
    """Slurm is up, every node idle.

    Raises:
        Unavailable: Slurm is not installed, cannot be started here, or belongs to someone else.
    """
    _check(PROGRAMS + (ACCOUNTING_PROGRAMS if accounting else ()))
    with _alone():
        stop()
        try:
            _start(accounting)
            yield
        finally:
            stop()


def start_node(name: str) -> None:
    """Start the daemon of a node."""
    _run("slurmd", "-N", name)


def kill_node(name: str) -> None:
    """End the daemon of a node as a crash would: the processes of its jobs go on."""
    os.kill(int((STATE / name / "pid").read_text()), signal.SIGKILL)


def stop() -> None:
    """End every process of this Slurm, jobs too, and remove every file."""
    if not _ours(ETC / "slurm.conf"):
        return
    while pids := list(_processes()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(STATE, ignore_errors=True)
    for name in reversed(FILES):
        if _ours(ETC / name):
            (ETC / name).unlink()


def _check(programs: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        raise Unavailable("needs root, which Slurm's daemons run as")
    if missing := [name for name in programs if not shutil.which(name)]:
        raise Unavailable(f"not installed: {', '.join(missing)} (apt-get install slurm-wlm munge, for accounting slurmdbd mariadb-server)")
    foreign = [path for path in (*(ETC / name for name in FILES), *FOREIGN) if path.exists() and not _ours(path)]
    if foreign or "SLURM_CONF" in os.environ:
        raise Unavailable(f"this machine has a Slurm of its own ({foreign[0] if foreign else os.environ['SLURM_CONF']})")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the one place for configurations; wait while another test run has its Slurm there."""
    ETC.mkdir(exist_ok=True)
    folder = os.open(ETC, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _ours(path: Path) -> bool:
    return path.is_file() and path.read_text().startswith(f"# {NAME}\n")


def _processes() -> Iterator[int]:
    """Daemons hold files of ``STATE`` open; processes of jobs know the cluster's name."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.name == str(os.getpid()):
                continue
            job = f"SLURM_CLUSTER_NAME={NAME}".encode() in (process / "environ").read_bytes().split(b"\0")
            if job or any(os.readlink(link).startswith(f"{STATE}/") for link in (process / "fd").iterdir()):
                yield int(process.name)


def _start(accounting: bool) -> None:
    _write_configuration(accounting)
    devices = STATE / "dev"
    for name in ("gpu", "npu"):
        for index in range(8):
            _run("mknod", devices / f"{name}{index}", "c", 1, 3)  # Slurm takes indices from the names of character devices
    (STATE / "munge/key").touch(0o600)
    (STATE / "munge/key").write_bytes(os.urandom(128))
    keys = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    _run("munged", "--force", *(f"--{option}={STATE}/munge/{file}" for option, file in keys.items()))
    if accounting:
        _start_accounting()
    _run("slurmctld")
    for name in NODES:
        start_node(name)
    _wait(lambda: set(_run("sinfo", "-h", "-t", "idle", "-N", "-o", "%N").split()) == set(NODES), "the nodes did not come up")


def _start_accounting() -> None:
    folder = STATE / "mysql"
    folder.mkdir()
    shutil.chown(folder, "mysql")
    server = ("--no-defaults", "--user=mysql", f"--datadir={folder}/data", "--innodb-log-file-size=8M")
    _run("mariadb-install-db", *server, "--auth-root-authentication-method=socket", "--skip-test-db", "--skip-name-resolve")
    client = ("mysql", "--no-defaults", f"--socket={folder}/socket", "-e")
    options = (f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--skip-networking", "--innodb-buffer-pool-size=64M")
    with open(folder / "log", "wb") as log:
        subprocess.Popen(["mariadbd", *server, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    _wait(lambda: _succeeds(*client, "select 1"), "the database did not come up")
    _run(*client, "create database slurm_acct_db; create user slurm@localhost; grant all on slurm_acct_db.* to slurm@localhost")
    _run("slurmdbd", MYSQL_UNIX_PORT=f"{folder}/socket")
    _wait(lambda: _succeeds("sacctmgr", "-n", "list", "cluster"), "slurmdbd did not come up")
    for words in (("cluster", NAME), ("account", ACCOUNT), ("user", "root", f"account={ACCOUNT}")):
        _run("sacctmgr", "-i", "add", *words)


def _write_configuration(accounting: bool) -> None:
    texts = {"slurm.conf": _slurm_conf(accounting), "gres.conf": GRES_CONF} | ({"slurmdbd.conf": SLURMDBD_CONF} if accounting else {})
    for name, text in texts.items():
        (ETC / name).touch(0o600 if name == "slurmdbd.conf" else 0o644)
        (ETC / name).write_text(f"# {NAME}\n{text}")
    for name in ("ctld", "log", "munge", "dev", *NODES):
        (STATE / name).mkdir(parents=True, exist_ok=True)


def _slurm_conf(accounting: bool) -> str:
    host = socket.gethostname()
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={PORT + 10 + index} CPUs=64 RealMemory=512000"
        " Gres=gpu:h200:8,npu:ascend910b:8\n"
        for index, name in enumerate(NODES)
    )
    partitions = "".join(f"PartitionName={name} Nodes={listed} MaxTime=7-0 State=UP\n" for name, listed in PARTITIONS.items())
    return SLURM_CONF.format(host=host) + (ACCOUNTING_CONF if accounting else "") + nodes + partitions


SLURM_CONF = f"""\
ClusterName={NAME}
SlurmctldHost={{host}}(127.0.0.1)
SlurmctldPort={PORT}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={STATE}/munge/socket
StateSaveLocation={STATE}/ctld
SlurmctldPidFile={STATE}/ctld/pid
SlurmctldLogFile={STATE}/log/slurmctld
SlurmdSpoolDir={STATE}/%n
SlurmdPidFile={STATE}/%n/pid
SlurmdLogFile={STATE}/log/%n
# What needs no cgroups, which a container may lack: memory is not limited.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu,npu
MpiDefault=none
# More processors and memory on paper than the machine has, so that jobs may ask for what real ones ask.
SlurmdParameters=config_overrides
# A daemon that does not answer is given up soon, and its node is taken back as soon as it does.
SlurmdTimeout=10
ReturnToService=2
MinJobAge=600
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2,sched_min_interval=0
"""
ACCOUNTING_CONF = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={PORT + 20}
AccountingStoragePass={STATE}/munge/socket
AccountingStorageTRES=gres/gpu,gres/npu
AccountingStorageEnforce=associations
"""
GRES_CONF = f"""\
AutoDetect=off
Name=gpu Type=h200 File={STATE}/dev/gpu[0-7]
Name=npu Type=ascend910b File={STATE}/dev/npu[0-7]
"""
SLURMDBD_CONF = f"""\
AuthType=auth/munge
AuthInfo=socket={STATE}/munge/socket
DbdHost=localhost
DbdPort={PORT + 20}
SlurmUser=root
PidFile={STATE}/mysql/slurmdbd.pid
LogFile={STATE}/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""


def _run(*words: str | int | Path, **environment: str) -> str:
    """Run a command to its end and return what it printed."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
        )
    except subprocess.SubprocessError as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise Unavailable(f"{command[0]}: {detail.strip().splitlines()[-1]}") from error
    return done.stdout


def _succeeds(*words: str) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):  # an early question to a daemon may never be answered
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=5).returncode == 0
    return False


def _wait(ready: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            raise Unavailable(f"{problem} within a minute; {_last_words()}")
        time.sleep(0.1)


def _last_words() -> str:
    lines = [f"{log.name}: {text[-1]}" for log in sorted((STATE / "log").iterdir()) if (text := log.read_text().splitlines())]
    return "; ".join(lines)
