"""``make plan``: read the commands of a dry run from standard input and print what they will cost, as far as it was measured before."""

import argparse
import sys
from pathlib import Path

from recap_steam.config import read_experiment
from recap_steam.costs.jobs import read_jobs
from recap_steam.costs.known import KnownRates, read_rates
from recap_steam.costs.table import describe, make_rows
from recap_steam.costs.work import Workload
from recap_steam.errors import run_main

RATES = [Path("state/rates"), Path("benchmarks/rates")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="recap_steam.costs", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="experiment file")
    parser.add_argument("--seed", type=int, help="of a replicate of the experiment (default: the experiment as it is written)")
    parser.add_argument("--device", help="name of the device to plan for (default: the last that was measured)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds results/<experiment>")
    parser.add_argument("--rates", type=Path, nargs="+", default=RATES, help="folders of measured rates, the best first")
    arguments = parser.parse_args()
    experiment = read_experiment(arguments.config, arguments.seed)
    known = KnownRates(read_rates(arguments.rates), arguments.device)
    jobs = read_jobs(sys.stdin)
    workload = Workload(experiment, arguments.results / experiment.experiment, jobs)
    rows = make_rows(jobs, [workload.of(job) for job in jobs], known)
    print(describe(rows, experiment.experiment, known.device))


if __name__ == "__main__":
    run_main(main)
