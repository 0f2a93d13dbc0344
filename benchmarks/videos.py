"""What a video of an episode costs: curves drawn once and a marker copied into them, against Matplotlib drawing every frame.

`python benchmarks/videos.py` prints the table. Both ways get the same images and use the same encoder; the slow one draws the same
figure once, too, and then only moves its artists, which is the quickest that Matplotlib's own animations do. Seconds are of the processor;
a ratio is the median of those within the rounds, each of which takes both ways one after the other.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from reporting import machine, target
from tabulate import tabulate

from recap_steam.report.episode_curves import EpisodeCurves, draw_curves
from recap_steam.report.style import GREEN, new_figure, styled
from recap_steam.report.videos import BORDER, CURVES, DPI, GAP, HEADER, WIDTH, compose, write_video

LIMIT = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=300, help="frames of the episode")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    curves, images = made_up(args.length)
    ways = {"curves once, marker by NumPy": compose, "every frame by Matplotlib": draw_each}
    times: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name, way in ways.items():
                started = time.process_time()
                write_video(Path(folder) / "video.mp4", way(curves, iter(images)), curves.fps)
                times[name].append(time.process_time() - started)
    print(f"{machine()}, median of {args.rounds} rounds\n\n{report(times, args.length)}")


def made_up(length: int) -> tuple[EpisodeCurves, list[tuple[np.ndarray, np.ndarray]]]:
    """An episode with two cameras of 480 x 640, whose pictures move."""
    rng = np.random.default_rng(0)
    value, score = np.cumsum(rng.normal(0, 0.02, length)), rng.normal(0, 0.1, length)
    curves = EpisodeCurves(
        title="tag, data: episode 0, success",
        task="open the drawer",
        fps=30.0,
        quantity="advantage, normalised return",
        lines={"value": value, "return": np.linspace(-1, 0, length)},
        unit="normalised return",
        band=None,
        score=score,
        threshold=np.zeros(length),
        reached=score > 0,
        positive=score > 0,
        intervention=np.arange(length) > 0.8 * length,
        limits={"score": (-0.5, 0.5), "lines": (-1.2, 1.2)},
    )
    scene = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
    return curves, [(np.roll(scene, 2 * step, 1), np.roll(scene, step, 0)) for step in range(length)]


@styled
def draw_each(curves: EpisodeCurves, images: Iterator[tuple[np.ndarray, ...]]) -> Iterator[np.ndarray]:
    """The same pictures by Matplotlib: cameras, title and marker are artists that every frame changes."""
    camera = (WIDTH - 3 * GAP) // 2
    total = HEADER + camera * 3 // 4 // 2 * 2 + 2 * GAP + CURVES
    figure = new_figure(total / DPI, WIDTH / DPI)
    figure.set_dpi(DPI)
    figure.set_layout_engine("none")
    canvas = FigureCanvasAgg(figure)
    figure.text(0.01, 1 - 8 / total, curves.title, fontsize=13, weight="bold", va="top")
    caption = figure.text(0.01, 1 - 57 / total, "", va="top", fontsize=12)
    cameras = [figure.add_axes(((GAP + n * (camera + GAP)) / WIDTH, 352 / total, camera / WIDTH, camera * 0.75 / total)) for n in (0, 1)]
    upper, lower = (figure.add_axes((0.095, bottom / total, 0.89, 105 / total)) for bottom in (195, 50))
    draw_curves(upper, lower, curves)
    lines = [axis.axvline(0, linewidth=1.5) for axis in (upper, lower)]
    shown = None
    for step, row in enumerate(images):
        shown = shown or [axis.imshow(image) for axis, image in zip(cameras, row, strict=True)]
        for axis, artist, image in zip(cameras, shown, row, strict=True):
            artist.set_data(image)
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set(visible=bool(curves.reached[step]), color=GREEN, linewidth=BORDER)
        for line in lines:
            line.set_xdata([step, step])
        caption.set_text(f"frame {step}: advantage {curves.score[step]:+.3f}")
        canvas.draw()
        yield np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def report(times: dict[str, list[float]], length: int) -> str:
    rows = [[name, f"{length / statistics.median(seconds):.0f}"] for name, seconds in times.items()]
    head = ["two cameras of 480 x 640, as H.264", "frames per CPU second"]
    table = tabulate(rows, head, tablefmt="github", disable_numparse=True)
    quick, slow = times.values()
    ratio = statistics.median(b / a for a, b in zip(quick, slow, strict=True))
    return f"{table}\n\n{target('times faster than drawing every frame', ratio, LIMIT, at_least=True)}"


if __name__ == "__main__":
    main()
