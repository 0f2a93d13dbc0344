"""A copy of the workflow in which Snakemake runs for real, mostly as dry runs.

Every call runs Snakemake's own command line in a fork of the test process: the interpreter, Snakemake and the schema are loaded once,
and yet no call sees another's state.
"""

import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import smart_open  # noqa: F401
import snakemake.cli
import yaml

from recap_steam.config import load_experiment
from recap_steam.lineage import code_digest
from tests.changes import with_changes

REPOSITORY = Path(__file__).parents[2]
WORKFLOW = ("Snakefile", "config", "workflow", "envs", "profiles", "slurm", "slurm-ascend")
DEMO = json.loads(json.dumps(yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())))  # no shared anchors

# What every run would load anew is loaded here, before any fork: the schema, Snakemake's plugins and the code digests (cached).
load_experiment(DEMO)
snakemake.cli.get_argument_parser()
for script in (REPOSITORY / "workflow/scripts").glob("*.py"):
    code_digest(*re.findall(r"^from (recap_steam[\w.]*) import", script.read_text(), re.MULTILINE))


@dataclasses.dataclass(frozen=True)
class Tree:
    """A working directory with the workflow in it."""

    path: Path

    def snakemake(self, *arguments: str) -> tuple[int, str]:
        """Run Snakemake and return its exit status and everything it printed."""
        with tempfile.TemporaryFile("w+") as output:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # fork: the only other threads are idle ones of native libraries
                child = os.fork()
            if child == 0:
                self._become_snakemake(output.fileno(), list(arguments))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            return status, output.read()

    def _become_snakemake(self, output: int, arguments: list[str]) -> None:
        status = 1
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.path)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            snakemake.cli.main(arguments)
        except SystemExit as end:  # as the interpreter ends on it
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def plan(self, *arguments: str) -> dict[str, int]:
        """Return the number of jobs by rule that a run would execute, without target rules."""
        status, output = self.snakemake(*arguments, "-n", "--quiet", "rules")
        assert status == 0, output
        table = re.search(r"Job stats:\n.*\n[- ]+\n((?:\w+ +\d+\n)+)", output)
        rows = [line.split() for line in table[1].splitlines()] if table else []
        return {rule: int(count) for rule, count in rows if rule not in TARGETS}

    def experiment(self, name: str, experiment: dict[str, Any]) -> str:
        """Write an experiment file and return its path."""
        path = self.path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(experiment, sort_keys=False))
        return str(path)

    def finish(self, *arguments: str) -> None:
        """Make a run look finished: empty outputs with Snakemake's record of the parameters that they were made with."""
        status, output = self.snakemake(*arguments, "--summary")
        assert status == 0, output
        rows = [line.split("\t") for line in output.splitlines() if line.count("\t") == 5]
        assert len(rows) > 1, output
        for name, *_ in rows[1:]:
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if path.suffix else path.mkdir(exist_ok=True)
        status, output = self.snakemake(*arguments, "--touch", "--forceall")
        assert status == 0, output


TARGETS = {
    *(
        "all",
        "datasets",
        "download",
        "returns",
        "critics",
        "values",
        "scores",
        "advantages",
        "policies",
        "evaluations",
        "report",
        "videos",
        "mixture",
        "publish_stats",
    ),
    "total",
}


def copy_workflow(path: Path) -> Tree:
    for name in WORKFLOW:
        source = REPOSITORY / name
        if source.is_symlink():
            (path / name).symlink_to(source.readlink())
        else:
            (shutil.copytree if source.is_dir() else shutil.copy)(source, path / name)
    return Tree(path)


def make_weights(path: Path) -> None:
    """A folder that passes at planning for any weights or tokenizer."""
    (path / "tokenizer").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer/tokenizer.json"):
        (path / name).write_text("{}")


def demo_with(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the demo with values set by dotted key."""
    return with_changes(DEMO, changes)
