"""The dataset report: what is in every dataset, what is wrong with one, and that this hides no other."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_slice
from recap_steam.dataset.inspection import inspect_dataset
from recap_steam.report.dataset_page import datasets_stage
from tests.datasets import write_v21, write_v30

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/report_datasets.py"
CAMERA = "observation.images.front"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A good dataset, one without its video files, one without outcomes, and a folder that holds none."""
    root = tmp_path_factory.mktemp("datasets")
    interventions = [(1, 2, 5)]
    write_v30(root / "good", [4, 6, 5], success=[True, False, True], interventions=interventions, cameras=(CAMERA,), size=(16, 16))
    write_v21(root / "unjudged", [3, 3])
    write_v21(root / "blind", [4, 4], success=[True, True])
    info = json.loads((root / "blind/meta/info.json").read_text())
    info["features"][CAMERA] = {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]}
    info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    (root / "blind/meta/info.json").write_text(json.dumps(info))
    return root


def experiment_slice(root: Path) -> dict:
    kinds = {"good": "rollout", "unjudged": "rollout", "blind": "sft", "absent": "sft"}
    return {"datasets": {name: {"path": str(root / name), "type": kind} for name, kind in kinds.items()}}


@pytest.fixture(scope="module")
def built(root) -> tuple[Path, str]:
    """The folder that the rule's command writes, and what it prints."""
    command = [sys.executable, SCRIPT, "--config", json.dumps(experiment_slice(root)), "--output-dir", root / "report"]
    return root / "report", subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_terminal_gets_the_table_and_the_defects_first(built):
    folder, printed = built
    assert printed.strip() == (folder / "summary.txt").read_text().strip()
    warnings, _, tables = printed.partition("\n\nDatasets\n")
    lines = [line for line in warnings.splitlines() if line.startswith("* warning: ")]
    assert [line.split(": ")[1] for line in lines] == ["unjudged", "blind", "absent"]
    assert "no column 'is_success'" in lines[0] and lines[0].endswith("Add it, or set type: sft for demonstrations.")
    assert "has no video file" in lines[1] and "meta/info.json: not found" in lines[2]
    good = next(line.split() for line in tables.splitlines() if line.startswith("good "))
    assert good[1:3] == ["rollout", "v3.0,"] and good[5:8] == ["none", "3", "15"]


def test_the_page_holds_everything(built):
    text = (built[0] / "index.html").read_text()
    assert text.count("<img") == 1 and "http" not in text and "3 warnings" in text
    assert all(name in text for name in ("good", "unjudged", "blind", "absent"))


def test_numbers_as_parquet(built, root):
    rows = {row["dataset"]: row for row in pq.read_table(built[0] / "datasets.parquet").to_pylist()}
    good = rows["good"]
    assert (good["num_episodes"], good["num_frames"], good["num_successes"], good["num_intervention_frames"]) == (3, 15, 2, 3)
    assert good["defects"] == [] and len(good["fingerprint"]) == 64
    assert rows["unjudged"]["num_frames"] is None and len(rows["unjudged"]["defects"]) == 1
    assert rows["blind"]["num_frames"] == 8 and CAMERA in rows["blind"]["cameras"] and len(rows["blind"]["defects"]) == 1
    assert rows["absent"]["version"] is None
    episodes = pq.read_table(built[0] / "episodes.parquet").filter(
        pq.read_table(built[0] / "episodes.parquet")["dataset"].to_numpy() == "good"
    )
    assert episodes["num_frames"].to_pylist() == [4, 6, 5] and episodes["success"].to_pylist() == [True, False, True]
    assert episodes["num_intervention_frames"].to_pylist() == [0, 3, 0]


def test_same_datasets_give_the_same_bytes(built, root, tmp_path):
    datasets_stage(load_slice(experiment_slice(root)), tmp_path)
    for path in built[0].iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_nothing_but_broken_datasets(root, tmp_path):
    config = {"datasets": {"absent": {"path": str(root / "absent"), "type": "sft"}}}
    datasets_stage(load_slice(config), tmp_path)
    assert pq.read_table(tmp_path / "episodes.parquet").num_rows == 0
    assert "<img" not in (tmp_path / "index.html").read_text()


def test_left_out_indices_are_noted(tmp_path):
    path = write_v21(tmp_path / "gaps", [3, 3, 3], success=[True] * 3)
    lines = (path / "meta/episodes.jsonl").read_text().splitlines() if (path / "meta/episodes.jsonl").exists() else []
    (file,) = [file for file in (path / "data").rglob("*.parquet") if np.all(pq.read_table(file)["episode_index"].to_numpy() == 1)]
    file.unlink()
    if lines:
        (path / "meta/episodes.jsonl").write_text("".join(line + "\n" for line in lines if json.loads(line)["episode_index"] != 1))
    config = load_slice({"datasets": {"gaps": {"path": str(path), "type": "rollout"}}}).datasets["gaps"]
    assert inspect_dataset("gaps", config).notes == ["1 episode indices between 0 and 2 are not used: 1"]
