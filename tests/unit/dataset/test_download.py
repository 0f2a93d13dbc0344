"""Downloads from a hub of the tests' own on this machine, by the real client: fetched at one commit, counted, then put in place."""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recap_steam.config import load_experiment
from recap_steam.dataset.download import download_stage, verify
from recap_steam.errors import UserError
from tests.datasets import write_v21

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/download_dataset.py"
REVISION = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "someone/rollouts"


class Hub(http.server.BaseHTTPRequestHandler):
    """What the client asks of a hub, for one repository at one commit, from files below ``folder``."""

    def __init__(self, folder: Path, *arguments: Any):
        self.folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        files = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        asked = self.path.split("?")[0]
        if asked == f"/api/datasets/{REPOSITORY}/revision/{REVISION}":
            self._answer(json.dumps({"id": REPOSITORY, "sha": REVISION, "siblings": [{"rfilename": name} for name in files]}).encode())
        elif asked == f"/api/datasets/{REPOSITORY}/tree/{REVISION}":
            rows = [{"type": "file", "path": name, "size": path.stat().st_size, "oid": "0" * 40} for name, path in files.items()]
            self._answer(json.dumps(rows).encode())
        elif self.path.startswith(prefix := f"/datasets/{REPOSITORY}/resolve/{REVISION}/"):
            self._answer((self.folder / self.path.removeprefix(prefix)).read_bytes())
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        headers = {"Content-Length": len(content), "ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": REVISION}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Hub, folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """A hub with three rollouts, of which one is a success, in a folder beside another one."""
    published = tmp_path / "published"
    write_v21(published / "train", [4, 3, 5], success=[True, False, False], cameras=["image"], camera_dtype="video")
    (published / "other").mkdir()
    (published / "other/large.bin").write_bytes(b"not asked for")
    with serving(published) as address:
        yield address


def document(path: Path, **download: Any) -> dict:
    section = {"repo_id": REPOSITORY, "revision": REVISION, "folder": "train", "num_episodes": 3, "num_successes": 1}
    return {"experiment": "x", "datasets": {"rollouts": {"path": str(path), "type": "rollout", "download": section | download}}}


def download(address: str, path: Path, **changes: Any) -> tuple[int, str, Path]:
    """Status, what was printed, and the receipt of the rule's script."""
    receipt = path.with_name("receipt.json")
    command = [sys.executable, SCRIPT, "--config", json.dumps(document(path, **changes)), "--dataset", "rollouts", "--output", receipt]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = clean | {"HF_ENDPOINT": address, "HF_HOME": str(path.with_name("home"))}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, receipt


def test_what_was_asked_for_is_fetched_counted_and_put_in_place(hub: str, tmp_path: Path) -> None:
    path = tmp_path / "data/train"
    status, output, receipt = download(hub, path)
    assert status == 0, output
    assert "rollouts: 3 episodes, 1 successes, 12 frames" in output
    assert json.loads(receipt.read_text())["revision"] == REVISION
    published = tmp_path / "published/train"
    assert {p.relative_to(path) for p in path.rglob("*")} == {p.relative_to(published) for p in published.rglob("*")}
    assert (path / "data/chunk-000/episode_000002.parquet").read_bytes() == (
        published / "data/chunk-000/episode_000002.parquet"
    ).read_bytes()
    assert not (tmp_path / "data/train.partial").exists()


def test_another_number_of_successes_is_not_accepted(hub: str, tmp_path: Path) -> None:
    status, output, receipt = download(hub, tmp_path / "data/train", num_successes=2)
    assert status == 1 and "1 successes, but datasets.rollouts.download says 2; delete it and fetch it again" in output
    assert not (tmp_path / "data/train").exists() and not receipt.exists()
    assert download(hub, tmp_path / "data/train")[0] == 0  # from what had been fetched


@pytest.mark.parametrize("changes", [{"revision": "f" * 40}, {"repo_id": "someone/else"}])
def test_what_the_hub_does_not_have_is_one_line(hub: str, tmp_path: Path, changes: dict) -> None:
    status, output, _ = download(hub, tmp_path / "data/train", **changes)
    assert status == 1
    assert output.splitlines()[-1].startswith("error: datasets hub: ") and output.splitlines()[-1].endswith("what is complete is kept")


def test_without_the_hub_nothing_passes_as_fetched(tmp_path: Path) -> None:
    write_v21(tmp_path / "data/train.partial/train", [4, 3, 5], success=[True, False, False])
    status, output, _ = download("http://127.0.0.1:9", tmp_path / "data/train")
    assert status == 1 and "could not be fetched" in output.splitlines()[-1]
    assert not (tmp_path / "data/train").exists()


def test_what_is_there_already_is_counted_and_left_alone(tmp_path: Path) -> None:
    path = write_v21(tmp_path / "train", [4, 3, 5], success=[True, False, False])
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    download_stage(load_experiment(document(path)), "rollouts", tmp_path / "receipt.json")
    assert json.loads((tmp_path / "receipt.json").read_text())["episodes"] == 3
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: next(root.rglob("*.mp4")).write_bytes(b""), r"episode_00000\d\.mp4: the video of episode \d is missing or empty"),
        (lambda root: next(root.rglob("*.mp4")).unlink(), r"episode_00000\d\.mp4: the video of episode \d is missing or empty"),
        (lambda root: next(root.rglob("*.parquet")).unlink(), r"episodes without data: \d; restore"),
        (lambda root: shutil.rmtree(root / "meta"), r"info\.json: not found"),
    ],
    ids=["empty video", "missing video", "missing data", "no metadata"],
)
def test_damage_is_found(tmp_path: Path, damage, message: str) -> None:
    root = write_v21(tmp_path / "train", [4, 3, 5], success=[True, False, False], cameras=["image"], camera_dtype="video")
    damage(root)
    with pytest.raises(UserError, match=message):
        verify("rollouts", root, load_experiment(document(root)).datasets["rollouts"])


def test_other_files_are_not_replaced(hub: str, tmp_path: Path) -> None:
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/mine").write_text("kept")
    status, output, _ = download(hub, tmp_path / "data/train")
    assert status == 1 and "move what is there away" in output
    assert (tmp_path / "data/train/mine").read_text() == "kept"


def test_nothing_to_download_is_said(tmp_path: Path) -> None:
    raw = document(tmp_path)
    del raw["datasets"]["rollouts"]["download"]
    with pytest.raises(UserError, match=r"datasets\.rollouts: has no section `download`"):
        download_stage(load_experiment(raw), "rollouts", tmp_path / "receipt.json")
