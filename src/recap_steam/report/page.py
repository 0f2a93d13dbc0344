"""Rule build_report: the experiment's page, its figures beside it, and the same tables as plain text. All local: no network, no script."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.report import (
    controls,
    critic_scores,
    figures,
    guidance_sweep,
    label_figures,
    label_tables,
    label_warnings,
    predicted_returns,
    series,
    training_figures,
    verdict,
)
from recap_steam.report.catalogue import write_catalogue
from recap_steam.report.document import Document
from recap_steam.report.findings import Findings
from recap_steam.report.label_report import LabelReport, label_reports
from recap_steam.report.results import Results
from recap_steam.report.rule_graph import read_rule_graph
from recap_steam.report.run_times import read_run_times
from recap_steam.report.sections import sections
from recap_steam.report.verdict import ArmSummary
from recap_steam.simulation.environments import frames_per_second

UNPRINTED = ("lineage", "workflow")  # sections that the plain text leaves out


def report_stage(
    experiment: Experiment, results_dir: Path, rule_graph: Path, logs_dir: Path, run_times: list[str], output_dir: Path
) -> None:
    """Write index.html, summary.txt and the figures of whatever exists of the experiment into ``output_dir``; print the summary.
    Renew the catalogue, too, which is no output: DuckDB's files differ from run to run.

    Every figure is written even where there is nothing to show (it then says so), because each is a declared output.

    Args:
        rule_graph: what ``snakemake --rulegraph`` printed.
        run_times: tables of run times below ``logs_dir``; those that are missing are left out.

    Raises:
        UserError: a result belongs to other data, or the arms of an evaluation to other initial states.
    """
    results = Results(experiment, results_dir)
    evaluations = {tag: summaries for tag in experiment.evaluations if (summaries := _summaries(results, tag))}
    labels = label_reports(results)
    drawn = draw_figures(results, evaluations, labels, output_dir)
    graph, times = read_rule_graph(rule_graph.read_text()), read_run_times(logs_dir, run_times)
    findings = Findings(results, evaluations, labels, graph, times, drawn)
    page = Document(
        title=f"Experiment {experiment.experiment}",
        subtitle="What came out of this experiment, computed from its files and nothing else.",
        findings=[sentence for tag in evaluations for sentence in _verdict(findings, tag)],
        warnings=label_warnings.warnings(results, labels),
        sections=sections(findings),
    )
    summary = page.text(UNPRINTED)
    for name, text in {"index.html": page.html(), "summary.txt": summary}.items():
        with atomic_output(output_dir / name) as path:
            path.write_text(text)
    print(summary)
    for problem in write_catalogue(experiment, results_dir):
        print(f"note: {problem}", file=sys.stderr)


def _summaries(results: Results, evaluation: str) -> list[ArmSummary]:
    environment = results.experiment.environments[results.experiment.evaluations[evaluation].environment]
    return verdict.summarise(results.arms(evaluation), frames_per_second(environment))


def _verdict(findings: Findings, tag: str) -> list[str]:
    """What each arm gained over the reference, and what of it remains beside the arms that differ in one thing."""
    return verdict.sentences(tag, findings.evaluations[tag]) + controls.sentences(tag, findings.comparisons(tag))


def _sweeps(evaluations: dict[str, list[ArmSummary]]) -> dict[str, tuple[float, guidance_sweep.Sweep]]:
    """(success rate of the first arm, arms by policy) of the evaluations in which a policy has several guidance scales."""
    return {tag: (summaries[0].rate, found) for tag, summaries in evaluations.items() if (found := guidance_sweep.sweep(summaries))}


def draw_figures(
    results: Results, evaluations: dict[str, list[ArmSummary]], labels: list[LabelReport], output_dir: Path
) -> dict[str, Path]:
    """Draw every figure; return those that have something to show, by name."""
    drawings: dict[str, tuple[Callable[[Path, Any], None], Any]] = {
        "success.png": (figures.draw_success, {tag: series.arm_points(summaries) for tag, summaries in evaluations.items()}),
        "guidance.png": (guidance_sweep.draw_sweeps, _sweeps(evaluations)),
        "critic_evaluation.png": (training_figures.draw_critics, critic_scores.critic_curves(results)),
        "predicted_returns.png": (predicted_returns.draw_predicted_returns, predicted_returns.predicted_returns(results)),
        "critic_training.png": (training_figures.draw_training, series.training_panels(results, "critics")),
        "ensemble_training.png": (training_figures.draw_training, series.training_panels(results, "ensembles")),
        "values.png": (training_figures.draw_values, series.value_curves(results)),
        "advantages.png": (figures.draw_advantages, series.advantage_histograms(results)),
        "positive_rate.png": (figures.draw_positive_rate, series.positive_rates(results)),
        "positive_rate_over_time.png": (label_figures.draw_rates_over_time, label_tables.rates_over_time(labels)),
        "policy_training.png": (training_figures.draw_training, series.training_panels(results, "policies")),
    }
    for name, (draw, data) in drawings.items():
        with atomic_output(output_dir / name) as path:
            draw(path, data)
    return {name: output_dir / name for name, (_, data) in drawings.items() if data}
