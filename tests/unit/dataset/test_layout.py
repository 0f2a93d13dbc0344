"""LeRobot layouts are read as they are, and what is wrong with the metadata is one line."""

import json

import pytest

from recap_steam.dataset.layout import open_dataset
from recap_steam.dataset.vectors import read_vectors
from recap_steam.errors import UserError
from tests.datasets import index, write_v21, write_v30

CAMERA = "observation.images.front"


def test_both_layouts_say_the_same(tmp_path):
    options = {"success": [True, False, True], "tasks": ["open", "close"], "interventions": [(1, 1, 3)], "cameras": [CAMERA]}
    old, old_episodes = index(write_v21(tmp_path / "old", [5, 4, 3], **options))
    new, new_episodes = index(write_v30(tmp_path / "new", [5, 4, 3], **options))
    assert (old.version, new.version) == ("v2.1", "v3.0")
    assert old.tasks == new.tasks == {0: "open", 1: "close"}
    assert old.cameras == new.cameras == (CAMERA,)
    assert old_episodes.fingerprint == new_episodes.fingerprint


def test_a_dataset_of_openpis_names_and_an_older_format(tmp_path):
    """As RLinf's public LIBERO data: v2.0, columns ``state`` and ``actions``, cameras without a prefix."""

    def renamed(table, position):
        return table.rename_columns({"observation.state": "state", "action": "actions"})

    plain = write_v21(tmp_path / "plain", [5, 4], success=[True, False], cameras=["image"], camera_dtype="video")
    root = write_v21(tmp_path / "data", [5, 4], success=[True, False], cameras=["image"], camera_dtype="video", columns=renamed)
    info = json.loads((root / "meta/info.json").read_text())
    names = {"observation.state": "state", "action": "actions"}
    info |= {"codebase_version": "v2.0", "features": {names.get(key, key): feature for key, feature in info["features"].items()}}
    (root / "meta/info.json").write_text(json.dumps(info))
    (dataset, episodes), (_, expected) = index(root), index(plain)
    assert (dataset.version, dataset.cameras, dataset.action_key, dataset.state_key) == ("v2.0", ("image",), "actions", "state")
    assert episodes.fingerprint == expected.fingerprint
    assert dataset.video_span(1, "image").path.is_file() and dataset.tasks
    assert read_vectors(dataset, episodes, dataset.state_key).shape[0] == 9


def test_video_spans(tmp_path):
    old = open_dataset("old", write_v21(tmp_path / "old", [5, 4], cameras=[CAMERA], camera_dtype="video"))
    new = open_dataset("new", write_v30(tmp_path / "new", [5, 4], cameras=[CAMERA], camera_dtype="video"))
    span = old.video_span(1, CAMERA)
    assert span.path.exists() and (span.from_s, span.to_s) == (0.0, None)
    span = new.video_span(1, CAMERA)
    assert span.path.exists() and (span.from_s, span.to_s) == (0.5, 0.9)


def test_blank_lines_in_the_task_file_are_skipped(tmp_path):
    root = write_v21(tmp_path / "data", [3])
    (root / "meta/tasks.jsonl").write_text('\n{"task_index": 0, "task": "open the drawer"}\n\n')
    assert open_dataset("data", root).tasks == {0: "open the drawer"}


def test_task_texts_may_hold_any_character(tmp_path):
    root = write_v21(tmp_path / "data", [3])
    text = "打开\u2028抽屉\x85"  # line separators of Unicode, but not of JSON lines
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": text}, ensure_ascii=False), encoding="utf-8")
    assert open_dataset("data", root).tasks == {0: text}


@pytest.mark.parametrize("write", [write_v21, write_v30])
def test_missing_task_file(tmp_path, write):
    root = write(tmp_path / "data", [3])
    next((root / "meta").glob("tasks.*")).unlink()
    with pytest.raises(UserError, match=r"meta/tasks\.(jsonl|parquet): not found.*restore it"):
        index(root, "sft")


def test_malformed_metadata(tmp_path):
    root = write_v21(tmp_path / "data", [3])
    (root / "meta/tasks.jsonl").write_text('{"task_index": 0}\n')
    with pytest.raises(UserError, match=r"tasks\.jsonl: line 1 is not a JSON object with the keys task_index, task"):
        _ = open_dataset("data", root).tasks
    (root / "meta/tasks.jsonl").write_bytes('{"task_index": 0, "task": "打开抽屉"}\n'.encode("gbk"))
    with pytest.raises(UserError, match=r"tasks\.jsonl: line 1 is not a JSON object"):
        _ = open_dataset("data", root).tasks
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v1.6"}))
    with pytest.raises(UserError, match=r"codebase_version v1\.6 is not supported; convert"):
        open_dataset("data", root)
    (root / "meta/info.json").write_text("{")
    with pytest.raises(UserError, match=r"info\.json: malformed"):
        open_dataset("data", root)
    with pytest.raises(UserError, match=r"info\.json: not found.*check datasets\.data\.path"):
        open_dataset("data", tmp_path / "elsewhere")


def test_unknown_camera_names_those_there_are(tmp_path):
    dataset = open_dataset("data", write_v21(tmp_path / "data", [3], cameras=[CAMERA]))
    with pytest.raises(UserError, match=f"no camera 'wrist' in dataset data; it has: {CAMERA}"):
        dataset.camera_dtype("wrist")
