"""Evaluate one arm (a policy at one guidance scale) on the seeded initial states of an evaluation."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.simulation.evaluate import evaluate_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="slice of the experiment: the evaluation and its environment")
    parser.add_argument("--evaluation", required=True, help="tag of the evaluation")
    parser.add_argument("--policy", required=True, help="tag of the policy")
    parser.add_argument("--policy-dir", type=Path, help="folder of the policy; absent for the scripted expert")
    parser.add_argument("--guidance-scale", type=float, help="guidance of an advantage-conditioned policy; absent for plain imitation")
    parser.add_argument("--reference", type=Path, help="rows of the first arm; stop as soon as this one is told apart from it")
    parser.add_argument("--output", type=Path, required=True, help="Parquet file, one row an episode")
    arguments = parser.parse_args()
    evaluate_stage(
        load_slice(arguments.config),
        arguments.evaluation,
        arguments.policy,
        arguments.policy_dir,
        arguments.guidance_scale,
        arguments.reference,
        arguments.output,
    )


if __name__ == "__main__":
    run_main(main)
