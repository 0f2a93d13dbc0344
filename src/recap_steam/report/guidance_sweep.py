"""Policies that were evaluated at several guidance scales: what more guidance gave, as a table and as a figure."""

from pathlib import Path

from recap_steam.report.style import CYCLE, GREY, LINES, draw_nothing, new_figure, save, styled
from recap_steam.report.tables import MISSING, Table, difference_cells, percent
from recap_steam.report.verdict import ArmSummary, tested

Sweep = dict[str, list[ArmSummary]]  # by policy, its arms by ascending scale


def sweep(summaries: list[ArmSummary]) -> Sweep:
    """The arms of an evaluation's policies that have more than one guidance scale."""
    by_policy: Sweep = {}
    for summary in summaries:
        if summary.arm.guidance_scale is not None:
            by_policy.setdefault(summary.arm.policy, []).append(summary)
    return {policy: sorted(arms, key=lambda item: item.arm.guidance_scale) for policy, arms in by_policy.items() if len(arms) > 1}


def sweep_table(found: Sweep) -> Table:
    """One row a policy and scale; differences are to the policy's least scale."""
    head = ["policy", "guidance", "success rate", "95 % interval", "mean frames", "successes per simulated hour"]
    rows = []
    for policy, arms in found.items():
        for arm in arms:
            numbers = [percent(arm.rate), f"{100 * arm.low:.0f} to {percent(arm.high)}", f"{arm.mean_frames:.1f}"]
            test = ["reference", MISSING, MISSING] if arm is arms[0] else difference_cells(tested(arms[0].arm, arm.arm))
            rows.append([policy, f"{arm.arm.guidance_scale:g}", *numbers, f"{arm.successes_per_hour:,.0f}", *test])
    return Table([*head, "difference, points", "95 % interval", "p"], rows)


@styled
def draw_sweeps(path: Path, evaluations: dict[str, tuple[float, Sweep]]) -> None:
    """Success rate over guidance scale, a line a policy, one panel an evaluation; the dashed line is the rate of its reference arm."""
    if not evaluations:
        return draw_nothing(path, "No policy was evaluated at several guidance scales")
    figure = new_figure(3.4 * len(evaluations))
    axes = figure.subplots(len(evaluations), 1, squeeze=False)[:, 0]
    for axis, (tag, (reference, found)) in zip(axes, evaluations.items(), strict=True):
        axis.axhline(100 * reference, color=GREY, linestyle="--", linewidth=1)
        for number, (policy, arms) in enumerate(found.items()):
            scales, rates = [item.arm.guidance_scale for item in arms], [100 * item.rate for item in arms]
            ends = [[100 * (item.rate - item.low) for item in arms], [100 * (item.high - item.rate) for item in arms]]
            style = {"color": CYCLE[number % len(CYCLE)], "linestyle": LINES[number // len(CYCLE) % len(LINES)]}
            axis.errorbar(scales, rates, yerr=ends, marker="o", capsize=3, label=policy, **style)
        axis.set(title=tag, ylim=(-3, 103), ylabel="success rate, %")
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[-1].set_xlabel("guidance scale w (bar: Wilson 95 % interval; dashed: the evaluation's first arm)")
    save(figure, path)
