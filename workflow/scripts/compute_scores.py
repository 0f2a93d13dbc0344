"""Score every frame of one dataset with an ensemble of progress critics. Started by torchrun."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.critics.score_pass import scores_stage
from recap_steam.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--tag", required=True, help="tag of the critic")
    parser.add_argument("--critic-dir", required=True, type=Path, help="critic folder")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--frames", required=True, type=Path, help="the dataset's frame cache")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder of the resumable state")
    parser.add_argument("--output", required=True, type=Path, help="sidecar to write (Parquet)")
    args = parser.parse_args()
    experiment = load_slice(args.config)
    scores_stage(experiment, args.dataset, args.tag, args.critic_dir, args.episodes, args.frames, args.state_dir, args.output)


if __name__ == "__main__":
    run_main(main)
