"""The style of every figure: readable for the colour-blind (Okabe-Ito palette) and in grey print (lines and markers differ, too)."""

from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

BLACK, BLUE, SKY, GREEN, ORANGE, VERMILION, GREY = "#222222", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#8A8F98"
CYCLE = (BLUE, VERMILION, GREEN, ORANGE, SKY, GREY)
LINES = ("-", "--", "-.", ":")  # beside CYCLE
GROUPS = {"demonstration": GREY, "success": BLUE, "failure": VERMILION, "intervention": GREEN}
GROUP_LINES = {"demonstration": "-", "success": "-", "failure": (0, (4, 1)), "intervention": (0, (1, 1))}
GROUP_MARKERS = {"demonstration": "o", "success": "o", "failure": "x", "intervention": "^"}
# Fonts with Chinese, Japanese and Korean characters, for task texts: Matplotlib's own has none, and takes what is installed of these.
CJK = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "Microsoft YaHei", "PingFang SC")
STYLE = {
    "font.family": ["DejaVu Sans", *(name for name in CJK if name in font_manager.get_font_names())],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": BLACK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E8EB",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.1,  # inches: a panel's title stands clear of the numbers above it
    "savefig.dpi": 150,
}
styled = matplotlib.rc_context(STYLE)  # a decorator: the style holds inside the function only
WIDTH = 9.0  # inches: 1350 pixels, the width of the page on a dense display


def new_figure(height: float, width: float = WIDTH) -> Figure:
    return Figure(figsize=(width, height))  # no pyplot: no global state, no display


def as_written(text: str, width: int) -> str:
    """A text of a dataset, such as a task, as a figure shows it: one line of at most ``width`` characters, in which $ starts no formula."""
    line = " ".join(text.split())
    return (line if len(line) <= width else f"{line[: width - 1]}…").replace("$", r"\$")


@styled
def draw_nothing(path: Path, message: str) -> None:
    """The figure is a declared output, so it exists even when there is nothing to show."""
    figure = new_figure(1.0)
    figure.text(0.5, 0.5, message, ha="center", va="center", color=GREY)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    # no software version or date in the file: the same results give the same bytes
    figure.savefig(path, format="png", metadata={"Software": None})
