"""The experiment's report: one HTML page, its figures beside it, and the same tables as plain text. All local: no network, no script."""

import dataclasses
import os
from pathlib import Path

import jinja2
from tabulate import tabulate

from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.report import (
    controls,
    critic_scores,
    ensemble_scores,
    figures,
    label_tables,
    notes,
    provenance,
    series,
    tables,
    training_figures,
    verdict,
)
from recap_steam.report.results import Results
from recap_steam.report.tables import Table
from recap_steam.report.verdict import ArmSummary
from recap_steam.simulation.environments import frames_per_second

DIAGNOSTICS = {  # by file, what is to be seen
    "distribution.png": "Scores by outcome",
    "members.png": "Scores by member",
    "uncertainty.png": "Mean and variance",
    "positive_rate_per_episode.png": "Positive by episode",
    "timeline_episodes.png": "Episodes",
}
TEMPLATE = Path(__file__).with_name("page.html")


@dataclasses.dataclass(frozen=True)
class Block:
    """A heading, sentences, a table, a figure, small figures by caption, links by text and a note, each optional, in this order."""

    heading: str = ""
    sentences: list[str] = dataclasses.field(default_factory=list)
    table: Table | None = None
    figure: str = ""
    alt: str = ""
    gallery: dict[str, str] = dataclasses.field(default_factory=dict)
    links: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: list[Block]


def report_stage(experiment: Experiment, results_dir: Path, output_dir: Path) -> None:
    """Write index.html, summary.txt and the figures of whatever exists of the experiment into ``output_dir``; print the summary.

    Every figure is written even where there is nothing to show (it then says so), because each is a declared output.

    Raises:
        UserError: a result belongs to other data, or the arms of an evaluation to other initial states.
    """
    results = Results(experiment, results_dir)
    evaluations = {tag: summaries for tag in experiment.evaluations if (summaries := _summaries(results, tag))}
    shown = draw_figures(results, evaluations, output_dir)
    sections = [section for section in _sections(results, evaluations, shown, output_dir) if section.blocks]
    sentences = [sentence for tag, summaries in evaluations.items() for sentence in _verdict(results, tag, summaries)]
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    html = environment.from_string(TEMPLATE.read_text()).render(name=experiment.experiment, verdict=sentences, sections=sections)
    summary = plain_text(experiment.experiment, sentences, sections)
    for name, text in {"index.html": html, "summary.txt": summary}.items():
        with atomic_output(output_dir / name) as path:
            path.write_text(text)
    print(summary)


def draw_figures(results: Results, evaluations: dict[str, list[ArmSummary]], output_dir: Path) -> set[str]:
    """Draw every figure; return the names of those that have something to show."""
    drawings = {
        "success.png": (figures.draw_success, {tag: series.arm_points(summaries) for tag, summaries in evaluations.items()}),
        "critic_evaluation.png": (training_figures.draw_critics, critic_scores.critic_curves(results)),
        "critic_training.png": (training_figures.draw_training, series.training_panels(results, "critics")),
        "ensemble_training.png": (training_figures.draw_training, series.training_panels(results, "ensembles")),
        "values.png": (training_figures.draw_values, series.value_curves(results)),
        "advantages.png": (figures.draw_advantages, series.advantage_histograms(results)),
        "positive_rate.png": (figures.draw_positive_rate, series.positive_rates(results)),
        "policy_training.png": (training_figures.draw_training, series.training_panels(results, "policies")),
    }
    for name, (draw, data) in drawings.items():
        with atomic_output(output_dir / name) as path:
            draw(path, data)
    return {name for name, (_, data) in drawings.items() if data}


def _summaries(results: Results, evaluation: str) -> list[ArmSummary]:
    environment = results.experiment.environments[results.experiment.evaluations[evaluation].environment]
    return verdict.summarise(results.arms(evaluation), frames_per_second(environment))


def _verdict(results: Results, tag: str, summaries: list[ArmSummary]) -> list[str]:
    """What each arm gained over the reference, and what of it remains beside the arms that differ in one thing."""
    return verdict.sentences(tag, summaries) + controls.sentences(tag, _comparisons(results, summaries))


def _comparisons(results: Results, summaries: list[ArmSummary]) -> list[controls.Comparison]:
    return controls.comparisons(results.experiment, [summary.arm for summary in summaries])


def _sections(results: Results, evaluations: dict[str, list[ArmSummary]], shown: set[str], output_dir: Path) -> list[Section]:
    return [
        Section("evaluation", "Evaluation", _evaluation_blocks(results, evaluations)),
        Section("critic", "Critic", _critic_blocks(results, shown) + _ensemble_blocks(results, shown)),
        Section("labels", "Labels", _label_blocks(results) + _diagnostics_blocks(results, output_dir)),
        Section("policies", "Policies", _policy_blocks(results, shown)),
        Section("data", "Data", _data_blocks(results)),
        Section("lineage", "Lineage", _blocks(provenance.lineage_table(results), note=notes.LINEAGE)),
    ]


def _evaluation_blocks(results: Results, evaluations: dict[str, list[ArmSummary]]) -> list[Block]:
    blocks = []
    for tag, summaries in evaluations.items():
        blocks.append(Block(tag, table=tables.success_table(summaries)))
        if one_thing := _comparisons(results, summaries):
            blocks.append(Block(f"{tag}: arms that differ in one thing", table=tables.controls_table(one_thing), note=notes.CONTROL))
        if len(summaries) > 2:
            pairs = verdict.pairs([summary.arm for summary in summaries])
            blocks.append(Block(f"{tag}: every pair of arms", table=tables.pairs_table(pairs)))
    if blocks:
        blocks.insert(0, Block(figure="success.png", alt="Success rate by arm with 95 % intervals", note=notes.SUCCESS))
    return blocks


def _critic_blocks(results: Results, shown: set[str]) -> list[Block]:
    scores = critic_scores.critic_table(results)
    blocks = [Block(sentences=critic_scores.gap_sentences(results), table=scores, note=notes.CRITIC)] if scores.rows else []
    alt = "Mean return by tenth of predicted value, and AUC of the value for success over the tenths of an episode"
    blocks += _figure("Calibration and success", "critic_evaluation.png", alt, shown)
    groups = {group: critic_scores.group_table(results, group) for group in ("outcome", "task")}
    blocks += [Block(f"By {group}", table=table) for group, table in groups.items() if table.rows]
    blocks += _figure("Learning curves", "critic_training.png", "Loss and error, held out and on training frames", shown)
    return blocks + _figure("Value over an episode", "values.png", "Value and return over two episodes", shown, series.EPISODE_RULE)


def _ensemble_blocks(results: Results, shown: set[str]) -> list[Block]:
    scores, outcomes, members = (
        table(results) for table in (ensemble_scores.ensemble_table, ensemble_scores.outcome_table, ensemble_scores.members_table)
    )
    blocks = []
    if scores.rows or members.rows:
        blocks.append(Block("Progress critics", sentences=ensemble_scores.sentences(results), table=scores, note=notes.ENSEMBLE))
    blocks += [Block("Progress critics: by outcome, all pairs", table=outcomes)] if outcomes.rows else []
    blocks += [Block("Progress critics: members", table=members)] if members.rows else []
    alt = "Loss, accuracy and mean score of every member over optimiser steps"
    return blocks + _figure("Progress critics: learning curves", "ensemble_training.png", alt, shown)


def _label_blocks(results: Results) -> list[Block]:
    blocks = _blocks(label_tables.labels_table(results), note=notes.LABEL) + _blocks(
        label_tables.score_labels_table(results), note=notes.SCORE
    )
    if blocks:
        alt = "Distribution of the advantage or score by outcome, with threshold"
        blocks.append(Block("What labels are drawn from", figure="advantages.png", alt=alt))
        blocks.append(Block("Positive labels", figure="positive_rate.png", alt="Share of positive labels by dataset and outcome"))
    return blocks


def _diagnostics_blocks(results: Results, output_dir: Path) -> list[Block]:
    """How each ensemble judged each dataset: small, and linked to the figures."""
    blocks = []
    for folder in results.diagnostics():
        there = Path(os.path.relpath(folder, output_dir))
        gallery = {caption: str(there / name) for name, caption in DIAGNOSTICS.items()}
        links = {"summary.json": str(there / "summary.json")}
        blocks.append(Block(f"How {folder.parent.name} judged {folder.name}", gallery=gallery, links=links))
    return blocks


def _policy_blocks(results: Results, shown: set[str]) -> list[Block]:
    blocks = _blocks(tables.policy_table(results), note=notes.POLICY)
    branches = tables.branch_table(results)
    if branches.rows:
        blocks.append(Block("By branch", table=branches, note=notes.BRANCH))
    return blocks + _figure("Learning curves", "policy_training.png", "Loss, loss by branch and flip test over optimiser steps", shown)


def _data_blocks(results: Results) -> list[Block]:
    blocks = _blocks(provenance.data_table(results))
    return [*blocks, Block("Which data feeds which stage", table=provenance.stage_table(results), note=notes.STAGE)] if blocks else []


def _blocks(table: Table, note: str = "") -> list[Block]:
    return [Block(table=table, note=note)] if table.rows else []


def _figure(heading: str, name: str, alt: str, shown: set[str], note: str = "") -> list[Block]:
    return [Block(heading, figure=name, alt=alt, note=note)] if name in shown else []


def plain_text(name: str, sentences: list[str], sections: list[Section]) -> str:
    """The verdict, the sentences and every table but the lineage, for terminals and logs."""
    parts = [f"Experiment {name}"] + ["\n".join(f"* {sentence}" for sentence in sentences)] * bool(sentences)
    for section in sections:
        for block in section.blocks:
            parts += ["\n".join(f"* {sentence}" for sentence in block.sentences)] * bool(block.sentences)
            if block.table and section.anchor != "lineage":
                title = f"{section.title}: {block.heading}" if block.heading else section.title
                parts.append(f"{title}\n{tabulate(block.table.rows, block.table.head, disable_numparse=True)}")
    return "\n\n".join(parts) + "\n"
