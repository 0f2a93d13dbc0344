"""Speed and memory of the label stages against a plain read of the same data. `python benchmarks/labels.py` prints the table.

Every number is of a whole child process (interpreter start and imports included): CPU seconds and peak resident memory as the kernel
counts them for that process (wait4). Stages run as the workflow runs them, through their scripts.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from reporting import machine, target
from synthetic_data import FAILURE_REWARD, episode_lengths, make_critic, make_ensemble, make_scores, make_v21, make_v30, make_values

from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.schema import with_defaults

SCRIPTS = Path(__file__).parents[1] / "workflow/scripts"
YARDSTICK = Path(__file__).with_name("yardstick_returns.py")
CRITIC, RETURNS, LABELS = "value", "fail300", "n10_q30"
ENSEMBLE, SCORE_LABELS, CAMERA, K, NUM_BINS, MEMBERS = "order", "best30", "observation.images.front", 10, 2, 3
MANY_FILES, MANY_FRAMES = "4,096 files, 1.56 M frames", "20 files, 10 M frames"
CASES = {MANY_FILES: (4096, 1_562_648), MANY_FRAMES: (25_000, 10_000_000)}
OF_SCORES = ("threshold of scores", "labels of scores")
SUMS = {
    "index + returns": ("index_dataset", "compute_returns"),
    "threshold + advantages": ("compute_threshold", "compute_advantages"),
    "threshold + labels of scores": OF_SCORES,
}


class Case:
    """One dataset in a folder of its own, and the command line of every stage on it."""

    def __init__(self, folder: Path, lengths):
        self.dataset, self.meta = folder / "dataset", folder / "dataset/meta"
        self.episodes, self.critic, self.ensemble = folder / "episodes/rollouts.parquet", folder / "critic", folder / "ensemble"
        self.thresholds = folder / "thresholds"
        self.slice = json.dumps(with_defaults(experiment(self.dataset)))
        self.longest = int(lengths.max())

    def command(self, script: str, *arguments: object) -> list[str]:
        return [str(part) for part in (sys.executable, SCRIPTS / f"{script}.py", "--config", self.slice, *arguments)]

    def prepare(self) -> None:
        """Make the critics and what they say, which need an accelerator in real life."""
        make_critic(self.critic, CRITIC, FAILURE_REWARD - self.longest + 1)
        episodes = load_episodes(self.episodes, open_dataset("rollouts", self.dataset))
        make_values(self.meta / f"values_{CRITIC}.parquet", CRITIC, self.critic, episodes)
        make_ensemble(self.ensemble, ENSEMBLE)
        parameters = {"k": K, "num_bins": NUM_BINS, "cameras": {CAMERA: CAMERA}}
        make_scores(self.meta / f"scores_{ENSEMBLE}.parquet", ENSEMBLE, self.ensemble, episodes, members=MEMBERS, **parameters)

    def stages(self) -> dict[str, list[str]]:
        common = ("--dataset", "rollouts", "--episodes", self.episodes)
        returns_output = self.meta / f"returns_{RETURNS}.parquet"
        return {
            "plain read + pass": [sys.executable, str(YARDSTICK), str(self.dataset)],
            "imports of a label job": [sys.executable, "-c", "import recap_steam.labels.stages"],
            "index_dataset": self.command("index_dataset", "--dataset", "rollouts", "--output", self.episodes),
            "compute_returns": self.command("compute_returns", *common, "--tag", RETURNS, "--output", returns_output),
            **dict(zip(("compute_threshold", "compute_advantages"), self.labels(LABELS, self.critic), strict=True)),
            **dict(zip(OF_SCORES, self.labels(SCORE_LABELS, self.ensemble), strict=True)),
        }

    def labels(self, tag: str, critic: Path) -> tuple[list[str], list[str]]:
        """The two jobs of a label tag."""
        tagged, threshold, output = ("--tag", tag, "--critic-dir", critic), self.thresholds / tag, self.meta / f"advantages_{tag}.parquet"
        common = ("--dataset", "rollouts", "--episodes", self.episodes, "--threshold", threshold, "--output", output)
        return (
            self.command("compute_threshold", *tagged, "--episodes-dir", self.episodes.parent, "--output", threshold),
            self.command("compute_advantages", *tagged, *common),
        )


def experiment(dataset: Path) -> dict:
    """The slice of an experiment that all measured stages read."""
    training = {"datasets": ["rollouts"], "cameras": [CAMERA], "optim": {"lr": 5.0e-5}, "max_steps": 1, "global_batch_size": 1}
    ensemble = {"method": "steam", "k": K, "model": {"image_size": 224, "num_bins": NUM_BINS}}
    return {
        "experiment": "benchmark",
        "datasets": {"rollouts": {"path": str(dataset), "type": "rollout"}},
        "returns": {RETURNS: {"gamma": 1.0, "failure_reward": FAILURE_REWARD}},
        "critics": {
            CRITIC: {**training, "returns_tag": RETURNS, "model": {"image_size": 224}},
            ENSEMBLE: {**training, **ensemble},
        },
        "advantages": {
            LABELS: {"critic": CRITIC, "datasets": ["rollouts"], "advantage_lookahead_step": 10},
            SCORE_LABELS: {"critic": ENSEMBLE, "datasets": ["rollouts"], "label_mode": "quantile", "rollout_quantile": 0.3},
        },
    }


def apart(function: Callable, *arguments: object) -> None:
    """Call ``function`` in another process: the kernel counts memory that this one has used before it starts a child as the child's."""
    worker = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    worker.start()
    worker.join()
    if worker.exitcode:
        sys.exit(f"failed: {function.__name__}")


def measure(command: list[str]) -> tuple[float, float]:
    """Run ``command``; return its CPU seconds (user and system) and its peak resident memory in GB (1e9 bytes)."""
    child = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9


def run_case(case: Case, repeats: int) -> dict[str, tuple[float, float]]:
    """Return median CPU seconds and largest memory of every stage; rounds go through all stages, so that they meet the same machine."""
    rounds = []
    for number in range(repeats):
        found = {}
        for name, command in case.stages().items():
            found[name] = measure(command)
            if name == "index_dataset" and number == 0:
                apart(case.prepare)
        rounds.append(found)
    return {name: (statistics.median(r[name][0] for r in rounds), max(r[name][1] for r in rounds)) for name in rounds[0]}


def report(results: dict[str, dict[str, tuple[float, float]]]) -> str:
    """Return the table of all stages, and whether each target was met."""
    lines = ["| case | stage | CPU s | x plain read | peak memory GB |", "|---|---|---|---|---|"]
    for case, stages in results.items():
        yardstick = stages["plain read + pass"][0]
        for title, parts in SUMS.items():
            stages[title] = (sum(stages[part][0] for part in parts), max(stages[part][1] for part in parts))
        lines += [f"| {case} | {name} | {cpu:.2f} | {cpu / yardstick:.2f} | {memory:.2f} |" for name, (cpu, memory) in stages.items()]
    small, large = (results[case] for case in CASES)
    ratio = small["compute_returns"][0] / small["plain read + pass"][0]
    labels, memory = small["threshold + advantages"][0], max(large[stage][1] for stage in large if stage != "plain read + pass")
    of_scores = small["threshold + labels of scores"][0] - 2 * small["imports of a label job"][0]
    lines += ["", target("returns job, x plain read", ratio, 1.5), target("threshold + advantages, CPU s", labels, 2.0)]
    lines.append(target(f"threshold + labels of scores of {MEMBERS} members, without imports, CPU s", of_scores, 2.0))
    return "\n".join([*lines, target("peak memory of any stage at 10 M frames, GB", memory, 1.5)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the table shows the median CPU time and the largest memory")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes and frames, for a quick look")
    args = parser.parse_args()
    results = {}
    for name, (num_episodes, num_frames) in CASES.items():
        lengths = episode_lengths(int(num_episodes * args.scale), int(num_frames * args.scale))
        with tempfile.TemporaryDirectory() as folder:
            case = Case(Path(folder), lengths)
            if name == MANY_FILES:
                apart(make_v21, case.dataset, lengths)
            else:
                apart(make_v30, case.dataset, lengths, 20)
            results[name] = run_case(case, args.repeats)
    print(f"{machine()}, median of {args.repeats} rounds\n\n{report(results)}")


if __name__ == "__main__":
    main()
