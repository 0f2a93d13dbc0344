"""A sweep over guidance scales: which arms it holds, and what they are compared with."""

import matplotlib.image
import numpy as np

from recap_steam.report.guidance_sweep import draw_sweeps, sweep, sweep_table
from recap_steam.report.results import Arm
from recap_steam.report.tables import MISSING
from recap_steam.report.verdict import summarise


def arm(policy: str, scale: float | None, successes: int) -> Arm:
    return Arm(policy, scale, np.arange(20), np.arange(20) < successes, np.full(20, 30))


SUMMARIES = summarise([arm("start", None, 5), arm("recap", 2.0, 19), arm("recap", 1.0, 9), arm("steam", 1.0, 9)], fps=16)


def test_scales_ascend_and_a_single_one_is_no_sweep():
    found = sweep(SUMMARIES)
    assert list(found) == ["recap"]
    assert [item.arm.guidance_scale for item in found["recap"]] == [1.0, 2.0]


def test_differences_are_to_the_least_scale():
    table = sweep_table(sweep(SUMMARIES))
    first, second = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (first["guidance"], first["difference, points"], first["p"]) == ("1", "reference", MISSING)
    assert (second["success rate"], second["difference, points"], second["p"]) == ("95 %", "+50", "0.002")  # 10 of 10: 2 / 1024


def test_a_policy_without_a_sweep_draws_nothing_and_one_with_draws_it(tmp_path):
    draw_sweeps(tmp_path / "none.png", {})
    draw_sweeps(tmp_path / "one.png", {"paired": (0.25, sweep(SUMMARIES))})
    heights = [matplotlib.image.imread(tmp_path / f"{name}.png").shape[0] for name in ("none", "one")]
    assert heights == [150, 510]
