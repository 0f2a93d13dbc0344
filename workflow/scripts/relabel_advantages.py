"""Make a new label tag from one that is there: another quantile, threshold, pool or look-ahead, without a model (no rule runs this)."""

import argparse
from pathlib import Path

from recap_steam.errors import run_main
from recap_steam.labels.relabel import relabel_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    datasets = parser.add_mutually_exclusive_group(required=True)
    datasets.add_argument("--dataset_root", type=Path, help="folder of datasets; all that have the source tag")
    datasets.add_argument("--dataset_paths", type=Path, nargs="+", help="datasets")
    parser.add_argument("--dataset_types", choices=("sft", "rollout"), nargs="+", help="one for all or each; for labels without lineage")
    parser.add_argument("--source_tag", required=True, help="tag of the labels that are there")
    parser.add_argument("--new_tag", required=True, help="tag of the new labels")
    recap = parser.add_argument_group("labels by values (RECAP)")
    recap.add_argument("--advantage_lookahead_step", "--advantage_horizon", type=int, help="N; as in the source if absent")
    recap.add_argument("--gamma", type=float, help="must be that of the returns; without lineage 1.0 if absent")
    recap.add_argument("--positive_quantile", type=float, help="share of the pool that is positive")
    recap.add_argument("--pool", help="all, rollout, per_task or per_dataset")
    steam = parser.add_argument_group("labels by scores (STEAM)")
    steam.add_argument("--mode", choices=("threshold", "quantile"), help="as in the source if absent")
    steam.add_argument("--positive_threshold", type=float, help="score above which frames of rollouts are positive")
    steam.add_argument("--rollout_quantile", type=float, help="share of the frames of rollouts that is positive")
    steam.add_argument("--expert_quantile", type=float, help="share of the frames of demonstrations; all if absent in mode quantile")
    relabel_stage(**vars(parser.parse_args()))


if __name__ == "__main__":
    run_main(main)
