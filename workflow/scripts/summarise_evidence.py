"""Summarise the replicates of some experiments: tables with paired tests, figures, and one row an episode."""

import argparse
from pathlib import Path

from recap_steam.errors import run_main
from recap_steam.report.evidence import evidence_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, nargs="+", required=True, help="experiment files")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="their replicates; those that are missing are named")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of episodes.parquet, tables.md and success_<evaluation>.png")
    args = parser.parse_args()
    evidence_stage(args.config, args.seeds, args.output_dir)


if __name__ == "__main__":
    run_main(main)
