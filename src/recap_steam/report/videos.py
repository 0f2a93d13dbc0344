"""Rule render_video: an episode as mp4. Cameras side by side, and below them the curves with a marker that moves.

Matplotlib draws the curves once; what changes from frame to frame is copied into that picture: images, marker, and a line of text.
"""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image, ImageDraw, ImageFont

from recap_steam.config import Experiment, camera_keys
from recap_steam.dataset.clips import read_clip
from recap_steam.errors import UserError, rerun
from recap_steam.files import atomic_output
from recap_steam.report.episode_curves import EpisodeCurves, draw_curves, episode_curves
from recap_steam.report.judgement import load_labels
from recap_steam.report.style import BLACK, GREEN, as_written, new_figure, styled

WIDTH, HEADER, CURVES, GAP = 960, 84, 330, 8  # pixels
MAX_CAMERAS, BORDER = 480, 6  # height of the cameras, width of the frame around them
DPI = 100
BLACK_RGB, GREEN_RGB = ((tuple(int(color[start : start + 2], 16) for start in (1, 3, 5))) for color in (BLACK, GREEN))


def video_stage(
    experiment: Experiment,
    dataset: str,
    tag: str,
    episode: int,
    episodes_path: Path | str,
    threshold_path: Path | str,
    output: Path | str,
) -> None:
    """Write the video of ``episode`` of ``dataset`` under the labels ``tag``: H.264 at the dataset's frame rate.

    Raises:
        UserError: no such episode, or what ``load_labels`` and ``read_clip`` raise.
    """
    labels = load_labels(experiment, dataset, tag, episodes_path, threshold_path)
    episodes = labels.judgement.episodes
    if episode not in episodes.episode_index:
        last = int(episodes.episode_index[-1])
        raise UserError(
            f"dataset {dataset} has no episode {episode} (the last is {last}); ask for one that it has, or {rerun('index_dataset')}"
        )
    position = int(np.searchsorted(episodes.episode_index, episode))
    cameras = camera_keys(experiment, dataset, experiment.critics[experiment.advantages[tag].critic].cameras)
    clips = [read_clip(labels.source, episodes, position, key) for key in cameras.values() if key is not None]
    curves = episode_curves(labels.judgement, labels.source.fps, position)
    with atomic_output(output) as path:
        write_video(path, compose(curves, zip(*clips, strict=True)), curves.fps)


def write_video(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    """Encode (H, W, 3) uint8 pictures, H and W even. The same pictures give the same bytes."""
    import av

    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        # x264's macroblock tree sums floats in an order that varies from run to run, and its choices follow the processor.
        options = {"crf": "20", "preset": "superfast", "threads": "1"}
        options["x264-params"] = "mbtree=0:cpu-independent=1:colormatrix=smpte170m"
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options=options)
        stream.pix_fmt = "yuv420p"  # what every player shows
        for number, picture in enumerate(pictures):
            if number == 0:
                stream.height, stream.width = picture.shape[:2]
            planes = cv2.cvtColor(picture, cv2.COLOR_RGB2YUV_I420)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        container.mux(stream.encode())


@dataclasses.dataclass(frozen=True)
class Canvas:
    """What does not change: the picture, in pixels where the cameras are (top, height), and of each panel the place of every frame's
    marker: ``across`` (T,), ``up`` {panel: (T,)} and the rows that the marker's line spans."""

    picture: np.ndarray
    cameras: tuple[int, int]
    across: np.ndarray
    up: list[np.ndarray]
    rows: list[slice]


def compose(curves: EpisodeCurves, images: Iterator[tuple[np.ndarray, ...]]) -> Iterator[np.ndarray]:
    """Pictures (H, W, 3) uint8 of the video; each of ``images`` holds one image a camera, (H, W, 3) uint8."""
    canvas, font = None, ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 17)
    for step, row in enumerate(images):
        if canvas is None:
            canvas = draw_canvas(curves, [image.shape[:2] for image in row])
        picture = canvas.picture.copy()
        put_cameras(picture, canvas.cameras, row, bool(curves.reached[step]))
        put_marker(picture, canvas, step)
        put_text(picture, _caption(curves, step), font)
        yield picture


@styled
def draw_canvas(curves: EpisodeCurves, shapes: list[tuple[int, int]]) -> Canvas:
    """Draw title and curves, and leave room for cameras with images of ``shapes`` (height, width)."""
    height = camera_height(shapes)
    total = HEADER + height + 2 * GAP + CURVES
    figure = new_figure(total / DPI, WIDTH / DPI)
    figure.set_dpi(DPI)
    figure.set_layout_engine("none")
    figure.text(0.01, 1 - 8 / total, curves.title, fontsize=13, weight="bold", va="top")
    figure.text(0.01, 1 - 33 / total, as_written(curves.task, 120), va="top")
    upper, lower = (figure.add_axes((0.095, bottom / total, 0.89, 105 / total)) for bottom in (195, 50))
    draw_curves(upper, lower, curves)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = np.array(canvas.buffer_rgba())[..., :3]
    said = next(iter(curves.lines.values()))
    across, _ = pixels(upper, said, total)
    up = [pixels(axis, line, total)[1] for axis, line in ((upper, said), (lower, curves.score))]
    rows = [slice(int(total - box.y1), int(total - box.y0)) for box in (axis.get_window_extent() for axis in (upper, lower))]
    return Canvas(np.ascontiguousarray(picture), (HEADER, height), across, up, rows)


def camera_height(shapes: list[tuple[int, int]]) -> int:
    """The common height at which cameras side by side fill the width, or the most that is allowed; even, as the picture's must be."""
    aspect = sum(width / height for height, width in shapes)
    room = WIDTH - GAP * (len(shapes) + 1)
    return min(MAX_CAMERAS, int(room / aspect)) // 2 * 2


def pixels(axis: Axes, line: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the points of ``line`` are, in columns and rows."""
    places = axis.transData.transform(np.stack([np.arange(len(line)), line], axis=1))
    return places[:, 0].round().astype(int), (total - places[:, 1]).round().astype(int)


def put_cameras(picture: np.ndarray, place: tuple[int, int], images: tuple[np.ndarray, ...], outlined: bool) -> None:
    top, height = place
    widths = [round(image.shape[1] * height / image.shape[0]) for image in images]
    left = (WIDTH - sum(widths) - GAP * (len(images) - 1)) // 2
    if outlined:
        right = left + sum(widths) + GAP * (len(images) - 1)
        picture[top - BORDER : top + height + BORDER, left - BORDER : right + BORDER] = GREEN_RGB
    for image, width in zip(images, widths, strict=True):
        method = cv2.INTER_AREA if 2 * height < image.shape[0] else cv2.INTER_LINEAR  # linear skips pixels where it shrinks more
        picture[top : top + height, left : left + width] = cv2.resize(image, (width, height), interpolation=method)
        left += width + GAP


def put_marker(picture: np.ndarray, canvas: Canvas, step: int) -> None:
    column = canvas.across[step]
    for rows, row in zip(canvas.rows, canvas.up, strict=True):
        picture[rows, column : column + 2] = BLACK_RGB
        cv2.circle(picture, (int(column), int(row[step])), 5, BLACK_RGB, -1, cv2.LINE_AA)


def _caption(curves: EpisodeCurves, step: int) -> str:
    sign = "ABOVE the threshold" if curves.reached[step] else "below the threshold"
    label = "labelled positive" if curves.positive[step] else "labelled negative"
    corrected = ", intervention" if curves.intervention[step] else ""
    name = curves.quantity.split(",")[0]
    return (
        f"frame {step} of {len(curves.score)}, {step / curves.fps:.1f} s: {name} {curves.score[step]:+.3f}, {sign} "
        f"({curves.threshold[step]:+.3f}), {label}{corrected}"
    )


def put_text(picture: np.ndarray, text: str, font: ImageFont.FreeTypeFont) -> None:
    strip = Image.fromarray(picture[54 : HEADER - BORDER])
    ImageDraw.Draw(strip).text((9, 0), text, fill=BLACK_RGB, font=font)
    picture[54 : HEADER - BORDER] = strip
