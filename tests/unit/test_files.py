"""Outputs appear whole or not at all, also on a full disk, after kill -9 and with two writers."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from tests.disks import small_disk


def test_output_appears_whole(tmp_path):
    path = tmp_path / "new/out.txt"
    with atomic_output(path) as temporary:
        temporary.write_text("half")
        assert not path.exists() and temporary.parent == path.parent
        temporary.write_text("whole")
    assert path.read_text() == "whole" and os.listdir(path.parent) == ["out.txt"]


def test_failure_leaves_the_old_output_and_nothing_else(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_output(path) as temporary:
        temporary.write_text("half")
        _ = 1 / 0
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.txt"]


WRITER = """
import sys, time
from recap_steam.errors import run_main
from recap_steam.files import atomic_output
def main():
    with atomic_output(sys.argv[1]) as temporary:
        temporary.write_text("theirs")
        print("writing", flush=True)
        time.sleep(float(sys.argv[2]))
run_main(main)
"""


def _writer(path: Path, seconds: float) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process


def test_two_runs_at_once(tmp_path):
    path = tmp_path / "out.txt"
    first = _writer(path, 60)
    assert first.stdout.readline() == "writing\n"
    second = _writer(path, 0)
    _, message = second.communicate(timeout=30)
    assert second.returncode == 1
    assert message == f"error: {path}: another process is writing this file; wait for it to end and run again\n"
    first.kill()  # SIGKILL: its temporary file stays, and is reused by the next writer
    first.communicate()
    assert not path.exists()
    with atomic_output(path) as temporary:
        temporary.write_text("mine")
    assert path.read_text() == "mine" and os.listdir(tmp_path) == ["out.txt"]


def test_many_writers_never_mix(tmp_path):
    path = tmp_path / "out.txt"
    writers = [_writer(path, 0.01) for _ in range(4)]
    while any(writer.poll() is None for writer in writers):
        assert not path.exists() or path.read_text() == "theirs"
        time.sleep(0.01)
    for writer in writers:
        writer.communicate()
    assert path.read_text() == "theirs" and os.listdir(tmp_path) == ["out.txt"]
    assert any(writer.returncode == 0 for writer in writers)


@pytest.fixture
def full_disk(tmp_path):
    """A real file system of 64 KiB."""
    with small_disk(tmp_path / "disk", "64k") as folder:
        yield folder


def test_full_disk(full_disk):
    path = full_disk / "out.bin"
    with (
        pytest.raises(UserError, match=r"out\.bin: no space left on the device; free some and run again") as caught,
        atomic_output(path) as temporary,
    ):
        temporary.write_bytes(bytes(1 << 20))
    assert "\n" not in str(caught.value) and os.listdir(full_disk) == []


def test_a_folder_that_may_not_be_written(tmp_path):
    """The kernel's own folder refuses even root."""
    with pytest.raises(UserError, match=r"^/sys/out\.txt: permission denied; ") as caught, atomic_output("/sys/out.txt"):
        pytest.fail("the block must not run")
    assert "\n" not in str(caught.value)
    code = "from recap_steam.errors import run_main; run_main(lambda: open('/sys/out.txt', 'w'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.startswith("error: /sys/out.txt: permission denied; ") and ended.stderr.count("\n") == 1


def test_ctrl_c_ends_a_program_without_a_word():
    code = "import signal; from recap_steam.errors import run_main; run_main(lambda: signal.raise_signal(signal.SIGINT))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "")


LIMITED = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from recap_steam.errors import run_main
from recap_steam.files import atomic_output
def main():
    with atomic_output(sys.argv[1]) as temporary:
        if sys.argv[2] == "parquet":
            pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=1 << 16)}), temporary)
        else:
            schema = pa.schema({"a": pa.float64()})
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(pa.record_batch([np.random.default_rng(0).normal(size=1 << 16)], schema=schema))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG, as on a full device
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
run_main(main)
"""


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_full_device_while_arrow_writes(tmp_path, kind):
    """The device is simulated by the kernel's own limit on file size."""
    path = tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", LIMITED, str(path), kind], capture_output=True, text=True)
    assert ended.stderr == f"error: {path}: no space left on the device; free some and run again (nothing was left half-written)\n"
    assert ended.returncode == 1 and os.listdir(tmp_path) == []
