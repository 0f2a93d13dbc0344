"""The launcher without processes: what Slurm says, read; what the processes inherit; what is refused. Real jobs: tests/e2e, tests/slurm."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from recap_steam import launch, slurm
from recap_steam.accelerators import ACCELERATORS
from tests.e2e.launching import environment, launcher

JOB = """\
JobId=7 JobName=train
   NumNodes=3 NumCPUs=24 NumTasks=3 CPUs/Task=8 ReqB:S:C:T=0:0:*:*
   JOB_GRES=npu:ascend910b:8,gpu:h200:1
     Nodes=n0 CPU_IDs=0-7 Mem=3000 GRES=npu:ascend910b:3(IDX:0-1,4)
     Nodes=n[1-2] CPU_IDs=0-7 Mem=3000 GRES=gpu:h200:1(IDX:7),npu:ascend910b:2(IDX:2-3),npu:other:1(IDX:0)
     Nodes=n3 CPU_IDs=0-7 Mem=3000 GRES=npu:ascend910b:2(CNT:2)
     Nodes=n4 CPU_IDs=0-7 Mem=3000 GRES=
     Nodes=n5 CPU_IDs=0-7 Mem=3000 GRES=npu:1(IDX:5)
   MinCPUsNode=8 MinMemoryNode=3000M MinTmpDiskNode=0
"""


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A node n0 of job 7, on a machine whose scontrol knows that job and how host lists are expanded."""
    (tmp_path / "job").write_text(JOB)
    program = tmp_path / "scontrol"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f'"show job -d 7") cat {tmp_path}/job;;\n'
        '"show hostnames n[1-2]") printf "n1\\nn2\\n";;\n'
        '"show hostnames n"*) echo "$3";;\n'
        '"-o show node n1") echo "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=one Version=22.05";;\n'
        '*) echo "slurm_load: no such thing" >&2; exit 1;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    theirs = {name for name in os.environ if name.startswith("SLURM")} | {known.visible_devices for known in ACCELERATORS.values()}
    for variable in theirs | {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}:
        monkeypatch.setenv(variable, "")  # so that what a test puts there is taken back
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n0")
    return monkeypatch


@pytest.mark.parametrize(
    ("node", "npu", "gpu"),
    [("n0", [0, 1, 4], None), ("n2", [0, 2, 3], [7]), ("n3", None, None), ("n4", None, None), ("n5", [5], None), ("n9", None, None)],
)
def test_devices_of_this_node(scontrol, node, npu, gpu):
    scontrol.setenv("SLURMD_NODENAME", node)
    assert slurm.granted("npu") == npu
    assert slurm.granted("gpu") == gpu


def test_outside_of_its_nodes_a_job_has_no_devices(scontrol):
    scontrol.delenv("SLURMD_NODENAME")
    assert slurm.allocated() and slurm.granted("npu") is None


def test_outside_of_slurm_and_without_its_commands_nothing_is_known(scontrol, tmp_path):
    (tmp_path / "scontrol").unlink()
    scontrol.setenv("PATH", str(tmp_path))
    assert slurm.granted("npu") is None
    scontrol.delenv("SLURM_JOB_ID")
    assert not slurm.allocated() and slurm.granted("npu") is None and slurm.step_nodes() == 1 and slurm.node() == 0


def test_nodes_meet_at_the_address_of_the_first(scontrol):
    scontrol.setenv("SLURM_STEP_NODELIST", "n[1-2]")
    scontrol.setenv("SLURM_NODEID", "1")
    assert slurm.meeting_point() == ("10.0.0.1", 20007)
    where = launch._rendezvous(2)
    assert where == ["--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "20007"]
    assert launch._rendezvous(1) == ["--standalone"]


def test_jobs_with_consecutive_numbers_meet_at_different_ports(scontrol):
    scontrol.setenv("SLURM_STEP_NODELIST", "n[1-2]")
    ports = set()
    for job in range(11990, 12010):
        scontrol.setenv("SLURM_JOB_ID", str(job))
        ports.add(slurm.meeting_point()[1])
    assert len(ports) == 20 and min(ports) >= 20000 and max(ports) < 32768


def test_what_slurm_refuses_is_one_line(scontrol):
    scontrol.setenv("SLURM_JOB_ID", "8")
    with pytest.raises(slurm.UserError, match=r"^scontrol show job -d 8: slurm_load: no such thing; ask"):
        slurm.granted("npu")


def test_processes_see_the_jobs_devices_and_share_its_cpus(scontrol):
    scontrol.setenv("OMP_NUM_THREADS", "16")  # as Snakemake sets it
    scontrol.setenv("MKL_NUM_THREADS", "16")
    launch._set_environment(devices=3, threads=16)
    assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "0,1,4"
    assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "5"
    launch._set_environment(devices=8, threads=2)
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_a_users_own_choice_of_devices_stays(scontrol):
    scontrol.setenv("ASCEND_RT_VISIBLE_DEVICES", "6")
    launch._set_environment(devices=1, threads=1)
    assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "6"


def failed(status: int, second: int) -> ProcessFailure:
    failure = ProcessFailure(local_rank=0, pid=0, exitcode=status, error_file="")
    failure.timestamp = second
    return failure


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ([failed(1, 5), failed(3, 6)], 1),
        ([failed(-signal.SIGTERM, 5), failed(2, 6)], 2),  # told to leave, the one died and the other had something to say
        ([failed(1, 5), failed(-signal.SIGKILL, 5)], -signal.SIGKILL),  # the one lost the other
        ([failed(-signal.SIGTERM, 5), failed(-signal.SIGTERM, 6)], -signal.SIGTERM),
    ],
)
def test_the_status_is_that_of_what_ended_the_job(ends, first):
    assert min(ends, key=launch._order).exitcode == first


def run(*words: object, **variables: str) -> subprocess.CompletedProcess:
    plain = {name: value for name, value in environment().items() if not name.startswith("SLURM")}
    return subprocess.run([str(word) for word in words], env=plain | variables, capture_output=True, text=True)


def test_several_nodes_need_a_slurm_job():
    done = run(*launcher(1), "--nodes", 2, "script.py")
    assert (done.returncode, done.stderr) == (1, "error: launch: 2 nodes need a Slurm job; set nodes to 1, or run with a Slurm profile\n")


def test_several_nodes_are_started_by_srun(tmp_path):
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    words = [*launcher(4), "--nodes", 2, "script.py", "--tag", "a b"]
    done = run(*words, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", SLURM_JOB_ID="7")
    srun = "--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4 --kill-on-bad-exit=1"
    assert (
        done.stdout.split("\n")[0] == f"{srun} {sys.executable} -m recap_steam.launch --devices 4 --threads 4 --nodes 2 script.py --tag a b"
    )


def test_several_nodes_without_srun_are_an_error(tmp_path):
    done = run(*launcher(1), "--nodes", 2, "script.py", PATH=str(tmp_path), SLURM_JOB_ID="7")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: srun: not found in this Slurm job;")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="torch sees a device here")
def test_given_devices_that_torch_does_not_see_are_an_error_unless_the_cpu_is_asked_for(tmp_path):
    (tmp_path / "script.py").write_text("import sys; sys.exit(5)")
    words = [*launcher(2), tmp_path / "script.py"]
    refused = run(*words, CUDA_VISIBLE_DEVICES="0,1")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: launch: CUDA_VISIBLE_DEVICES=0,1, but torch sees no device;")
    assert refused.stderr.count("\n") == 1
    assert run(*words, CUDA_VISIBLE_DEVICES="0,1", RECAP_STEAM_ON_CPU="1").returncode == 5
    assert run(*words, CUDA_VISIBLE_DEVICES="-1").returncode == 5
