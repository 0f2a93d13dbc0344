"""Jobs as the commands that start them: one line each, as a dry run prints them."""

import dataclasses
import re
import shlex
from collections.abc import Iterable

COMMAND = re.compile(r"\bpython\b.* workflow/scripts/(\w+)\.py ")
LAUNCHER = "recap_steam.launch"


@dataclasses.dataclass(frozen=True)
class Job:
    """A job: its rule, its script's options (without dashes), and what it runs on; ``devices`` is 0 where it needs no accelerator."""

    stage: str
    options: dict[str, list[str]]
    devices: int
    nodes: int

    def option(self, name: str) -> str:
        return self.options[name][0]


def read_jobs(lines: Iterable[str]) -> list[Job]:
    """The jobs whose commands are among ``lines``; other lines do not matter."""
    return [_job(found[1], shlex.split(line)) for line in lines if (found := COMMAND.search(line))]


def _job(stage: str, words: list[str]) -> Job:
    start = words.index(f"workflow/scripts/{stage}.py")
    launcher, options = _options(words[:start]), _options(words[start + 1 :])
    if LAUNCHER not in words:
        return Job(stage, options, 0, 1)
    return Job(stage, options, int(launcher["devices"][0]), int(launcher["nodes"][0]))


def _options(words: list[str]) -> dict[str, list[str]]:
    """Values by option, up to the shell's redirection."""
    found: dict[str, list[str]] = {}
    for word in words:
        if word == ">":
            break
        if word.startswith("--"):
            values = found.setdefault(word.removeprefix("--"), [])
        elif found:
            values.append(word)
    return found
