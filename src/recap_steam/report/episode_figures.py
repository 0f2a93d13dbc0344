"""An episode on one page: key frames of every camera, and the curves below them."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from recap_steam.report.episode_curves import EpisodeCurves, draw_curves
from recap_steam.report.style import BLACK, GREEN, GREY, WIDTH, as_written, new_figure, save, styled

LEFT, RIGHT, TOP, GAP = 0.85, 0.15, 0.62, 0.08  # inches
CURVES = 1.35, 1.5  # heights of the two panels, inches
CAPTION, BETWEEN, BOTTOM = 0.16, 0.34, 0.55


def key_steps(length: int) -> list[int]:
    """The frames at 0, 1/4, 1/2, 3/4 of the episode and its last."""
    return np.unique(np.linspace(0, length - 1, 5).round().astype(int)).tolist()


@styled
def draw_episode(path: Path, curves: EpisodeCurves, images: dict[str, list[np.ndarray]]) -> None:
    """Draw ``images``, by camera those of ``key_steps``, (H, W, 3) uint8; the frames above the threshold are outlined."""
    steps = key_steps(len(curves.score))
    width = (WIDTH - LEFT - RIGHT - 4 * GAP) / 5
    heights = [width * max(image.shape[0] / image.shape[1] for image in row) for row in images.values()]
    figure = new_figure(TOP + sum(heights) + GAP * len(heights) + CAPTION + sum(CURVES) + 2 * BETWEEN + BOTTOM)
    figure.set_layout_engine("none")  # every place is known
    figure.text(0.01, 1 - 0.08 / figure.get_figheight(), curves.title, fontsize=12, weight="bold", va="top")
    figure.text(0.01, 1 - 0.33 / figure.get_figheight(), as_written(curves.task, 120), color=BLACK, va="top")
    top = TOP
    for height, (camera, row) in zip(heights, images.items(), strict=True):
        for number, image in enumerate(row):
            _draw_image(figure, image, (LEFT + number * (width + GAP), top, width, height), bool(curves.reached[steps[number]]))
        _write(figure, LEFT - 0.1, top + height / 2, camera.removeprefix("observation.images."), rotation=90, ha="right", va="center")
        top += height + GAP
    for number, step in enumerate(steps):
        above = ", above" if curves.reached[step] else ""
        _write(figure, LEFT + number * (width + GAP) + width / 2, top + 0.02, f"frame {step}{above}", ha="center", va="top")
    top += CAPTION + BETWEEN
    upper, lower = (
        _axes(figure, LEFT, top + place, WIDTH - LEFT - RIGHT, h) for place, h in zip((0, CURVES[0] + BETWEEN), CURVES, strict=True)
    )
    draw_curves(upper, lower, curves)
    for axis in (upper, lower):
        for step in steps:
            axis.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
    save(figure, path)


def _draw_image(figure: Figure, image: np.ndarray, place: tuple[float, float, float, float], outlined: bool) -> None:
    axis = _axes(figure, *place)
    axis.imshow(image, aspect="equal")
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set(visible=outlined, color=GREEN, linewidth=4)


def _axes(figure: Figure, left: float, top: float, width: float, height: float):
    """Axes at a place in inches, from the top."""
    total = figure.get_figheight()
    return figure.add_axes((left / WIDTH, 1 - (top + height) / total, width / WIDTH, height / total))


def _write(figure: Figure, left: float, top: float, text: str, **style: object) -> None:
    figure.text(left / WIDTH, 1 - top / figure.get_figheight(), text, fontsize=9, color=BLACK, **style)
