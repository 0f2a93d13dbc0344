"""The launcher where torch sees two devices: it counts them, sets what their libraries need, and takes none of another job."""

import subprocess

import pytest

from recap_steam.accelerators import ACCELERATORS
from tests.e2e.launching import ROOT, launcher

VARIABLE = ACCELERATORS["ascend"].visible_devices
PRINTS = "import os, sys; print(*(os.environ.get(name) for name in sys.argv[1:])) if os.environ['RANK'] == '0' else None"


def run(environment: dict[str, str], *words: object) -> subprocess.CompletedProcess:
    plain = {name: value for name, value in environment.items() if not name.startswith("SLURM") or name == "SLURM_JOB_ID"}
    return subprocess.run([str(word) for word in words], env=plain, capture_output=True, text=True, timeout=120)


def test_fewer_devices_than_asked_for_are_one_line(npu):
    done = run(npu, *launcher(3), "script.py")
    message = "error: launch: 3 devices are asked for and 2 visible; set `devices` to at most 2, or free others\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_processes_get_the_accelerators_defaults_and_a_users_own_values_stay(npu, tmp_path):
    (tmp_path / "prints.py").write_text(PRINTS)
    done = run(npu | {"HCCL_CONNECT_TIMEOUT": "600"}, *launcher(2), tmp_path / "prints.py", *ACCELERATORS["ascend"].environment)
    assert done.stdout == "expandable_segments:True 600\n", done.stderr


def test_in_a_slurm_job_that_does_not_say_which_devices_are_its_own_none_is_used(npu, tmp_path):
    done = run(npu | {"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}, *launcher(2), "script.py")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: launch: Slurm does not say which devices are this job's; make scontrol available here")
    assert done.stderr.endswith("or set ASCEND_RT_VISIBLE_DEVICES\n")


WAITS = f"""
import os, pathlib, sys, time
print(os.environ.get("{VARIABLE}"), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


def test_jobs_at_the_same_time_have_devices_of_their_own_while_there_are_any(npu, tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    plain = {name: value for name, value in npu.items() if name != VARIABLE} | {"TMPDIR": str(tmp_path)}
    words = [str(word) for word in (*launcher(1), tmp_path / "waits.py", tmp_path / "all")]
    jobs = [subprocess.Popen(words, env=plain, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = [job.stdout.readline() for job in jobs]
    (tmp_path / "prints.py").write_text(PRINTS)
    shared = run(plain, *launcher(1), tmp_path / "prints.py", VARIABLE).stdout
    (tmp_path / "all").touch()
    assert [job.wait(60) for job in jobs] == [0, 0]
    assert (sorted(seen), shared) == (["0\n", "1\n"], "None\n")
    assert run(plain, *launcher(2), tmp_path / "prints.py", VARIABLE).stdout == "0,1\n"  # they are free again


@pytest.mark.parametrize("name", ACCELERATORS)
def test_the_docs_explain_every_default(name):
    explained = (ROOT / "docs/training.md").read_text()
    for variable, value in ACCELERATORS[name].environment.items():
        assert f"| `{variable}` |" in explained and value in explained
