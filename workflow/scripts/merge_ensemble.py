"""Merge trained progress critics into one ensemble: members, or members of other ensembles, in the order in which they are given."""

import argparse
from pathlib import Path

from recap_steam.critics.ensemble import merge_stage
from recap_steam.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--member", required=True, action="append", metavar="PATH[:INDEX]", help="a member's folder, or one of an ensemble's"
    )
    parser.add_argument("--output", required=True, type=Path, help="critic folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace an ensemble that is there")
    args = parser.parse_args()
    merge_stage(args.member, args.output, args.overwrite)


if __name__ == "__main__":
    run_main(main)
