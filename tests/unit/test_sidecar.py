"""The sidecar contract: deterministic bytes, fixed schema, and a read that refuses what does not belong to the dataset."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage
from recap_steam.sidecar import read_sidecar, sidecar_path, write_sidecar
from recap_steam.sidecar_schemas import SCHEMAS, STEAM_ADVANTAGES
from tests.datasets import index, write_v21
from tests.disks import small_disk

LENGTHS, SUCCESS = [5, 4, 7], [True, False, True]
FRAMES = sum(LENGTHS)
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def episodes(tmp_path):
    return index(write_v21(tmp_path / "data", LENGTHS, success=SUCCESS, tasks=["open", "close"], episode_indices=[2, 5, 9]))[1]


def _lineage(episodes, **changes) -> Lineage:
    fields = {"stage": "compute_returns", "tag": "fail40", "parameters": {"gamma": 1.0}, "inputs": {}, "statistics": {}, "code": "c"}
    return Lineage(**{"dataset_fingerprint": episodes.fingerprint} | fields | changes)


def _columns(episodes) -> dict:
    prompt = pa.DictionaryArray.from_arrays(episodes.prompt_codes(), episodes.tasks)
    return {"return": -np.arange(FRAMES, dtype=np.float32), "reward": np.full(FRAMES, -1, np.float32), "prompt": prompt}


def _write(path, episodes, **changes) -> None:
    write_sidecar(path, "returns", _columns(episodes) | changes, episodes, _lineage(episodes))


def test_round_trip(tmp_path, episodes):
    path = tmp_path / "returns.parquet"
    _write(path, episodes)
    sidecar = read_sidecar(path, "returns", episodes, tag="fail40", parameters={"gamma": 1.0})
    assert sidecar.columns["return"].tolist() == [-row for row in range(FRAMES)] and sidecar.columns["return"].dtype == np.float32
    assert sidecar.columns["prompt"].to_pylist() == [episodes.tasks[code] for code in episodes.prompt_codes()]
    assert sidecar.lineage == _lineage(episodes)
    assert list(read_sidecar(path, "returns", episodes, ["reward"]).columns) == ["reward"]


def test_table_is_as_the_contract_says(tmp_path, episodes):
    path = tmp_path / "returns.parquet"
    _write(path, episodes)
    table = pq.read_table(path)
    assert table.schema.remove_metadata() == SCHEMAS["returns"]
    assert table.schema.field("prompt").type == pa.dictionary(pa.int32(), pa.string())
    episode, frame = episodes.frame_keys()
    assert table["episode_index"].to_pylist() == episode.tolist() and table["frame_index"].to_pylist() == frame.tolist()
    assert set(table.schema.metadata) == {b"recap_steam"}


def test_advantages_have_the_columns_of_the_reference(tmp_path, episodes):
    path = tmp_path / "advantages.parquet"
    numbers = ["advantage_continuous", "return", "value_current", "value_next", "reward_sum", "reward_sum_raw"]
    columns = {name: np.arange(FRAMES, dtype=np.float64) for name in numbers}
    columns |= {"num_valid_rewards": np.full(FRAMES, 3), "dataset_name": "data", "advantage": np.arange(FRAMES) > 4}
    write_sidecar(path, "advantages", columns, episodes, _lineage(episodes))
    table = pq.read_table(path)
    assert table.column_names == ["episode_index", "frame_index", *numbers, "num_valid_rewards", "dataset_name", "advantage"]
    kinds = [pa.int64()] * 2 + [pa.float64()] * 6 + [pa.int64(), pa.string(), pa.bool_()]
    assert table.schema.types == kinds and set(table["dataset_name"].to_pylist()) == {"data"}
    read = read_sidecar(path, "advantages", episodes)
    assert np.array_equal(read.columns["advantage"], columns["advantage"]) and read.columns["advantage"].dtype == bool


def test_bytes_are_identical_when_recomputed_by_another_process(tmp_path, episodes):
    _write(tmp_path / "one.parquet", episodes)
    code = (
        "import sys, pathlib; from tests.datasets import index; from tests.unit import test_sidecar as t;"
        "t._write(sys.argv[2], index(pathlib.Path(sys.argv[1]))[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "data"), str(tmp_path / "two.parquet")], check=True, cwd=REPOSITORY)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_row_groups(tmp_path, episodes, monkeypatch):
    monkeypatch.setattr("recap_steam.sidecar.ROW_GROUP_ROWS", 3)
    monkeypatch.setattr("recap_steam.sidecar.READ_ROWS", 2)
    path = tmp_path / "returns.parquet"
    _write(path, episodes)
    assert pq.read_metadata(path).num_row_groups == 6
    sidecar = read_sidecar(path, "returns", episodes)
    assert sidecar.columns["return"].tolist() == [-row for row in range(FRAMES)]
    assert sidecar.columns["prompt"].to_pylist() == [episodes.tasks[code] for code in episodes.prompt_codes()]


def test_path(tmp_path):
    raw = {"here": {"path": "a/b", "type": "sft"}, "elsewhere": {"path": "a/b", "type": "sft", "sidecar_root": "c"}}
    datasets = load_experiment({"experiment": "test", "datasets": raw}).datasets
    assert str(sidecar_path(datasets["here"], "here", "returns_x")) == "a/b/meta/returns_x.parquet"
    assert str(sidecar_path(datasets["elsewhere"], "elsewhere", "values_x")) == "c/elsewhere/values_x.parquet"


def test_nan_is_not_written(tmp_path, episodes):
    broken = np.zeros(FRAMES, np.float32)
    broken[6] = np.nan
    with pytest.raises(UserError, match=r"out\.parquet: column 'return' is NaN at episode 5, frame 1; the input"):
        _write(tmp_path / "out.parquet", episodes, **{"return": broken})
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize("broken", [np.zeros(FRAMES), np.zeros(3, np.float32)])
def test_caller_with_another_dtype_or_length(tmp_path, episodes, broken):
    with pytest.raises(ValueError, match="column reward"):
        _write(tmp_path / "out.parquet", episodes, reward=broken)


def _rewrite(path, change) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def _with(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, values(table))


NAN_AT_6 = pa.array([float(row) if row != 6 else np.nan for row in range(FRAMES)], pa.float32())
BROKEN = {
    "missing column": (lambda t: t.drop_columns("reward"), "no column 'reward'"),
    "extra column": (lambda t: t.append_column("x", t["reward"]), "unexpected column 'x'"),
    "wrong dtype": (_with("return", lambda t: t["return"].cast("double")), "column 'return' is double, expected float"),
    "plain text": (_with("prompt", lambda t: t["prompt"].cast("string")), "column 'prompt' is string, expected dictionary"),
    "NaN": (_with("return", lambda _: NAN_AT_6), r"column 'return' is NaN or null at episode 5, frame 1 \(1 such rows\)"),
    "null": (
        _with("reward", lambda t: pa.nulls(len(t), pa.float32())),
        r"column 'reward' is NaN or null at episode 2, frame 0 \(16 such rows\)",
    ),
    "missing keys": (lambda t: t.take([*range(6), *range(8, 16)]), r"episode 5, frame 1 is missing \(2 such frames\)"),
    "missing end": (lambda t: t[:-1], r"episode 9, frame 6 is missing \(1 such frames\)"),
    "extra keys": (
        lambda t: pa.concat_tables([t, _with("frame_index", lambda _: pa.array([7]))(t[-1:])]),
        r"episode 9, frame 7 has no such frame in the dataset \(1 such rows\)",
    ),
    "duplicate keys": (lambda t: t.take([*range(7), 6, *range(7, 16)]), r"episode 5, frame 1 appears more than once \(1 such frames\)"),
    "out of order": (lambda t: t.take([1, 0, *range(2, 16)]), r"episode 2, frame 1 is out of order \(2 such rows\)"),
    "null key": (_with("frame_index", lambda t: pa.array([None, *range(15)], pa.int64())), "a key is null"),
    "empty": (lambda t: t[:0], r"episode 2, frame 0 is missing \(16 such frames\)"),
    "no lineage": (lambda t: t.replace_schema_metadata(None), r"no lineage, so it was not made by this workflow; move it away"),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_broken_sidecar_is_refused_in_one_line(tmp_path, episodes, problem):
    change, message = BROKEN[problem]
    path = tmp_path / "returns.parquet"
    _write(path, episodes)
    _rewrite(path, change)
    with pytest.raises(UserError, match=rf"returns\.parquet: {message}.*run Snakemake again with `--forcerun compute_returns`") as caught:
        read_sidecar(path, "returns", episodes)
    assert "\n" not in str(caught.value)


def test_unreadable_or_missing_file(tmp_path, episodes):
    path = tmp_path / "returns.parquet"
    with pytest.raises(UserError, match=r"returns\.parquet: not found; run Snakemake again with the target `returns`"):
        read_sidecar(path, "returns", episodes)
    for content in (b"", b"not parquet"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"returns\.parquet: not a readable Parquet file.*forcerun compute_returns"):
            read_sidecar(path, "returns", episodes)


def test_other_parameters_or_inputs_are_refused(tmp_path, episodes):
    path = tmp_path / "returns.parquet"
    _write(path, episodes)
    with pytest.raises(UserError, match=r"parameters\.gamma is 1\.0, needed is 0\.9; run .* `--forcerun compute_returns`"):
        read_sidecar(path, "returns", episodes, parameters={"gamma": 0.9})


def test_full_disk_leaves_the_old_sidecar(tmp_path):
    """On a real file system of 16 KiB: constants fit, random numbers do not."""
    with small_disk(tmp_path / "disk", "16k") as disk:
        _, episodes = index(write_v21(tmp_path / "long", [8000]), "sft")
        path, zeros = disk / "values.parquet", np.zeros(8000, np.float32)
        names = ("value", "value_std", "value_entropy")
        write_sidecar(path, "values", dict.fromkeys(names, zeros), episodes, _lineage(episodes))
        before = path.read_bytes()
        noise = np.random.default_rng(0).normal(size=8000).astype(np.float32)
        with pytest.raises(UserError, match=r"values\.parquet: no space left on the device"):
            write_sidecar(path, "values", dict.fromkeys(names, noise), episodes, _lineage(episodes))
        assert path.read_bytes() == before and os.listdir(disk) == ["values.parquet"]


def _scores(members: int = 3) -> dict:
    columns = {field.name: np.linspace(-1, 1, FRAMES) for field in SCHEMAS["scores"] if field.type == pa.float64()}
    by_member = np.arange(FRAMES * members, dtype=np.float64).reshape(FRAMES, members)
    return columns | {"member_values": by_member, "member_expected_bins": by_member, "look_ahead": np.full(FRAMES, 2)}


def test_a_column_of_lists_has_one_number_for_each_member(tmp_path, episodes, monkeypatch):
    monkeypatch.setattr("recap_steam.sidecar.READ_ROWS", 5)
    path = tmp_path / "scores.parquet"
    write_sidecar(path, "scores", _scores(), episodes, _lineage(episodes, stage="compute_scores"))
    found = read_sidecar(path, "scores", episodes, ["member_values", "look_ahead"]).columns
    assert np.array_equal(found["member_values"], _scores()["member_values"]) and found["look_ahead"].tolist() == [2] * FRAMES
    assert pq.read_table(path)["member_values"][1].as_py() == [3.0, 4.0, 5.0]


def test_nan_within_a_list_is_refused(tmp_path, episodes):
    path, columns = tmp_path / "scores.parquet", _scores()
    columns["member_values"][6, 1] = np.nan
    with pytest.raises(UserError, match=r"column 'member_values' is NaN at episode 5, frame 1"):
        write_sidecar(path, "scores", columns, episodes, _lineage(episodes))
    lists = pa.array(columns["member_values"].tolist(), SCHEMAS["scores"].field("member_values").type)
    write_sidecar(path, "scores", _scores(), episodes, _lineage(episodes))
    ragged = pa.array([[0.0]] * (FRAMES - 1) + [[]], lists.type)
    for broken, message in ((lists, "episode 5, frame 1"), (ragged, "different lengths")):
        table = pq.read_table(path)
        table = table.set_column(table.schema.get_field_index("member_values"), "member_values", broken)
        pq.write_table(table, tmp_path / "broken.parquet")
        with pytest.raises(UserError, match=message):
            read_sidecar(tmp_path / "broken.parquet", "scores", episodes)


def test_advantages_of_scores_have_the_columns_of_the_reference(tmp_path, episodes):
    path, labels = tmp_path / "advantages.parquet", np.arange(FRAMES) > 4
    columns = {name: column for name, column in _scores().items() if name not in ("member_expected_bins", "look_ahead")}
    columns |= {"advantage": labels, "advantage_continuous": columns["ensemble_signed_score"]}
    write_sidecar(path, "advantages", columns, episodes, _lineage(episodes))
    table = pq.read_table(path)
    scores = ["ensemble_signed_score", "p_progress_mean", "p_progress_min", "p_progress_variance", "member_values"]
    scores += ["expected_stride_normalized", "entropy_aggregated", "entropy_member_mean", "entropy_member_variance"]
    assert table.column_names == ["episode_index", "frame_index", "advantage", "advantage_continuous", *scores]
    kinds = dict.fromkeys(("episode_index", "frame_index"), pa.int64()) | {"advantage": pa.bool_(), "member_values": pa.list_(pa.float64())}
    assert [field.type for field in table.schema] == [kinds.get(name, pa.float64()) for name in table.column_names]


def test_a_reader_of_labels_reads_those_of_either_method(tmp_path, episodes):
    labels = np.arange(FRAMES) > 4
    for name, schema in (("recap", SCHEMAS["advantages"]), ("steam", STEAM_ADVANTAGES)):
        columns = {field.name: _zeros(field.type) for field in schema if field.name not in ("episode_index", "frame_index")}
        write_sidecar(tmp_path / name, "advantages", columns | {"advantage": labels}, episodes, _lineage(episodes))
        found = read_sidecar(tmp_path / name, "advantages", episodes, ["advantage"]).columns
        assert list(found) == ["advantage"] and np.array_equal(found["advantage"], labels)


def _zeros(kind: pa.DataType) -> np.ndarray | str:
    if pa.types.is_string(kind):
        return "data"
    return np.zeros((FRAMES, 2)) if pa.types.is_list(kind) else np.zeros(FRAMES, kind.to_pandas_dtype())


def test_lists_give_identical_bytes(tmp_path, episodes):
    for name in ("one.parquet", "two.parquet"):
        write_sidecar(tmp_path / name, "scores", _scores(), episodes, _lineage(episodes))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
