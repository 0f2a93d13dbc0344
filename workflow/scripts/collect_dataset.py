"""Collect a LeRobot dataset in simulation."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.simulation.collect import collect_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="slice of the experiment: the dataset and its environment")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--policy-dir", type=Path, help="folder of the policy; absent for the scripted expert")
    parser.add_argument("--output", type=Path, required=True, help="<path>/meta/info.json of the dataset")
    arguments = parser.parse_args()
    collect_stage(load_slice(arguments.config), arguments.dataset, arguments.policy_dir, arguments.output)


if __name__ == "__main__":
    run_main(main)
