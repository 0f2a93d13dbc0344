"""Import the returns or labels of one dataset that another tool made."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.labels.imports import import_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--kind", required=True, choices=("returns", "advantages"), help="what is imported")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--tag", required=True, help="tag that it gets here")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--output", required=True, type=Path, help="sidecar to write (Parquet)")
    args = parser.parse_args()
    import_stage(load_slice(args.config), args.kind, args.dataset, args.tag, args.episodes, args.output)


if __name__ == "__main__":
    run_main(main)
