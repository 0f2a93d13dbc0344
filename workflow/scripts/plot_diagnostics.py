"""Plot how a critic judged one dataset, and what labels came out; as a whole, and of some episodes."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.report.diagnostics import diagnostics_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--tag", required=True, help="tag of the labels")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--threshold", required=True, type=Path, help="threshold file of the tag")
    parser.add_argument("--output-dir", required=True, type=Path, help="folder of figures, numbers and episodes, which is written anew")
    args = parser.parse_args()
    diagnostics_stage(load_slice(args.config), args.dataset, args.tag, args.episodes, args.threshold, args.output_dir)


if __name__ == "__main__":
    run_main(main)
