"""Rule render_arm: the first episodes of an evaluated arm as videos, with the value that a critic gives each frame.

An evaluation keeps no pictures. An episode is a function of policy, seed and its neighbours in the batch, so it is run again, and compared
with what was recorded. All arms show the same initial states.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import MaxNLocator
from PIL import ImageFont

from recap_steam.config import Experiment, arm_name
from recap_steam.errors import UserError, rerun
from recap_steam.files import atomic_output
from recap_steam.report import videos
from recap_steam.report.style import BLUE, as_written, new_figure, styled
from recap_steam.report.videos import Canvas
from recap_steam.simulation.controllers import open_controller
from recap_steam.simulation.environments import frames_per_second
from recap_steam.simulation.rollout import Episode, roll_out

if TYPE_CHECKING:
    from recap_steam.serving.live import LiveValue

CURVE = 200  # pixels, of the panel below the camera


@dataclasses.dataclass(frozen=True)
class ValueTrace:
    """An evaluated episode of T frames: ``value`` (T,) on the critic's scale, drawn between ``limits``."""

    title: str
    task: str
    fps: float
    value: np.ndarray
    limits: tuple[float, float]


def arm_videos_stage(
    experiment: Experiment,
    evaluation: str,
    policy: str,
    policy_dir: Path | None,
    guidance_scale: float | None,
    critic_dir: Path,
    rows: Path,
    output_dir: Path,
) -> None:
    """Write ``episode_{episode}.mp4`` of the first ``diagnostics.num_episodes`` episodes of an arm into ``output_dir``.

    Args:
        critic_dir: folder of a value critic that sees the environment's cameras.
        rows: what was recorded of the arm.

    Raises:
        UserError: an episode ran otherwise than was recorded.
    """
    from recap_steam.serving.live import LiveValue  # imports torch, which nothing else of a report needs

    config = experiment.evaluations[evaluation]
    environment = experiment.environments[config.environment]
    critic, shown = LiveValue(critic_dir), experiment.diagnostics.num_episodes
    recorded = pq.read_table(rows, columns=["episode", "success", "num_frames"]).sort_by("episode").to_pylist()
    with open_controller(policy, policy_dir, environment, guidance_scale, config.through_server) as controller:
        rollouts = roll_out(environment, controller, seed=config.seed, num_episodes=config.num_episodes, record_images=True)
        for row, episode in zip(recorded[:shown], rollouts, strict=False):
            if (episode.success, episode.num_frames) != (row["success"], row["num_frames"]):
                raise UserError(f"{rows}: episode {episode.episode} runs otherwise than is recorded there; {rerun('evaluate_policy')}")
            outcome = "success" if episode.success else "failure"
            title = f"{evaluation}, {arm_name(policy, guidance_scale)}: episode {episode.episode} (seed {episode.seed}), {outcome}"
            trace = ValueTrace(title, environment.prompt, frames_per_second(environment), *_values(critic, episode, environment.prompt))
            with atomic_output(output_dir / f"episode_{episode.episode:06d}.mp4") as path:
                videos.write_video(path, compose(trace, episode.images), trace.fps)


def _values(critic: "LiveValue", episode: Episode, prompt: str) -> tuple[np.ndarray, tuple[float, float]]:
    """The critic's value of every frame, (T,), and between which two all its values are."""
    judge, support = critic.follow(), critic.card.architecture.support
    frames = ({camera: seen[step][None] for camera, seen in episode.images.items()} for step in range(episode.num_frames))
    return np.array([judge(frame, prompt, step)["value"] for step, frame in enumerate(frames)]), (support.v_min, support.v_max)


def compose(trace: ValueTrace, images: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Pictures (H, W, 3) uint8 of the video of ``images``, by camera (T, S, S, 3) uint8."""
    canvas = draw_canvas(trace, [seen.shape[1:3] for seen in images.values()])
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 17)
    for step, shown in enumerate(zip(*images.values(), strict=True)):
        picture = canvas.picture.copy()
        videos.put_cameras(picture, canvas.cameras, shown, outlined=False)
        videos.put_marker(picture, canvas, step)
        videos.put_text(picture, f"frame {step} of {len(trace.value)}, {step / trace.fps:.1f} s: value {trace.value[step]:+.3f}", font)
        yield picture


@styled
def draw_canvas(trace: ValueTrace, shapes: list[tuple[int, int]]) -> Canvas:
    """Draw title and curve, and leave room for cameras with images of ``shapes`` (height, width)."""
    height = videos.camera_height(shapes)
    total = videos.HEADER + height + 2 * videos.GAP + CURVE
    figure = new_figure(total / videos.DPI, videos.WIDTH / videos.DPI)
    figure.set_dpi(videos.DPI)
    figure.set_layout_engine("none")
    figure.text(0.01, 1 - 8 / total, trace.title, fontsize=13, weight="bold", va="top")
    figure.text(0.01, 1 - 33 / total, as_written(trace.task, 120), va="top")
    axis = figure.add_axes((0.095, 50 / total, 0.89, 130 / total))
    axis.plot(trace.value, color=BLUE, linewidth=1.8)
    axis.set(ylabel="value", ylim=trace.limits, xlim=(-0.5, len(trace.value) - 0.5))
    axis.set_xlabel(f"frame of the episode ({trace.fps:g} a second)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture, box = np.ascontiguousarray(np.array(canvas.buffer_rgba())[..., :3]), axis.get_window_extent()
    across, up = videos.pixels(axis, trace.value, total)
    return Canvas(picture, (videos.HEADER, height), across, [up], [slice(int(total - box.y1), int(total - box.y0))])
