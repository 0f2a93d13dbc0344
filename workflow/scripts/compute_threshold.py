"""Compute the label threshold of one advantages tag over all its datasets, and the positive rates that come out."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.labels.stages import threshold_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--tag", required=True, help="tag of the advantages")
    parser.add_argument("--critic-dir", required=True, type=Path, help="folder of the trained critic")
    parser.add_argument("--episodes-dir", required=True, type=Path, help="folder of the episode indices")
    parser.add_argument("--output", required=True, type=Path, help="threshold file to write (YAML)")
    args = parser.parse_args()
    threshold_stage(load_slice(args.config), args.tag, args.critic_dir, args.episodes_dir, args.output)


if __name__ == "__main__":
    run_main(main)
