"""Render the first episodes of an evaluated arm as videos, with what a value critic says of every frame."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.report.evaluation_videos import arm_videos_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="slice of the experiment: the evaluation and its environment")
    parser.add_argument("--evaluation", required=True, help="tag of the evaluation")
    parser.add_argument("--policy", required=True, help="tag of the policy")
    parser.add_argument("--policy-dir", type=Path, help="folder of the policy; absent for the scripted expert")
    parser.add_argument("--guidance-scale", type=float, help="guidance of an advantage-conditioned policy; absent for plain imitation")
    parser.add_argument("--critic-dir", type=Path, required=True, help="folder of the value critic")
    parser.add_argument("--rows", type=Path, required=True, help="Parquet file of the arm")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the videos")
    args = parser.parse_args()
    arm = args.evaluation, args.policy, args.policy_dir, args.guidance_scale
    arm_videos_stage(load_slice(args.config), *arm, args.critic_dir, args.rows, args.output_dir)


if __name__ == "__main__":
    run_main(main)
