"""Train a policy (started by torchrun)."""

import argparse
import json
from pathlib import Path

from recap_steam.config import load_slice
from recap_steam.errors import run_main
from recap_steam.training.policy_stage import train_policy_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json.loads, help="experiment slice, JSON")
    parser.add_argument("--execution", required=True, type=json.loads, help="slice of the keys that do not change the result, JSON")
    parser.add_argument("--tag", required=True, help="tag of the policy")
    parser.add_argument("--episodes-dir", required=True, type=Path, help="folder of the datasets' episode indices")
    parser.add_argument("--frames-dir", required=True, type=Path, help="folder of the datasets' frame caches")
    parser.add_argument("--norm-stats", required=True, type=Path, help="the policy's normalisation statistics")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder of the resumable state")
    parser.add_argument("--output-dir", required=True, type=Path, help="policy folder to write")
    parser.add_argument("--init-dir", type=Path, help="folder of the policy that training starts from")
    args = parser.parse_args()
    train_policy_stage(
        load_slice(args.config, args.execution),
        args.tag,
        args.episodes_dir,
        args.frames_dir,
        args.norm_stats,
        args.state_dir,
        args.output_dir,
        args.init_dir,
    )


if __name__ == "__main__":
    run_main(main)
