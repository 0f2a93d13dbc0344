"""Build the experiment's report: one HTML page, its figures and a plain-text summary."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_experiment
from recap_steam.errors import run_main
from recap_steam.report.page import report_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the experiment as JSON")
    parser.add_argument("--results", type=Path, required=True, help="folder results/<experiment>")
    parser.add_argument("--rule-graph", type=Path, required=True, help="what snakemake --rulegraph prints")
    parser.add_argument("--logs-dir", type=Path, required=True, help="folder logs/<experiment>")
    parser.add_argument("--run-times", nargs="*", default=[], help="tables of run times below it")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of index.html, summary.txt and the figures")
    args = parser.parse_args()
    report_stage(load_experiment(args.config), args.results, args.rule_graph, args.logs_dir, args.run_times, args.output_dir)


if __name__ == "__main__":
    run_main(main)
