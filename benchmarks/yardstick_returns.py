"""The yardstick of the returns stage: read the four columns that it needs, one file after the other, and compute all returns at once."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

COLUMNS = ["episode_index", "frame_index", "is_success", "task_index"]


def main() -> None:
    tables = [pq.ParquetFile(path).read(COLUMNS, use_threads=False) for path in sorted(Path(sys.argv[1], "data").rglob("*.parquet"))]
    episode, success = (np.concatenate([table[column].to_numpy() for table in tables]) for column in ("episode_index", "is_success"))
    last = np.append(episode[1:] != episode[:-1], True)
    ends = np.flatnonzero(last)
    lengths = np.diff(ends, prepend=-1)
    terminal = np.where(success[ends], 0.0, -300.0)
    rewards = np.where(last, np.repeat(terminal, lengths), -1.0).astype(np.float32)
    returns = (np.arange(len(episode)) - np.repeat(ends - terminal, lengths)).astype(np.float32)
    assert returns.shape == rewards.shape


if __name__ == "__main__":
    main()
