"""Measure the states and actions that a policy learns from."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.policy.norm_stats import norm_stats_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--tag", required=True, help="tag of the policy")
    parser.add_argument("--episodes-dir", required=True, type=Path, help="folder of the datasets' episode indices")
    parser.add_argument("--output", required=True, type=Path, help="statistics to write (JSON)")
    args = parser.parse_args()
    norm_stats_stage(load_slice(args.config), args.tag, args.episodes_dir, args.output)


if __name__ == "__main__":
    run_main(main)
