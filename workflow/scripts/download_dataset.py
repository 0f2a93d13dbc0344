"""Download a dataset from the hub at a fixed revision, and count what is in it."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.dataset.download import download_stage
from recap_steam.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="slice of the experiment: the dataset")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--output", type=Path, required=True, help="JSON file: what was fetched and counted")
    arguments = parser.parse_args()
    download_stage(load_slice(arguments.config), arguments.dataset, arguments.output)


if __name__ == "__main__":
    run_main(main)
