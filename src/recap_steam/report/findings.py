"""Everything that the experiment's page is made from, read and computed once."""

import dataclasses
from pathlib import Path

from recap_steam.report import controls
from recap_steam.report.label_report import LabelReport
from recap_steam.report.results import Results
from recap_steam.report.rule_graph import RuleGraph
from recap_steam.report.run_times import RunTime
from recap_steam.report.verdict import ArmSummary


@dataclasses.dataclass(frozen=True)
class Findings:
    """``drawn``: the figures that have something to show, by file name."""

    results: Results
    evaluations: dict[str, list[ArmSummary]]
    labels: list[LabelReport]
    graph: RuleGraph
    times: list[RunTime]
    drawn: dict[str, Path]

    def comparisons(self, evaluation: str) -> list[controls.Comparison]:
        """The arms that differ in one thing."""
        return controls.comparisons(self.results.experiment, [summary.arm for summary in self.evaluations[evaluation]])
