"""The experiment's report: one HTML page, its figures beside it, and the same tables as plain text. All local: no network, no script."""

import dataclasses
from pathlib import Path

import jinja2
from tabulate import tabulate

from recap_steam.config import Experiment
from recap_steam.files import atomic_output
from recap_steam.report import critic_scores, figures, provenance, series, tables, training_figures, verdict
from recap_steam.report.results import Results
from recap_steam.report.tables import Table
from recap_steam.report.verdict import ArmSummary
from recap_steam.simulation.environments import frames_per_second

TEMPLATE = Path(__file__).with_name("page.html")

SUCCESS_NOTE = (
    "Every arm starts from the same initial states. Intervals of rates: Wilson. Differences: to the first arm, with Newcombe's paired "
    "interval. p: exact McNemar test, two-sided, as computed. A difference is called significant when p is below 0.05 divided by the "
    "number of arms compared with the first. Successes per simulated hour count the time of failures too."
)
CRITIC_NOTE = (
    "The time-only and the constant predictor see no image: the training targets by time in the episode, and all of them. A critic that "
    "does not beat the time-only predictor has learned nothing about outcomes that a clock does not know. A critic that is much better on "
    "training frames than held out over-fits; that is said here where the gap is more than a fifth of the held-out error. Held-out data "
    "that are harder than the training data widen it, too. Bin accuracy: the most likely bin is the target's; bins are narrow, so it is "
    "low. Success AUC: the chance that the value ranks a frame of a success above one of a failure at the same tenth of the episode, mean "
    "over the tenths. All numbers: evaluation.json."
)
LABEL_NOTE = (
    "A frame is positive when its advantage reaches the threshold, when it belongs to a demonstration, or, by option, to an intervention."
)
POLICY_NOTE = (
    "Loss: flow-matching error in normalised action units, mean over the last tenth of training; the next two are of fixed frames and "
    "noise at the last evaluation. Indicator dropped: the realised rate among the samples that could show it. Flip test: mean distance (L2 "
    "a step, normalised action units) between the actions sampled with the positive indicator and without, for the same frames and noise, "
    "beside the distance between two noises without it; 0 means that the indicator is ignored."
)
BRANCH_NOTE = "All training samples by their label and by what their prompt showed of it; loss as above, over the samples of the branch."
STAGE_NOTE = (
    "What the experiment file assigns; a stage reads no other dataset. Checked before anything runs: held-out datasets are not trained on, "
    "and no initial state of an evaluation or of a collected held-out dataset occurs in training data collected on the same task."
)
LINEAGE_NOTE = "Each artefact states what made it; every consumer checks this before use. Digests are SHA-256, first 12 digits."


@dataclasses.dataclass(frozen=True)
class Block:
    """A heading, sentences, a table, a figure and a note, each optional, in this order."""

    heading: str = ""
    sentences: list[str] = dataclasses.field(default_factory=list)
    table: Table | None = None
    figure: str = ""
    alt: str = ""
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
    sections = [section for section in _sections(results, evaluations, shown) if section.blocks]
    sentences = [sentence for tag, summaries in evaluations.items() for sentence in verdict.sentences(tag, summaries)]
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


def _sections(results: Results, evaluations: dict[str, list[ArmSummary]], shown: set[str]) -> list[Section]:
    return [
        Section("evaluation", "Evaluation", _evaluation_blocks(evaluations)),
        Section("critic", "Critic", _critic_blocks(results, shown)),
        Section("labels", "Labels", _label_blocks(results)),
        Section("policies", "Policies", _policy_blocks(results, shown)),
        Section("data", "Data", _data_blocks(results)),
        Section("lineage", "Lineage", _blocks(provenance.lineage_table(results), note=LINEAGE_NOTE)),
    ]


def _evaluation_blocks(evaluations: dict[str, list[ArmSummary]]) -> list[Block]:
    blocks = []
    for tag, summaries in evaluations.items():
        blocks.append(Block(tag, table=tables.success_table(summaries)))
        if len(summaries) > 2:
            pairs = verdict.pairs([summary.arm for summary in summaries])
            blocks.append(Block(f"{tag}: every pair of arms", table=tables.pairs_table(pairs)))
    if blocks:
        blocks.insert(0, Block(figure="success.png", alt="Success rate by arm with 95 % intervals", note=SUCCESS_NOTE))
    return blocks


def _critic_blocks(results: Results, shown: set[str]) -> list[Block]:
    scores = critic_scores.critic_table(results)
    blocks = [Block(sentences=critic_scores.gap_sentences(results), table=scores, note=CRITIC_NOTE)] if scores.rows else []
    alt = "Mean return by tenth of predicted value, and AUC of the value for success over the tenths of an episode"
    blocks += _figure("Calibration and success", "critic_evaluation.png", alt, shown)
    groups = {group: critic_scores.group_table(results, group) for group in ("outcome", "task")}
    blocks += [Block(f"By {group}", table=table) for group, table in groups.items() if table.rows]
    blocks += _figure("Learning curves", "critic_training.png", "Loss and error, held out and on training frames", shown)
    return blocks + _figure("Value over an episode", "values.png", "Value and return over two episodes", shown, series.EPISODE_RULE)


def _label_blocks(results: Results) -> list[Block]:
    blocks = _blocks(tables.labels_table(results), note=LABEL_NOTE)
    if blocks:
        blocks.append(Block("Advantage", figure="advantages.png", alt="Distribution of the advantage by outcome, with threshold"))
        blocks.append(Block("Positive labels", figure="positive_rate.png", alt="Share of positive labels by dataset and outcome"))
    return blocks


def _policy_blocks(results: Results, shown: set[str]) -> list[Block]:
    blocks = _blocks(tables.policy_table(results), note=POLICY_NOTE)
    branches = tables.branch_table(results)
    if branches.rows:
        blocks.append(Block("By branch", table=branches, note=BRANCH_NOTE))
    return blocks + _figure("Learning curves", "policy_training.png", "Loss, loss by branch and flip test over optimiser steps", shown)


def _data_blocks(results: Results) -> list[Block]:
    blocks = _blocks(provenance.data_table(results))
    return [*blocks, Block("Which data feeds which stage", table=provenance.stage_table(results), note=STAGE_NOTE)] if blocks else []


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
