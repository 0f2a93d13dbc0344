"""Write mixture_config.yaml beside a dataset's sidecars, for tools of the reference (RLinf)."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.labels.mixture import mixture_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--thresholds", required=True, type=Path, nargs="+", help="threshold files of all tags that label the dataset")
    parser.add_argument("--output", required=True, type=Path, help="receipt to write (JSON)")
    args = parser.parse_args()
    mixture_stage(load_slice(args.config), args.dataset, args.thresholds, args.output)


if __name__ == "__main__":
    run_main(main)
