"""Decode the cameras of a dataset once, at one resolution, into a memory-mapped frame cache."""

import argparse
import json

from recap_steam.config import load_slice
from recap_steam.dataset.frames import frames_stage
from recap_steam.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument("--episodes", required=True, help="episode index of the dataset")
    parser.add_argument("--cameras", required=True, nargs="+", help="camera keys")
    parser.add_argument("--image-size", required=True, type=int, help="height and width, pixels")
    parser.add_argument("--output", required=True, help="frame cache to write (Arrow IPC)")
    args = parser.parse_args()
    frames_stage(load_slice(args.config), args.dataset, args.episodes, args.cameras, args.image_size, args.output)


if __name__ == "__main__":
    run_main(main)
