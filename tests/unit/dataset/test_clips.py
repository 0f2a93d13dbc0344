"""Frames of single episodes are those of the sequential readers, and what is missing is named."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from recap_steam.dataset import clips
from recap_steam.dataset.clips import read_clip
from recap_steam.dataset.video import read_video
from recap_steam.errors import UserError
from tests.datasets import image, index, write_v21, write_v30, write_video

CAMERA, WRIST = "observation.images.front", "observation.images.wrist"
LENGTHS = [40, 30, 50]
STEPS = [0, 12, 13, 37, 49]


@pytest.mark.parametrize("write", [write_v21, write_v30])
@pytest.mark.parametrize("dtype", ["image", "video"])
@pytest.mark.parametrize("steps", [None, STEPS])
def test_frames_are_those_that_were_asked_for(tmp_path, write, dtype, steps):
    options = {"cameras": [CAMERA, WRIST], "camera_dtype": dtype, "episode_indices": [0, 3, 7]}
    dataset, episodes = index(write(tmp_path / "data", LENGTHS, **options), "sft")
    found = list(read_clip(dataset, episodes, 2, WRIST, steps))
    expected = [image(2, step, camera=1) for step in steps or range(50)]
    assert len(found) == len(expected)
    tolerance = 0 if dtype == "image" else 3  # frames are 10 levels apart
    assert max(np.abs(one.astype(int) - other).max() for one, other in zip(found, expected, strict=True)) <= tolerance


def test_video_frames_are_those_of_the_pass_in_order(tmp_path):
    dataset, episodes = index(write_v30(tmp_path / "data", LENGTHS, cameras=[CAMERA], camera_dtype="video"), "sft")
    in_order = list(read_video(dataset, episodes, CAMERA))[40:70]
    assert np.array_equal(np.stack(list(read_clip(dataset, episodes, 1, CAMERA))), np.stack(in_order))


def test_a_far_frame_is_sought(tmp_path, monkeypatch):
    """A file of hours is not decoded for two frames of one of its episodes."""
    dataset, episodes = index(write_v30(tmp_path / "data", [300, 300], cameras=[CAMERA], camera_dtype="video"), "sft")
    numbers = []
    monkeypatch.setattr(clips, "round", lambda value: numbers.append(round(value)) or numbers[-1], raising=False)
    assert len(list(read_clip(dataset, episodes, 1, CAMERA, [0, 299]))) == 2
    assert len(numbers) < 20  # the times of two sought frames, and those of the frames that were decoded


def test_a_short_video_is_an_error(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[CAMERA], camera_dtype="video")
    (path,) = root.rglob("episode_000001.mp4")
    write_video(path, np.stack([image(1, frame) for frame in range(29)]), 10)
    dataset, episodes = index(root, "sft")
    with pytest.raises(UserError, match=r"episode_000001.mp4: episode 1: the video has no frame 29; restore the file"):
        list(read_clip(dataset, episodes, 1, CAMERA))
    path.unlink()
    with pytest.raises(UserError, match=r"has no video file .*episode_000001.mp4"):
        list(read_clip(dataset, episodes, 1, CAMERA))
    assert len(list(read_clip(dataset, episodes, 0, CAMERA))) == 40


def test_a_missing_image_is_an_error(tmp_path):
    root = write_v30(tmp_path / "data", LENGTHS, cameras=[CAMERA])
    dataset, episodes = index(root, "sft")
    (path,) = (root / "data").rglob("*.parquet")
    table = pq.read_table(path)
    cells = table[CAMERA].to_pylist()
    cells[45] = None
    pq.write_table(table.set_column(table.column_names.index(CAMERA), CAMERA, [cells]), path)
    with pytest.raises(UserError, match=rf"episode 1, frame 5: image of '{CAMERA}' is not readable"):
        list(read_clip(dataset, episodes, 1, CAMERA))
