"""Index a LeRobot dataset: check every frame, fingerprint every episode, write the table of episodes."""

import argparse
import json

from recap_steam.config import load_slice
from recap_steam.dataset.episodes import index_stage
from recap_steam.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--output", required=True, help="episode index to write (Parquet)")
    args = parser.parse_args()
    index_stage(load_slice(args.config), args.dataset, args.output)


if __name__ == "__main__":
    run_main(main)
