"""Other labels from the advantages or scores that a tag already has: seconds, no model, and no file of the dataset itself is touched."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tabulate import tabulate

from recap_steam.errors import UserError
from recap_steam.labels.advantages import compute_advantages
from recap_steam.labels.decision import LabelConfig, counts_of, decide, thresholds_of
from recap_steam.labels.normalizer import ReturnNormalizer
from recap_steam.labels.parameters import RELABELLED
from recap_steam.labels.relabel_entry import check_entry, new_entry
from recap_steam.labels.relabel_source import Source, find_datasets, labels_path, read_source
from recap_steam.labels.thresholds import Thresholds, scored_frames
from recap_steam.lineage import Lineage, code_digest, digest_file
from recap_steam.sidecar import write_sidecar

STEP = "advantage_lookahead_step"


@dataclasses.dataclass(frozen=True)
class Relabelling:
    """Labels ``source_tag`` become ``tag`` by ``entry`` of an experiment, which is ``config``, under ``thresholds``."""

    source_tag: str
    tag: str
    entry: dict[str, Any]
    config: LabelConfig
    thresholds: Thresholds


def relabel_stage(
    *,
    source_tag: str,
    new_tag: str,
    dataset_root: Path | None,
    dataset_paths: list[Path] | None,
    dataset_types: list[str] | None,
    **options: Any,
) -> None:
    """Write ``advantages_{new_tag}.parquet`` beside every ``advantages_{source_tag}.parquet`` and print what came out.

    Thresholds are found among the frames of all datasets given. Demonstrations without a threshold of their own and, as in the source,
    corrections are positive. What no option changes is as in the source.

    Args:
        dataset_root: a folder of datasets; or None, and ``dataset_paths``: datasets.
        dataset_types: ``sft`` or ``rollout``, one for all or one for each; needed where labels have no lineage.
        options: see ``relabel_entry.OPTIONS``; None is not given.

    Raises:
        UserError: labels that are missing, broken, of different origin or there already; options that do not fit.
    """
    roots = find_datasets(dataset_root, source_tag) if dataset_root else dataset_paths
    _refuse_existing(roots, new_tag)
    sources = [read_source(root, source_tag, kind) for root, kind in zip(roots, _types(dataset_types, roots), strict=True)]
    _check_origin(sources)
    given = {name: value for name, value in options.items() if value is not None}
    entry = new_entry(sources, given)
    config = check_entry(sources, new_tag, entry)
    columns = [_advantages(source, entry, given.get("gamma")) for source in sources]
    frames = [
        scored_frames(source.episodes, source.type, found["advantage_continuous"], source.judged)
        for source, found in zip(sources, columns, strict=True)
    ]
    made = Relabelling(source_tag, new_tag, entry, config, thresholds_of(config, frames))
    counts = [counts_of(config, scored, made.thresholds) for scored in frames]
    for root, source, found, scored, rows in zip(roots, sources, columns, frames, counts, strict=True):
        labelled = found | {"advantage": decide(config, scored, made.thresholds)}
        write_sidecar(labels_path(root, new_tag), "advantages", labelled, source.episodes, _lineage(source, made, rows))
    _print_result(made, sources, [row for rows in counts for row in rows])


def _refuse_existing(roots: list[Path], tag: str) -> None:
    for root in roots:
        if labels_path(root, tag).exists():
            raise UserError(f"{labels_path(root, tag)}: exists, and labels are never overwritten; choose another --new_tag, or remove it")


def _types(types: list[str] | None, roots: list[Path]) -> list[str | None]:
    """The type of each dataset, None where it was not given."""
    if types is None:
        return [None] * len(roots)
    if len(types) not in (1, len(roots)):
        raise UserError(f"--dataset_types: {len(types)} for {len(roots)} datasets; give one for all, or one for each")
    return types * len(roots) if len(types) == 1 else types


def _check_origin(sources: list[Source]) -> None:
    """Labels that share a threshold were made in one way, and of different datasets."""
    first = sources[0]
    for source in sources[1:]:
        if source.steam != first.steam or source.parameters != first.parameters:
            raise UserError(f"{source.path}: was not made by the same parameters as {first.path}; relabel them one by one")
    names = [source.episodes.dataset for source in sources]
    for source in sources:
        if names.count(source.episodes.dataset) > 1:
            raise UserError(f"{source.path}: dataset '{source.episodes.dataset}' is given twice; leave one out, or relabel them one by one")


def _advantages(source: Source, entry: dict[str, Any], gamma: float | None) -> dict[str, np.ndarray | str]:
    """The source's columns, with advantages of another look-ahead where the entry has one."""
    columns = source.columns if source.steam else source.columns | {"dataset_name": source.episodes.dataset}
    known = source.parameters.get("gamma")
    if None not in (gamma, known) and gamma != known:
        raise UserError(
            f"--gamma: the returns and the critic behind {source.path} have gamma {known}; another one needs a returns tag and a critic"
        )
    if STEP not in entry or entry[STEP] == source.parameters.get(STEP):
        return columns
    advantages = compute_advantages(
        columns["return"],
        columns["value_current"],
        source.episodes.length,
        lookahead=entry[STEP],
        gamma=known if known is not None else gamma if gamma is not None else 1.0,
        discount_next_value=entry["discount_next_value"],
        scale=_scale(source),
    )
    found = dataclasses.asdict(advantages)
    return columns | {"advantage_continuous": found.pop("advantage")} | found


def _scale(source: Source) -> float | np.ndarray:
    """|return_min|: as recorded or, without lineage, what the sums of rewards were divided by.

    Raises:
        UserError: they were not simply divided, so values and advantages are on different scales.
    """
    if source.lineage:
        return ReturnNormalizer(source.parameters["return_min"]).scale(source.episodes.prompt_codes(), source.episodes.tasks)
    raw, divided = source.columns["reward_sum_raw"], source.columns["reward_sum"]
    largest = int(np.argmax(np.abs(raw)))
    scale = raw[largest] / divided[largest] if divided[largest] else np.nan
    if not (scale > 0 and np.allclose(raw / scale, divided, rtol=0, atol=1e-6)):
        raise UserError(
            f"{source.path}: its reward_sum is not reward_sum_raw divided by one number, as with a return range whose maximum is not 0: "
            "no look-ahead can be computed on the scale of its values; label this dataset by the workflow"
        )
    return float(scale)


def _lineage(source: Source, made: Relabelling, counts: list[dict]) -> Lineage:
    """The source's, with what is new; of labels without lineage nothing is known but themselves."""
    inputs = {"derived_from": digest_file(source.path), f"episodes/{source.episodes.dataset}": source.episodes.fingerprint}
    parameters = made.entry
    if source.lineage:
        inputs |= {name: digest for name, digest in source.lineage.inputs.items() if name not in ("threshold", "derived_from")}
        parameters = source.parameters | dataclasses.asdict(made.config)
    return Lineage(
        stage=RELABELLED,
        tag=made.tag,
        dataset_fingerprint=source.episodes.fingerprint,
        parameters=parameters | {"derived_from": made.source_tag},
        inputs=inputs,
        statistics={"positive_counts": counts, "thresholds": made.thresholds},
        code=code_digest(__name__),
    )


def _print_result(made: Relabelling, sources: list[Source], counts: list[dict]) -> None:
    """Thresholds, rates, and how the workflow makes the same labels."""
    for pool, threshold in made.thresholds.items():
        print(f"threshold, {pool}: {threshold:.6g}")
    shown = ("dataset", "type", "outcome", "num_frames", "num_positive", "positive_rate")
    print(tabulate([{name: row[name] for name in shown} for row in counts], headers="keys", floatfmt=".3f"))
    print(*(f"written: {source.path.with_name(f'advantages_{made.tag}.parquet')}" for source in sources), sep="\n")
    if sources[0].lineage:
        print("For a policy, delete the written files and let the workflow make the same labels:\n")
        print(yaml.safe_dump({"advantages": {made.tag: made.entry}}, sort_keys=False, default_flow_style=None))
    else:
        print("The source carries no lineage, so no entry of an experiment makes these labels; import them to use them in the workflow.")
