"""Compute the returns of one dataset under one parameter set."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.labels.returns import returns_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--tag", required=True, help="tag of the returns")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--output", required=True, type=Path, help="sidecar to write (Parquet)")
    args = parser.parse_args()
    returns_stage(load_slice(args.config), args.dataset, args.tag, args.episodes, args.output)


if __name__ == "__main__":
    run_main(main)
