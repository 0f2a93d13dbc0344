"""State and action vectors land on their rows, as float32, whatever the column's form."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.dataset.vectors import read_vectors
from recap_steam.errors import UserError
from tests.datasets import index, write_v21, write_v30

LENGTHS = [5, 4]


def _expected(root) -> np.ndarray:
    tables = [pq.read_table(path) for path in sorted((root / "data").rglob("*.parquet"))]
    return np.array(pa.concat_tables(tables)["action"].to_pylist(), dtype=np.float32)


@pytest.mark.parametrize("form", [pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)])
def test_forms(tmp_path, form):
    def change(table, _):
        return table.set_column(table.column_names.index("action"), "action", table["action"].cast(form))

    root = write_v21(tmp_path / "data", LENGTHS, columns=change)
    vectors = read_vectors(*index(root, "sft"), "action")
    assert vectors.dtype == np.float32 and vectors.shape == (9, 2) and np.array_equal(vectors, _expected(root))


def test_rows_out_of_order(tmp_path):
    root = write_v30(tmp_path / "data", LENGTHS)
    expected = _expected(root)
    path = next((root / "data").rglob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.take(np.random.default_rng(0).permutation(9)), path)
    assert np.array_equal(read_vectors(*index(root, "sft"), "action"), expected)


def test_scalars_have_width_one(tmp_path):
    vectors = read_vectors(*index(write_v21(tmp_path / "data", LENGTHS), "sft"), "timestamp")
    assert vectors.shape == (9, 1) and np.allclose(vectors[:, 0], [0, 0.1, 0.2, 0.3, 0.4, 0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.0, 1]] * 3 + [[np.nan, 1]], r"episode_000001\.parquet: episode 1, frame 3: 'observation\.state' holds NaN"),
        ([[0.0, 1]] * 3 + [[1.0]], r"episode 1, frame 3: 'observation\.state' has 1 numbers, the first row has 2"),
        ([[0.0, 1]] * 4, r"episode_000001\.parquet: 'observation\.state' has 2 numbers, other files have 3"),
        (["a"] * 4, r"column 'observation\.state' is string, expected float32"),
    ],
)
def test_bad_vectors(tmp_path, values, message):
    def change(table, position):
        return table if position != 1 else table.set_column(0, "observation.state", pa.array(values))

    dataset, episodes = index(write_v21(tmp_path / "data", LENGTHS, columns=change), "sft")
    with pytest.raises(UserError, match=message) as caught:
        read_vectors(dataset, episodes, "observation.state")
    assert "\n" not in str(caught.value)


def test_missing_column_and_foreign_frame(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS)
    dataset, episodes = index(root, "sft")
    with pytest.raises(UserError, match=r"no column 'torque'; it has: observation\.state, action"):
        read_vectors(dataset, episodes, "torque")
    write_v21(root, [5, 6])
    with pytest.raises(UserError, match=r"episode 1, frame 4 is not in the episode index; run Snakemake again with `--forcerun"):
        read_vectors(dataset, episodes, "action")
