"""What ensembles of progress critics learned, beside a predictor without eyes, from which data, and where their members came from."""

from collections.abc import Iterator

from recap_steam.report.results import Results
from recap_steam.report.tables import MISSING, Table, number

METRICS = {
    "loss": "loss, nats",
    "accuracy": "bin accuracy",
    "accuracy_neighbor": "within a bin",
    "signed_progress_mean": "mean score",
    "progress_value_mean": "mean probability of forward",
}
PREDICTORS = {
    "eval": "mean of the members, held out",
    "baseline_majority": "majority, held out",
    "eval_train": "mean of the members, training pairs",
}
GROUP_METRICS = {
    "loss, nats": "eval/loss",
    "loss, majority": "baseline_majority/loss",
    "bin accuracy": "eval/accuracy",
    "bin accuracy, majority": "baseline_majority/accuracy",
    "within a bin": "eval/accuracy_neighbor",
    "within a bin, majority": "baseline_majority/accuracy_neighbor",
    "mean score": "eval/signed_progress_mean",
}


def ensemble_table(results: Results) -> Table:
    """Metrics of every ensemble, mean and by member, beside the predictor that says what was most frequent in training."""
    rows = []
    for tag, evaluation in results.evaluations(results.ensembles):
        members = [name.removesuffix("/eval/loss") for name in evaluation if name.endswith("/eval/loss")]
        sources = PREDICTORS | {f"{member}/eval": f"member {member.removeprefix('member')}, held out" for member in members}
        for source, name in sources.items():
            values = [evaluation.get(f"{source}/{metric}") for metric in METRICS]
            if any(value is not None for value in values):
                rows.append([tag, name, *map(number, values)])
    return Table(["critic", "predictor", *METRICS.values()], rows)


def outcome_table(results: Results) -> Table:
    """Held-out metrics of every ensemble for all pairs of each outcome."""
    rows = []
    for tag, evaluation in results.evaluations(results.ensembles):
        for outcome in ("failure", "success"):
            values = [evaluation.get(f"{metric}/outcome={outcome}") for metric in GROUP_METRICS.values()]
            if any(value is not None for value in values):
                rows.append([tag, outcome, *map(number, values)])
    return Table(["critic", "outcome", *GROUP_METRICS], rows)


def sentences(results: Results) -> list[str]:
    """Of every ensemble: whether it beats the majority, and whether it learned from rollouts."""
    lines = [line for tag, evaluation in results.evaluations(results.ensembles) if (line := _judgement(tag, evaluation))]
    for tag, records in _records(results):
        rollouts = sorted({name for record in records for name in record["parameters"]["rollouts"]})
        if rollouts:
            lines.append(
                f"{tag}: members were trained on rollouts ({', '.join(rollouts)}). There frames follow each other in time whether or not "
                "the task gets done, so the scores may take mere motion for progress."
            )
    return lines


def _judgement(tag: str, evaluation: dict[str, float | None]) -> str | None:
    members, majority = (evaluation.get(f"{source}/accuracy") for source in ("eval", "baseline_majority"))
    if members is None or majority is None:
        return None
    verdict = "the members beat it" if members > majority else "the members do not beat it: they have learned no order of frames"
    return f"{tag}: bin accuracy {members:.3f} held out, majority {majority:.3f}: {verdict}."


def members_table(results: Results) -> Table:
    """Where the members of every ensemble came from and what each learned from."""
    rows = []
    for tag, records in _records(results):
        manifest = results.document("critics", tag, "merge_manifest.json")["members"]
        for place, record in enumerate(records):
            entry, parameters = manifest[str(place)], record["parameters"]
            rows.append(
                [
                    tag,
                    str(place),
                    entry["raw"] if results.ensembles[tag].members else "trained here",
                    f"{record['tag']}, member {parameters['member']}, seed {parameters['seed']}",
                    ", ".join(parameters["datasets"]),
                    ", ".join(parameters["rollouts"]) or MISSING,
                    entry["digest"][:12],
                ]
            )
    return Table(["critic", "member", "given as", "trained as", "trained on", "of these rollouts", "weights"], rows)


def _records(results: Results) -> Iterator[tuple[str, list[dict]]]:
    """(ensemble, lineage record of each member)."""
    for tag in results.ensembles:
        lineage = results.document("critics", tag, "lineage.json")
        if lineage:
            yield tag, lineage["parameters"]["members"]
