"""The sections of the experiment's page: which tables and figures stand where. A section without results has no blocks."""

from recap_steam.report import (
    critic_scores,
    ensemble_scores,
    guidance_sweep,
    label_tables,
    ledger,
    notes,
    predicted_returns,
    provenance,
    run_times,
    series,
    tables,
    verdict,
)
from recap_steam.report.document import Block, Section
from recap_steam.report.findings import Findings
from recap_steam.report.results import Results
from recap_steam.report.rule_graph import draw_rule_graph
from recap_steam.report.tables import Table

DIAGNOSTICS = {  # by file, what is to be seen; episodes follow
    "advantage_distribution.png": "Advantages, values and returns",
    "distribution.png": "Scores by outcome",
    "members.png": "Scores by member",
    "uncertainty.png": "Mean and variance of the members",
    "positive_rate_per_episode.png": "Positive frames by episode",
    "timeline_episodes.png": "Episodes at even ranks of disagreement",
}


def sections(findings: Findings) -> list[Section]:
    results = findings.results
    return [
        Section("evaluation", "Evaluation", _evaluation(findings)),
        Section("rounds", "Rounds", _rounds(findings)),
        Section("critic", "Critic", _value_critics(findings) + _progress_critics(findings)),
        Section("labels", "Labels", _labels(findings) + _diagnostics(results)),
        Section("policies", "Policies", _policies(findings)),
        Section("data", "Data", _data(results)),
        Section("workflow", "Workflow", _workflow(findings)),
        Section("lineage", "Lineage", _table(provenance.lineage_table(results), "What made every file", notes.LINEAGE, folded=True)),
    ]


def _evaluation(findings: Findings) -> list[Block]:
    blocks = _figure(findings, "success.png", "Success rate by arm with 95 % intervals", note=notes.SUCCESS)
    for tag, summaries in findings.evaluations.items():
        note = notes.STOPPED if summaries[0].arm.may_stop else ""
        blocks.append(Block(tag, table=tables.success_table(summaries), note=note))
        one_thing = tables.controls_table(findings.comparisons(tag))
        blocks += _table(one_thing, f"{tag}: arms that differ in one thing", notes.CONTROL)
        if len(summaries) > 2:
            pairs = verdict.pairs([summary.arm for summary in summaries])
            blocks += _table(tables.pairs_table(pairs), f"{tag}: every pair of arms", folded=True)
        blocks += _table(guidance_sweep.sweep_table(guidance_sweep.sweep(summaries)), f"{tag}: guidance", notes.GUIDANCE)
    return blocks + _figure(findings, "guidance.png", "Success rate over guidance scale with 95 % intervals", "Guidance")


def _rounds(findings: Findings) -> list[Block]:
    found = list(ledger.ledgers(findings.results, findings.evaluations, findings.labels))
    blocks = [Block(heading, table=table) for heading, table in found]
    return [*blocks, Block(note=notes.LEDGER)] if blocks else []


def _value_critics(findings: Findings) -> list[Block]:
    results = findings.results
    scores = critic_scores.critic_table(results)
    blocks = [Block(sentences=critic_scores.gap_sentences(results), table=scores, note=notes.CRITIC)] if scores.rows else []
    alt = "Mean return by tenth of predicted value, and AUC of the value for success over the tenths of an episode"
    blocks += _figure(findings, "critic_evaluation.png", alt, "Calibration and success")
    alt = "Histogram of predicted against true return, over all frames, by outcome and by task"
    blocks += _figure(findings, "predicted_returns.png", alt, "Predicted against true return", predicted_returns.RULE)
    for group in ("outcome", "task"):
        blocks += _table(critic_scores.group_table(results, group), f"By {group}")
    blocks += _figure(findings, "critic_training.png", "Loss and error, held out and on training frames", "Learning curves")
    return blocks + _figure(findings, "values.png", "Value and return over two episodes", "Value over an episode", series.EPISODE_RULE)


def _progress_critics(findings: Findings) -> list[Block]:
    results = findings.results
    scores, members = ensemble_scores.ensemble_table(results), ensemble_scores.members_table(results)
    blocks = []
    if scores.rows or members.rows:
        blocks.append(Block("Progress critics", sentences=ensemble_scores.sentences(results), table=scores, note=notes.ENSEMBLE))
    blocks += _table(ensemble_scores.outcome_table(results), "Progress critics: by outcome, all pairs")
    blocks += _table(members, "Progress critics: members", folded=True)
    alt = "Loss, accuracy and mean score of every member over optimiser steps"
    return blocks + _figure(findings, "ensemble_training.png", alt, "Progress critics: learning curves")


def _labels(findings: Findings) -> list[Block]:
    reports = findings.labels
    blocks = _table(label_tables.labels_table(reports), note=notes.LABEL)
    blocks += _table(label_tables.score_labels_table(findings.results, reports), note=notes.SCORE)
    if blocks:
        blocks.append(Block(note=notes.THRESHOLD))
    alt = "Distribution of the advantage or score by outcome, with threshold"
    blocks += _figure(findings, "advantages.png", alt, "What labels are drawn from")
    blocks += _table(provenance.imports_table(findings.results), "Imported, without lineage", notes.IMPORT)
    blocks += _figure(findings, "positive_rate.png", "Share of positive labels by dataset and outcome", "Positive labels")
    alt = "Share of positive labels by dataset, outcome and tenth of the episode"
    blocks += _figure(findings, "positive_rate_over_time.png", alt, "Positive labels over the time of an episode", notes.OVER_TIME)
    blocks += _table(label_tables.forced_table(reports), "Labels that are forced", notes.FORCED)
    return blocks + _table(label_tables.agreement_table(reports), "Agreement of labels", notes.AGREEMENT)


def _diagnostics(results: Results) -> list[Block]:
    """How each critic judged each dataset."""
    blocks = []
    for folder in results.diagnostics():
        shown = {caption: folder / name for name, caption in DIAGNOSTICS.items() if (folder / name).exists()}
        shown |= {path.stem.replace("_", " "): path for path in sorted((folder / "episodes").glob("*.png"))}
        blocks.append(Block(f"How {folder.parent.name} judged {folder.name}", figures=shown, folded=True))
    return blocks


def _policies(findings: Findings) -> list[Block]:
    results = findings.results
    blocks = _table(tables.policy_table(results), note=notes.POLICY)
    blocks += _table(tables.branch_table(results), "By branch", notes.BRANCH)
    alt = "Loss, loss by branch and flip test over optimiser steps"
    return blocks + _figure(findings, "policy_training.png", alt, "Learning curves")


def _data(results: Results) -> list[Block]:
    blocks = _table(provenance.data_table(results))
    return blocks + _table(provenance.stage_table(results), "Which data feeds which stage", notes.STAGE) if blocks else []


def _workflow(findings: Findings) -> list[Block]:
    drawing = draw_rule_graph(findings.graph, run_times.notes(findings.times))
    blocks = [Block("Rules, and what reads what", drawing=drawing, note=notes.GRAPH)] if drawing else []
    blocks += _table(run_times.by_rule(findings.times), "Run times", notes.TIMES)
    return blocks + _table(run_times.by_job(findings.times), "Run times of every job", folded=True)


def _table(table: Table, heading: str = "", note: str = "", folded: bool = False) -> list[Block]:
    return [Block(heading, table=table, note=note, folded=folded)] if table.rows else []


def _figure(findings: Findings, name: str, alt: str, heading: str = "", note: str = "") -> list[Block]:
    return [Block(heading, figures={alt: findings.drawn[name]}, note=note)] if name in findings.drawn else []
