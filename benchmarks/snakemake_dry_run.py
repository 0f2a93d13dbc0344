"""Time of Snakemake's planning. `python benchmarks/snakemake_dry_run.py` prints the table.

Wide: 20 datasets, each with 10 tags of returns, critics, advantages and policies. Demo: a finished demo that has nothing to do. Outputs
are empty files that Snakemake recorded as made. Times are of the whole command, best of three; CPU seconds tell a busy machine from a
slow plan.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

REPOSITORY = Path(__file__).parents[1]
WORKFLOW = ("Snakefile", "config", "workflow", "envs")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in WORKFLOW:
            source = REPOSITORY / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, tree / name)
        wide = make_wide(tree, datasets=20, tags=10)
        rows = [measure("wide, fresh clone", 5, tree, "-n", "--configfile", wide)]
        finish(tree, "--configfile", wide)
        rows.append(measure("wide, finished", 5, tree, "-n", "--configfile", wide))
        finish(tree)
        rows.append(measure("demo, finished, -n", 5, tree, "-n"))
        rows.append(measure("demo, finished, a real run", 10, tree, "--cores", "2"))
    print(tabulate(rows, ["case", "jobs", "wall, s", "CPU, s", "limit, s"]))


def make_wide(tree: Path, datasets: int, tags: int) -> str:
    """Write an experiment with every tag on every dataset, and datasets that look real to the workflow."""
    demo = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
    names = [f"dataset{number:02d}" for number in range(datasets)]
    for name in names:
        for file in ("meta/info.json", *(f"data/chunk-000/file-{number:03d}.parquet" for number in range(50))):
            path = tree / "wide" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    each = range(tags)
    critic = demo["critics"]["value"] | {"datasets": names, "eval_datasets": []}
    experiment: dict[str, Any] = {
        "experiment": "wide",
        "datasets": {name: {"path": f"wide/{name}", "type": "rollout"} for name in names},
        "returns": {f"returns{tag}": {"failure_reward": -tag} for tag in each},
        "critics": {f"critic{tag}": critic | {"returns_tag": f"returns{tag}"} for tag in each},
        "advantages": {f"labels{tag}": {"critic": f"critic{tag}", "datasets": names} for tag in each},
        "policies": {f"policy{tag}": demo["policies"]["recap"] | {"advantage_tag": f"labels{tag}", "datasets": names} for tag in each},
    }
    path = tree / "wide.yaml"
    path.write_text(yaml.safe_dump(experiment))
    return str(path)


def snakemake(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "snakemake", *arguments]
    result = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.exit(result.stdout)
    return result.stdout


def finish(tree: Path, *arguments: str) -> None:
    """Make empty outputs and Snakemake's record of them."""
    rows = [line.split("\t") for line in snakemake(tree, *arguments, "--summary").splitlines() if line.count("\t") == 5]
    for name, *_ in rows[1:]:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    snakemake(tree, *arguments, "--touch", "--forceall")


def measure(case: str, limit: int, tree: Path, *arguments: str) -> list[Any]:
    times, cpu_times = [], []
    for _ in range(3):
        start, cpu_start = time.perf_counter(), cpu_seconds()
        output = snakemake(tree, *arguments)
        times.append(time.perf_counter() - start)
        cpu_times.append(cpu_seconds() - cpu_start)
    total = next((int(line.split()[1]) for line in output.splitlines() if line.startswith("total")), 0)
    if "finished" in case and total:
        sys.exit(f"{case}: {total} jobs to do; was the library edited meanwhile?")
    return [case, total, f"{min(times):.1f}", f"{min(cpu_times):.1f}", limit]


def cpu_seconds() -> float:
    """CPU seconds of all children that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
