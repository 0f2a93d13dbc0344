"""Choose the episodes of a dataset that are shown frame by frame."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.report.chosen import choose_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--output", required=True, type=Path, help="JSON list to write")
    args = parser.parse_args()
    choose_stage(load_slice(args.config), args.episodes, args.output)


if __name__ == "__main__":
    run_main(main)
