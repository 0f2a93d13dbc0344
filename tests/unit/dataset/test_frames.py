"""Images reach the row they belong to, whatever layout they come from; what cannot be read is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment, whole_experiment
from recap_steam.dataset.episodes import index_stage
from recap_steam.dataset.frames import FrameCache, build_frame_cache
from recap_steam.dataset.resize import resize_with_pad
from recap_steam.dataset.video import read_video, require_videos
from recap_steam.errors import UserError
from tests.datasets import image, index, write_v21, write_v30, write_video

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
LENGTHS = [5, 4, 6]
SHARED = Path(__file__).parents[4] / "shared/data"


def _build(root: Path, output: Path, cameras=(FRONT,), size: int = 32):
    dataset, episodes = index(root, "sft")
    build_frame_cache(dataset, episodes, cameras, size, output)
    return episodes, FrameCache.open(output, episodes)


@pytest.mark.parametrize("write", [write_v21, write_v30])
@pytest.mark.parametrize("dtype", ["image", "video"])
def test_every_row_has_its_image(tmp_path, write, dtype):
    root = write(tmp_path / "data", LENGTHS, cameras=[FRONT, WRIST], camera_dtype=dtype, episode_indices=[0, 3, 7])
    episodes, cache = _build(root, tmp_path / "cache.arrow", [WRIST, FRONT])
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(15), 2))
    episode, frame = (key[rows] for key in episodes.frame_keys())
    position = np.searchsorted(episodes.episode_index, episode)
    for number, camera in enumerate([FRONT, WRIST]):
        expected = np.stack([image(e, f, number) for e, f in zip(position, frame, strict=True)])
        found = cache.images(camera, rows)
        tolerance = 0 if dtype == "image" else 3  # PNG is exact; a codec rounds, and frames are 10 levels apart
        assert np.abs(found.astype(int) - expected).max() <= tolerance


def test_rows_of_later_record_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("recap_steam.dataset.frames.BATCH_ROWS", 4)
    _, cache = _build(write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT]), tmp_path / "cache.arrow")
    found = cache.images(FRONT, np.array([14, 0, 8]))
    assert np.array_equal(found, np.stack([image(2, 5), image(0, 0), image(1, 3)]))


def test_cache_is_byte_identical_when_recomputed(tmp_path):
    root = write_v30(tmp_path / "data", LENGTHS, cameras=[FRONT], camera_dtype="video")
    for name in ("one", "two"):
        _build(root, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_digest_follows_the_images_alone(tmp_path):
    """New images with the old actions have the old fingerprint; whoever trains on the cache must still see the difference."""
    caches = {}
    for name, size in (("old", (32, 32)), ("again", (32, 32)), ("new", (16, 32))):
        root = write_v21(tmp_path / name, LENGTHS, cameras=[FRONT], size=size)
        caches[name] = _build(root, tmp_path / f"{name}.arrow")
    assert len({episodes.fingerprint for episodes, _ in caches.values()}) == 1
    assert caches["old"][1].digest == caches["again"][1].digest != caches["new"][1].digest


def test_av1(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT], camera_dtype="video", size=(64, 64))
    for number, path in enumerate(sorted((root / "videos").rglob("*.mp4"))):
        write_video(path, np.stack([image(number, frame, 0, (64, 64)) for frame in range(LENGTHS[number])]), 10, "libsvtav1")
    _, cache = _build(root, tmp_path / "cache.arrow", size=64)
    assert np.abs(cache.images(FRONT, np.array([12])).astype(int) - image(2, 3, 0, (64, 64))).max() <= 4


def test_each_file_is_opened_once(tmp_path, monkeypatch):
    import av

    opened = []
    really_open = av.open
    monkeypatch.setattr(av, "open", lambda path, *args: (opened.append(path), really_open(path, *args))[1])
    dataset, episodes = index(write_v30(tmp_path / "data", LENGTHS, cameras=[FRONT, WRIST], camera_dtype="video"), "sft")
    opened.clear()
    build_frame_cache(dataset, episodes, [FRONT, WRIST], 32, tmp_path / "cache.arrow")
    assert len(opened) == 2


def test_stills_out_of_order(tmp_path):
    root = write_v30(tmp_path / "data", LENGTHS, cameras=[FRONT])
    path = next((root / "data").rglob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.take(np.random.default_rng(1).permutation(len(table))), path)
    _, cache = _build(root, tmp_path / "cache.arrow")
    assert np.array_equal(cache.images(FRONT, np.array([5])), image(1, 0)[None])


def test_stills_by_path_only(tmp_path):
    root = tmp_path / "data"

    def drop_bytes(table, position):
        items = table[FRONT].to_pylist()
        paths = []
        for frame, item in enumerate(items):
            paths.append(f"images/episode_{position}/frame_{frame}.png")
            (root / paths[-1]).parent.mkdir(parents=True, exist_ok=True)
            (root / paths[-1]).write_bytes(item["bytes"])
        kind = table.schema.field(FRONT).type
        column = pa.array([{"bytes": None, "path": path} for path in paths], kind)
        return table.set_column(table.schema.get_field_index(FRONT), FRONT, column)

    write_v21(root, [3, 2], cameras=[FRONT], columns=drop_bytes)
    _, cache = _build(root, tmp_path / "cache.arrow")
    assert np.array_equal(cache.images(FRONT, np.array([4])), image(1, 1)[None])
    (root / "images/episode_1/frame_1.png").write_bytes(b"not a png")
    _fails(root, tmp_path, r"frame_1\.png: episode 1, frame 1: image of 'observation\.images\.front' is not readable.*restore")


def _fails(root: Path, tmp_path: Path, message: str) -> None:
    output = tmp_path / "out/cache.arrow"
    with pytest.raises(UserError, match=message) as caught:
        _build(root, output)
    assert "\n" not in str(caught.value)
    assert not output.parent.exists() or not os.listdir(output.parent)


def test_missing_videos_are_all_named(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT, WRIST], camera_dtype="video")
    for path in (root / "videos").rglob("*_000001.mp4"):
        path.unlink()
    dataset, episodes = index(root, "sft")
    with pytest.raises(UserError, match=r"front/episode_000001\.mp4, .*wrist/episode_000001\.mp4; restore"):
        build_frame_cache(dataset, episodes, [FRONT, WRIST], 32, tmp_path / "cache.arrow")
    assert not (tmp_path / "cache.arrow").exists()


@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_unreadable_video(tmp_path, content):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT], camera_dtype="video")
    next((root / "videos").rglob("*_000001.mp4")).write_bytes(content)
    _fails(root, tmp_path, r"episode_000001\.mp4: episode 1: not a readable video.*restore")


def test_truncated_video(tmp_path):
    root = write_v30(tmp_path / "data", [40, 40], cameras=[FRONT], camera_dtype="video")
    path = next((root / "videos").rglob("*.mp4"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _fails(root, tmp_path, r"file-000\.mp4: episode \d: not a readable video.*restore")


@pytest.mark.parametrize(
    ("frames", "message"), [(3, "the video ends 1 frames before the episode does"), (5, "the video has more frames than the episode")]
)
def test_video_of_another_length(tmp_path, frames, message):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT], camera_dtype="video")
    path = next((root / "videos").rglob("*_000001.mp4"))
    write_video(path, np.stack([image(1, frame) for frame in range(frames)]), 10)
    _fails(root, tmp_path, rf"episode_000001\.mp4: episode 1.*{message}")


def test_video_of_another_frame_rate(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT], camera_dtype="video")
    path = next((root / "videos").rglob("*_000001.mp4"))
    write_video(path, np.stack([image(1, frame) for frame in range(4)]), 5)
    _fails(root, tmp_path, r"episode_000001\.mp4: episode 1: frame 1 is at 0\.200 s, expected 0\.100 s")


def test_cache_of_something_else_is_refused(tmp_path):
    _, episodes = index(write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT], seed=1), "sft")
    _build(write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT]), tmp_path / "cache.arrow")
    with pytest.raises(UserError, match=r"cache\.arrow: dataset_fingerprint is .* needed is .*forcerun cache_frames"):
        FrameCache.open(tmp_path / "cache.arrow", episodes)
    _, episodes = index(tmp_path / "data", "sft")
    with pytest.raises(UserError, match=r"parameters\.image_size is 32, needed is 64"):
        FrameCache.open(tmp_path / "cache.arrow", episodes, image_size=64)
    (tmp_path / "cache.arrow").write_bytes((tmp_path / "cache.arrow").read_bytes()[:-100])
    with pytest.raises(UserError, match=r"not a readable frame cache.*forcerun cache_frames"):
        FrameCache.open(tmp_path / "cache.arrow", episodes)


def test_script(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, cameras=[FRONT, WRIST], success=[True] * 3)
    experiment = {"experiment": "test", "datasets": {"data": {"path": str(root), "type": "rollout"}}}
    index_stage(load_experiment(experiment), "data", tmp_path / "index.parquet")
    script = Path(__file__).parents[3] / "workflow/scripts/cache_frames.py"
    command = [sys.executable, str(script), "--config", json.dumps(whole_experiment(experiment)), "--dataset", "data", "--image-size", "16"]
    command += ["--episodes", str(tmp_path / "index.parquet"), "--output", str(tmp_path / "cache.arrow"), "--cameras"]
    ended = subprocess.run([*command, FRONT, WRIST], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    cache = FrameCache.open(tmp_path / "cache.arrow", index(root)[1], cameras=[FRONT, WRIST], image_size=16)
    assert np.array_equal(cache.images(WRIST, np.array([6]))[0], image(1, 1, 1, (16, 16)))
    ended = subprocess.run([*command, "observation.images.top"], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
    assert f"no camera 'observation.images.top' in dataset data; it has: {FRONT}, {WRIST}" in ended.stderr


@pytest.mark.skipif(not SHARED.exists(), reason="the public datasets are not beside the repository")
def test_public_datasets():
    dataset, episodes = index(SHARED / "unitree_g1_bottle_v21", "sft")
    picture = next(read_video(dataset, episodes, "observation.images.cam_high"))
    assert picture.shape == (480, 640, 3) and picture.std() > 20
    dataset, episodes = index(SHARED / "so101_record_v30", "sft")
    with pytest.raises(UserError, match=r"no video file .*front/chunk-000/file-000\.mp4, .*top/chunk-000/file-000\.mp4; restore"):
        require_videos(dataset, episodes, dataset.cameras)


def test_resize_keeps_shape_and_pads_black():
    images = np.random.default_rng(0).integers(1, 256, (2, 3, 24, 48, 3), dtype=np.uint8)
    resized = resize_with_pad(images, 32)
    assert resized.shape == (2, 3, 32, 32, 3)
    assert not resized[..., :8, :, :].any() and not resized[..., 24:, :, :].any() and resized[..., 8:24, :, :].any(axis=-1).all()
    square = images[..., :24, :24, :]
    assert resize_with_pad(square, 24) is square


@pytest.mark.parametrize("shape", [(48, 64), (33, 17), (20, 20), (7, 90)])
def test_resize_is_that_of_pi05(shape):
    """Golden values: lerobot 0.6.1, ``policies.common.vla_utils.resize_with_pad_torch`` on the float image, 32 pixels."""
    golden = np.load(Path(__file__).parents[2] / "data/golden/resize_with_pad.npz")[f"{shape[0]}x{shape[1]}"]
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    assert np.abs(resize_with_pad(picture, 32) - golden).max() <= 1.001  # the same geometry, rounded to levels by fixed-point arithmetic
