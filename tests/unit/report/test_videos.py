"""Videos of episodes: the right images, curves with a marker at the right frame, what people can play, and the same bytes again."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.report import videos
from recap_steam.report.episode_curves import episode_curves
from recap_steam.report.judgement import load_labels
from recap_steam.report.videos import compose, draw_canvas, video_stage, write_video
from recap_steam.schema import with_defaults
from tests.datasets import image
from tests.experiments import CAMERA, RESULTS, small_config

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/render_video.py"
EPISODES, THRESHOLDS = RESULTS / "episodes/rollouts.parquet", RESULTS / "thresholds"
EPISODE = 3


@pytest.fixture
def here(finished, monkeypatch) -> Path:
    monkeypatch.chdir(finished)
    return finished


def curves_of(tag: str):
    labels = load_labels(load_experiment(small_config()), "rollouts", tag, EPISODES, THRESHOLDS / f"{tag}.yaml")
    return episode_curves(labels.judgement, labels.source.fps, EPISODE)


def frames(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.mark.parametrize("tag", ["n5_q30", "steam_q40"])
def test_the_command_shows_every_frame_of_the_episode(here, tag, tmp_path):
    sections = ("datasets", "camera_maps", "critics", "advantages")
    config = json.dumps({name: part for name, part in with_defaults(small_config()).items() if name in sections})
    arguments = ["--config", config, "--dataset", "rollouts", "--tag", tag, "--episode", "000003", "--episodes", str(EPISODES)]
    arguments += ["--threshold", str(THRESHOLDS / f"{tag}.yaml"), "--output", str(tmp_path / "video.mp4")]
    subprocess.run([sys.executable, SCRIPT, *arguments], cwd=here, check=True)
    with av.open(str(tmp_path / "video.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 10)
    shown, curves = frames(tmp_path / "video.mp4"), curves_of(tag)
    assert len(shown) == len(curves.score)
    canvas = draw_canvas(curves, [(16, 16)])
    middle = (canvas.cameras[0] + canvas.cameras[1] // 2, videos.WIDTH // 2)
    drawn = np.stack([image(EPISODE, step)[0, 0] for step in range(len(shown))])
    assert np.abs(shown[:, *middle].astype(int) - drawn).max() <= 6  # frames are 10 levels apart


def test_an_episode_that_is_not_there_is_an_error(here, tmp_path):
    experiment = load_experiment(small_config())
    with pytest.raises(UserError, match=r"dataset rollouts has no episode 30 \(the last is 29\)"):
        video_stage(experiment, "rollouts", "n5_q30", 30, EPISODES, THRESHOLDS / "n5_q30.yaml", tmp_path / "video.mp4")
    assert not list(tmp_path.iterdir())


def test_the_marker_is_where_the_curve_is(here):
    curves = curves_of("n5_q30")
    canvas = draw_canvas(curves, [(16, 16)])
    assert (np.diff(canvas.across) > 5).all()
    pictures = list(compose(curves, [(image(EPISODE, step),) for step in range(len(curves.score))]))
    for step in (0, len(pictures) - 1):
        for rows, up in zip(canvas.rows, canvas.up, strict=True):
            assert rows.start - 5 <= up[step] <= rows.stop + 5
            marked = pictures[step][up[step] - 3 : up[step] + 4, canvas.across[step] - 3 : canvas.across[step] + 4]
            assert (marked == videos.BLACK_RGB).all()
    changed = (pictures[0] != pictures[1]).any(axis=2)
    panel = changed[canvas.rows[0]]
    assert panel.any(axis=0).nonzero()[0].max() < canvas.across[2]  # the rest of the panel is as it was drawn


def test_images_above_the_threshold_are_framed(here):
    curves = curves_of("n5_q30")
    canvas = draw_canvas(curves, [(16, 16)])
    above = canvas.cameras[0] - videos.BORDER // 2, videos.WIDTH // 2
    framed = [
        tuple(picture[above]) == videos.GREEN_RGB
        for picture in compose(curves, [(image(EPISODE, step),) for step in range(len(curves.score))])
    ]
    assert framed == curves.reached.tolist() and 0 < sum(framed) < len(framed)


@pytest.mark.parametrize("shapes", [[(16, 16)], [(480, 640), (480, 640)], [(480, 640), (224, 224), (100, 300)], [(1000, 30)]])
def test_any_cameras_fit_side_by_side(here, shapes):
    curves = curves_of("n5_q30")
    images = tuple(np.full((*shape, 3), 40 * (number + 2), np.uint8) for number, shape in enumerate(shapes))
    picture = next(compose(curves, iter([images])))
    top, height = draw_canvas(curves, shapes).cameras
    row = picture[top + height // 2, :, 0]
    widths = [int((row == 40 * (number + 2)).sum()) for number in range(len(shapes))]
    for width, shape in zip(widths, shapes, strict=True):
        assert width == pytest.approx(height * shape[1] / shape[0], abs=1)
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0 and height <= videos.MAX_CAMERAS


def test_a_rate_of_30000_by_1001_is_kept(tmp_path):
    write_video(tmp_path / "video.mp4", iter(np.zeros((3, 16, 16, 3), np.uint8)), 30000 / 1001)
    with av.open(str(tmp_path / "video.mp4")) as container:
        assert container.streams.video[0].average_rate == Fraction(30000, 1001)


def test_a_camera_that_the_robot_lacks_is_left_out(here, tmp_path):
    """And the same pictures give the same bytes."""
    config = small_config()
    config["camera_maps"] = {"one_arm": {"wrist": None, "front": CAMERA}}
    config["datasets"]["rollouts"]["camera_map"] = "one_arm"
    config["critics"]["value"]["cameras"] = ["wrist", "front"]
    for name, experiment in (("mapped", config), ("plain", small_config())):
        video_stage(load_experiment(experiment), "rollouts", "n5_q30", EPISODE, EPISODES, THRESHOLDS / "n5_q30.yaml", tmp_path / name)
    assert (tmp_path / "mapped").read_bytes() == (tmp_path / "plain").read_bytes()
