"""Views over what an experiment found: thresholds, scales, evaluations, courses of training and lineage, one SELECT a file that exists."""

from pathlib import Path

from recap_steam.config import meta_folder
from recap_steam.report.catalogue_data import index_files
from recap_steam.report.catalogue_ledger import ledger_view
from recap_steam.report.catalogue_sql import View, parquet, record, text
from recap_steam.report.results import Results


def result_views(results: Results) -> dict[str, View]:
    """Views by name."""
    return {
        "thresholds": _thresholds(results),
        "return_scales": _return_scales(results),
        "critic_evaluations": _critic_evaluations(results),
        "metrics": _metrics(results),
        "evaluations": _evaluations(results),
        "ledger": ledger_view(results),
        "run_times": _run_times(results),
        "lineage": _lineage(results),
    }


def _thresholds(results: Results) -> View:
    files = [
        (tag, name, path)
        for tag in results.experiment.advantages
        for name in results.experiment.datasets
        if (path := results.sidecar_file(name, "advantages", tag)).exists()
    ]
    selects = {
        path: f"SELECT {text(tag)} AS tag, {text(name)} AS dataset, pool, (thresholds->>pool)::DOUBLE AS threshold "
        "FROM (SELECT *, unnest(json_keys(thresholds)) AS pool "
        f"FROM (SELECT record->'statistics'->'thresholds' AS thresholds FROM {record(path)}))"
        for tag, name, path in files
    }
    columns = dict.fromkeys(("tag", "dataset", "pool"), "VARCHAR") | {"threshold": "DOUBLE"}
    return View("what an advantage must reach (method recap) or exceed (steam) to be positive, by pool, task or dataset", columns, selects)


def _return_scales(results: Results) -> View:
    files = {tag: results.root / "critics" / tag / "normalizer.json" for tag in results.value_critics}
    selects = {
        path: f"SELECT {text(tag)} AS tag, task, value_offset, "
        "abs((CASE WHEN task IS NULL THEN least->>'$' ELSE least->>task END)::DOUBLE) AS scale "
        "FROM (SELECT *, unnest(CASE json_type(least) WHEN 'OBJECT' THEN json_keys(least) ELSE [NULL] END) AS task "
        f"FROM (SELECT json->'return_min' AS least, (json->>'offset')::DOUBLE AS value_offset FROM read_json_objects({text(path)})))"
        for tag, path in files.items()
        if path.exists()
    }
    columns = {"tag": "VARCHAR", "task": "VARCHAR", "scale": "DOUBLE", "value_offset": "DOUBLE"}
    return View("value = return / scale + value_offset, by critic and, if each task has a scale, by task (else NULL)", columns, selects)


def _critic_evaluations(results: Results) -> View:
    files = {tag: results.root / "critics" / tag / "evaluation.json" for tag in results.experiment.critics}
    selects = {
        path: f"SELECT {text(tag)} AS tag, member::BIGINT AS member, "
        "split_part(name, '/', 1) AS predictor, split_part(name, '/', 2) AS metric, "
        "nullif(substr(name, length(predictor) + length(metric) + 3), '') AS part, value "
        "FROM (SELECT nullif(regexp_extract(key, '^member([0-9]+)/', 1), '') AS member, "
        "regexp_replace(key, '^member[0-9]+/', '') AS name, (json->>key)::DOUBLE AS value "
        f"FROM (SELECT json, unnest(json_keys(json)) AS key FROM read_json_objects({text(path)})))"
        for tag, path in files.items()
        if path.exists()
    }
    columns = {"tag": "VARCHAR", "member": "BIGINT", "predictor": "VARCHAR", "metric": "VARCHAR", "part": "VARCHAR", "value": "DOUBLE"}
    comment = (
        "a row a number of evaluation.json: predictor eval, eval_train or baseline_..., part such as outcome=success (NULL: the whole), "
        "member of an ensemble (NULL: their mean, and other critics)"
    )
    return View(comment, columns, selects)


def _metrics(results: Results) -> View:
    """Long form: one row a step and metric; ``member`` of an ensemble, else NULL."""
    trainings = [(kind, tag, None, tag) for kind in ("critics", "policies") for tag in getattr(results.experiment, kind)]
    trainings += [("critics", critic, member, tag) for critic in results.ensembles for member, tag in enumerate(results.members(critic))]
    files = [(*names, results.root / names[0] / folder / "metrics.jsonl") for *names, folder in trainings]
    selects = {
        path: f"SELECT {text(kind)} AS kind, {text(tag)} AS tag, {'NULL' if member is None else member}::BIGINT AS member, "
        "(json->>'step')::BIGINT AS step, metric, (json->>metric)::DOUBLE AS value "
        f"FROM (SELECT json, unnest(json_keys(json)) AS metric FROM read_ndjson_objects({text(path)})) WHERE metric <> 'step'"
        for kind, tag, member, path in files
        if path.exists()
    }
    columns = {"kind": "VARCHAR", "tag": "VARCHAR", "member": "BIGINT", "step": "BIGINT", "metric": "VARCHAR", "value": "DOUBLE"}
    return View("a row a step and metric of a training; kind is critics or policies, member NULL but for ensembles", columns, selects)


def _evaluations(results: Results) -> View:
    files = [(tag, *file) for tag in results.experiment.evaluations for file in results.arm_files(tag)]
    selects = {
        path: f"SELECT {text(tag)} AS tag, {text(policy)} AS policy, {'NULL' if scale is None else scale}::DOUBLE AS guidance_scale, * "
        f"FROM {parquet(path)}"
        for tag, path, policy, scale in files
        if path.exists()
    }
    columns = {"tag": "VARCHAR", "policy": "VARCHAR", "guidance_scale": "DOUBLE"}
    columns |= {"episode": "BIGINT", "seed": "BIGINT", "success": "BOOLEAN", "num_frames": "BIGINT"}
    columns |= {"seconds": "DOUBLE", "task": "VARCHAR"}
    return View("a row an evaluated episode; guidance_scale is NULL for a policy without indicator", columns, selects)


def _run_times(results: Results) -> View:
    """From the tables that Snakemake writes beside the logs."""
    logs = Path("logs") / results.experiment.experiment
    selects = {
        path: f"SELECT {text(path.relative_to(logs).parts[0])} AS rule, {text('/'.join(path.relative_to(logs).with_suffix('').parts[1:]))} "
        "AS job, s::DOUBLE AS seconds, try_cast(max_rss AS DOUBLE) AS peak_mib "
        f"FROM read_csv({text(path)}, delim = '\t', header = true, all_varchar = true)"
        for path in sorted(logs.rglob("*.tsv"))
    }
    columns = {"rule": "VARCHAR", "job": "VARCHAR", "seconds": "DOUBLE", "peak_mib": "DOUBLE"}
    return View("a row a long job: seconds of wall time, largest resident memory in MiB (NULL: too short to be measured)", columns, selects)


def _lineage(results: Results) -> View:
    """A threshold file is YAML, which SQL cannot read; labels made from it name its digest."""
    datasets = {path: name for name, path in index_files(results).items()}
    datasets |= {Path(meta_folder(name, config)): name for name, config in results.experiment.datasets.items()}
    columns = dict.fromkeys(("path", "dataset", "stage", "tag", "dataset_fingerprint"), "VARCHAR")
    columns |= dict.fromkeys(("parameters", "inputs", "statistics"), "JSON") | {"code": "VARCHAR"}
    fields = ", ".join(f"record->{'' if kind == 'JSON' else '>'}{text(name)} AS {name}" for name, kind in list(columns.items())[2:])
    selects = {}
    for path in results.artefacts():
        if path.suffix != ".yaml" and path.exists():
            dataset = datasets.get(path) or datasets.get(path.parent)
            selects[path] = f"SELECT {text(path)} AS path, {text(dataset) if dataset else 'NULL'} AS dataset, {fields} FROM {record(path)}"
    return View("a row an artefact: what made it, from which inputs (digests) and which version of the dataset", columns, selects)
