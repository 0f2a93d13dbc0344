import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from recap_steam import devices
from recap_steam.config import whole_experiment
from recap_steam.critics import group_pass, value_pass
from recap_steam.critics.folder import load_critic
from recap_steam.critics.group_pass import critic_frames, episode_groups
from recap_steam.critics.value_pass import evaluate_rows, values_stage
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.inputs import critic_digest
from recap_steam.sidecar import read_sidecar
from tests.e2e.launching import environment, launcher
from tests.unit.critics.experiment import CAMERA, Files

NAME = "rollouts"
SCRIPT = Path(__file__).parents[3] / "workflow/scripts/compute_values.py"


def run(files: Files, critic_dir: Path, output: Path, state: Path) -> Path:
    values_stage(files.experiment, NAME, "value", critic_dir, files.episodes / f"{NAME}.parquet", files.frame_cache(NAME), state, output)
    return output


def episodes_of(files: Files):
    return load_episodes(files.episodes / f"{NAME}.parquet", open_dataset(NAME, files.experiment.datasets[NAME].path))


@pytest.fixture
def small_groups(monkeypatch):
    """One group per episode of the tests."""
    monkeypatch.setattr(group_pass, "GROUP_FRAMES", 4)


def test_groups_are_whole_episodes(monkeypatch):
    monkeypatch.setattr(group_pass, "GROUP_FRAMES", 10)
    groups = episode_groups(np.array([0, 4, 9, 12, 30, 31]))
    assert [(group.start, group.stop) for group in groups] == [(0, 12), (12, 30), (30, 31)]


def test_every_frame_gets_its_own_value(files, critic_dir, tmp_path, small_groups):
    episodes = episodes_of(files)
    output = run(files, critic_dir, tmp_path / "values.parquet", tmp_path / "state")
    sidecar = read_sidecar(output, "values", episodes, tag="value", inputs={"critic": critic_digest(critic_dir)})
    critic = load_critic(critic_dir)
    frames = critic_frames(critic, episodes, files.frame_cache(NAME), {CAMERA: CAMERA})
    for row in (0, 11, 12, 30):
        alone = evaluate_rows(critic, frames, range(row, row + 1))
        for column, values in sidecar.columns.items():
            assert values[row] == pytest.approx(alone[column][0], abs=1e-5)
    assert sidecar.columns["value"].std() > 0
    assert sidecar.lineage.statistics["min"] == pytest.approx(sidecar.columns["value"].min())
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lock"]


def test_finished_groups_are_not_computed_again(files, critic_dir, tmp_path, small_groups, monkeypatch):
    whole = run(files, critic_dir, tmp_path / "whole.parquet", tmp_path / "state0").read_bytes()
    computed, original = [], evaluate_rows

    def counted(critic, frames, rows):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(rows)
        return original(critic, frames, rows)

    monkeypatch.setattr(value_pass, "evaluate_rows", counted)
    with pytest.raises(KeyboardInterrupt):
        run(files, critic_dir, tmp_path / "values.parquet", tmp_path / "state")
    assert not (tmp_path / "values.parquet").exists()
    monkeypatch.setattr(value_pass, "evaluate_rows", lambda *args: computed.append(args[2]) or original(*args))
    assert run(files, critic_dir, tmp_path / "values.parquet", tmp_path / "state").read_bytes() == whole
    assert [(rows.start, rows.stop) for rows in computed] == [(0, 12), (12, 19), (19, 31)]


def under_the_launcher(files: Files, critic_dir: Path, folder: Path, setup: str = "") -> list[str]:
    """Command of the script in two processes, after ``setup``, with groups as small as in ``small_groups``."""
    script = folder / "two.py"
    script.write_text(
        f"import runpy\nfrom recap_steam.critics import group_pass, value_pass\ngroup_pass.GROUP_FRAMES = 4\n{setup}\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    arguments = {
        "--config": json.dumps(whole_experiment(files.raw)),
        "--dataset": NAME,
        "--tag": "value",
        "--critic-dir": critic_dir,
        "--episodes": files.episodes / f"{NAME}.parquet",
        "--frames": files.frame_cache(NAME),
        "--state-dir": folder / "state",
        "--output": folder / "values.parquet",
    }
    return [str(word) for word in (*launcher(2), script, *(word for pair in arguments.items() for word in pair))]


def test_two_processes_write_the_same_bytes(files, critic_dir, tmp_path, small_groups):
    done = subprocess.run(under_the_launcher(files, critic_dir, tmp_path), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one = run(files, critic_dir, tmp_path / "one.parquet", tmp_path / "state1")
    assert (tmp_path / "values.parquet").read_bytes() == one.read_bytes()


def test_a_signal_to_leave_keeps_the_finished_groups(files, critic_dir, tmp_path, small_groups, monkeypatch):
    slow = (
        "import time\nfast = value_pass.evaluate_rows\nvalue_pass.evaluate_rows = lambda *a: time.sleep(60 * (a[2].start > 11)) or fast(*a)"
    )
    with subprocess.Popen(
        under_the_launcher(files, critic_dir, tmp_path, slow), env=environment(), stderr=subprocess.PIPE, text=True
    ) as job:
        while not list(tmp_path.glob("state/*/group_000000.npz")):
            assert job.poll() is None
            time.sleep(0.02)
        job.terminate()
        errors = job.stderr.read()
    assert job.returncode == 143
    assert errors.endswith("error: a process was killed by signal 15; run again to resume from the last saved state\n")
    assert errors.count("error:") == 1
    computed = []
    monkeypatch.setattr(value_pass, "evaluate_rows", lambda *args: computed.append(args[2].start) or evaluate_rows(*args))
    resumed = run(files, critic_dir, tmp_path / "values.parquet", tmp_path / "state")
    assert computed == [12, 19]
    assert resumed.read_bytes() == run(files, critic_dir, tmp_path / "one.parquet", tmp_path / "state1").read_bytes()


def test_another_critic_or_a_swapped_weight_file_is_refused(files, critic_dir, tmp_path):
    copy = shutil.copytree(critic_dir, tmp_path / "copy")
    with open(copy / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(UserError, match=r"statistics\.digests is .*make the critic again"):
        run(files, copy, tmp_path / "values.parquet", tmp_path / "state")
    lineage = json.loads((critic_dir / "lineage.json").read_text())
    (copy / "lineage.json").write_text(json.dumps({**lineage, "tag": "other"}))
    with pytest.raises(UserError, match="tag is other, needed is value"):
        run(files, copy, tmp_path / "values.parquet", tmp_path / "state")


def test_a_second_job_is_refused(files, critic_dir, tmp_path):
    with devices.distributed(), devices.exclusive(tmp_path / "state"):
        pass  # a lock that was given back does not refuse
    with open(tmp_path / "state/lock", "a") as handle:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is writing into this state folder"):
            run(files, critic_dir, tmp_path / "values.parquet", tmp_path / "state")


def test_a_cache_of_another_size_is_refused(files, critic_dir, tmp_path):
    config = json.loads((critic_dir / "config.json").read_text())
    copy = shutil.copytree(critic_dir, tmp_path / "copy")
    (copy / "config.json").write_text(json.dumps({**config, "image_size": 32}))
    with pytest.raises(UserError, match=r"image_size is 16, needed is 32"):
        run(files, copy, tmp_path / "values.parquet", tmp_path / "state")


def test_values_of_a_file_that_is_not_the_critics_camera_are_refused(files, critic_dir):
    critic = load_critic(critic_dir)
    frames = critic_frames(critic, episodes_of(files), files.frame_cache(NAME), {CAMERA: "observation.images.wrist"})
    with pytest.raises(UserError, match=r"no camera 'observation\.images\.wrist'"):
        evaluate_rows(critic, frames, range(0, 1))
