"""Report what is in every dataset, before anything is computed: a page, a table for the terminal and Parquet."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.report.dataset_page import datasets_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of index.html, summary.txt and the tables")
    args = parser.parse_args()
    datasets_stage(load_slice(args.config), args.output_dir)


if __name__ == "__main__":
    run_main(main)
