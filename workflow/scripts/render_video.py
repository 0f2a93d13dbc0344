"""Render an episode as a video: cameras side by side, and what the critic said of it over time."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.report.videos import video_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--tag", required=True, help="tag of the labels")
    parser.add_argument("--episode", required=True, type=int, help="index of the episode")
    parser.add_argument("--episodes", required=True, type=Path, help="the dataset's episode index")
    parser.add_argument("--threshold", required=True, type=Path, help="threshold file of the tag")
    parser.add_argument("--output", required=True, type=Path, help="mp4 to write")
    args = parser.parse_args()
    video_stage(load_slice(args.config), args.dataset, args.tag, args.episode, args.episodes, args.threshold, args.output)


if __name__ == "__main__":
    run_main(main)
