"""Train one value critic. Started by torchrun."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.training.critic_stage import train_critic_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--execution", required=True, type=json.loads, help="slice of the keys that do not change the result, JSON")
    parser.add_argument("--tag", required=True, help="tag of the critic")
    parser.add_argument("--episodes-dir", required=True, type=Path, help="folder of the episode indices")
    parser.add_argument("--frames-dir", required=True, type=Path, help="folder of the frame caches")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder of the resumable state")
    parser.add_argument("--output-dir", required=True, type=Path, help="critic folder to write")
    args = parser.parse_args()
    train_critic_stage(
        load_slice(args.config, args.execution), args.tag, args.episodes_dir, args.frames_dir, args.state_dir, args.output_dir
    )


if __name__ == "__main__":
    run_main(main)
