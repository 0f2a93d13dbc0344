"""The episode index: content alone decides the fingerprint, and every flaw of a dataset is one line that names it."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.dataset.reader import read_batches
from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from tests.datasets import index, write_v21, write_v30

LENGTHS, SUCCESS = [5, 4, 7], [True, False, True]
SHARED = Path(__file__).parents[4] / "shared/data"


def _stage(root: Path, output: Path, kind: str = "rollout", name: str = "data") -> None:
    index_stage(load_experiment({"experiment": "test", "datasets": {name: {"path": str(root), "type": kind}}}), name, output)


def _set(name: str, values, episode: int = 1):
    """A ``columns`` function: replaces column ``name`` of one episode."""

    def change(table: pa.Table, position: int) -> pa.Table:
        if position != episode:
            return table
        column = values(table) if callable(values) else values
        return table.set_column(table.schema.get_field_index(name), name, [column])

    return change


def _everywhere(name: str, values):
    """A ``columns`` function: replaces column ``name`` of every episode."""
    return lambda table, _: table.set_column(table.schema.get_field_index(name), name, [values(table)])


def _relayout(root: Path, seed: int) -> None:
    """Shuffle all rows of a v2.1 dataset into two files, so that episodes span files and come unsorted."""
    paths = sorted((root / "data").rglob("*.parquet"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    table = table.take(np.random.default_rng(seed).permutation(len(table)))
    for path in paths:
        path.unlink()
    pq.write_table(table[:6], root / "data/b.parquet")
    pq.write_table(table[6:], root / "data/a.parquet")


def test_what_stages_see(tmp_path):
    options = {"tasks": ["open", "close"], "interventions": [(1, 1, 3), (2, 0, 1)], "episode_indices": [2, 5, 9]}
    _, episodes = index(write_v30(tmp_path / "data", LENGTHS, success=SUCCESS, **options))
    assert episodes.episode_index.tolist() == [2, 5, 9] and episodes.offsets.tolist() == [0, 5, 9, 16]
    assert episodes.length.tolist() == LENGTHS and episodes.success.tolist() == SUCCESS
    episode, frame = episodes.frame_keys()
    assert episode.tolist() == [2] * 5 + [5] * 4 + [9] * 7
    assert frame.tolist() == [*range(5), *range(4), *range(7)]
    assert [episodes.tasks[code] for code in episodes.prompt_codes()] == ["open"] * 5 + ["close"] * 4 + ["open"] * 7
    assert np.flatnonzero(episodes.interventions()).tolist() == [6, 7, 9]
    assert episodes.row_success().tolist() == [True] * 5 + [False] * 4 + [True] * 7
    for start in range(17):  # any slice of the keys is the slice of all keys
        for stop in range(start, 17):
            part = episodes.frame_keys(start, stop)
            assert part[0].tolist() == episode[start:stop].tolist() and part[1].tolist() == frame[start:stop].tolist()
    assert episodes.locate(np.array([9, 2, 3, 5]), np.array([6, 0, 0, 4])).tolist() == [15, 0, -1, -1]


@pytest.mark.parametrize("seed", range(5))
def test_fingerprint_is_independent_of_layout_and_row_order(tmp_path, seed):
    options = {"success": SUCCESS, "interventions": [(0, 1, 4), (2, 3, 7)], "tasks": ["open", "close"]}
    root = write_v21(tmp_path / "data", LENGTHS, **options)
    _, tidy = index(root)
    _relayout(root, seed)
    _, shuffled = index(root)
    assert shuffled.digest == tidy.digest and shuffled.fingerprint == tidy.fingerprint
    assert shuffled.intervention_span.tolist() == tidy.intervention_span.tolist()
    assert shuffled.prompt_codes().tolist() == tidy.prompt_codes().tolist()


def test_fingerprint_is_independent_of_batches(tmp_path, monkeypatch):
    root = write_v30(tmp_path / "data", LENGTHS, success=SUCCESS, interventions=[(1, 1, 3)])
    _, whole = index(root)
    monkeypatch.setattr("recap_steam.dataset.indexing.read_batches", functools.partial(read_batches, batch_rows=3))
    _, pieces = index(root)
    assert pieces.digest == whole.digest


@pytest.mark.parametrize(
    "options",
    [
        {"success": [True, True, True]},
        {"tasks": ["close it"]},
        {"interventions": [(1, 2, 3)]},
        {"columns": _set("action", lambda t: pa.array(np.nextafter(t["action"].combine_chunks().flatten(), 9)).cast("float"))},
        {"lengths": [5, 4, 8]},
    ],
)
def test_fingerprint_changes_with_content(tmp_path, options):
    lengths = options.pop("lengths", LENGTHS)
    _, before = index(write_v21(tmp_path / "one", LENGTHS, success=SUCCESS, action_dim=1))
    _, after = index(write_v21(tmp_path / "two", lengths, **{"success": SUCCESS, "action_dim": 1} | options))
    assert before.digest[0] == after.digest[0] or "tasks" in options
    assert before.fingerprint != after.fingerprint


def test_index_file_round_trip_and_byte_identity(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS, tasks=["open", "close"], interventions=[(1, 1, 3), (1, 3, 4), (2, 0, 1)])
    dataset, episodes = index(root)
    _stage(root, tmp_path / "one.parquet")
    shutil.copytree(root, tmp_path / "copy")
    _stage(tmp_path / "copy", tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    loaded = load_episodes(tmp_path / "one.parquet", dataset)
    for name in ("episode_index", "length", "success", "task_start", "task_code", "intervention_span"):
        assert np.array_equal(getattr(loaded, name), getattr(episodes, name)), name
        assert getattr(loaded, name).dtype == getattr(episodes, name).dtype, name
    assert (loaded.digest, loaded.tasks, loaded.fingerprint) == (episodes.digest, episodes.tasks, episodes.fingerprint)


def test_task_and_task_text_may_change_inside_an_episode(tmp_path):
    by_index = _set("task_index", pa.array([0, 0, 1, 1]))
    _, episodes = index(write_v21(tmp_path / "a", LENGTHS, tasks=["open", "close"], columns=by_index), "sft")
    assert [episodes.tasks[code] for code in episodes.prompt_codes()[5:9]] == ["open", "open", "close", "close"]

    def text(table: pa.Table, position: int) -> pa.Table:
        return table.append_column("task", pa.array(["push"] * (len(table) - 1) + ["pull"]))

    root = write_v21(tmp_path / "b", LENGTHS, columns=text)
    (root / "meta/tasks.jsonl").unlink()  # not needed: the texts are in the data
    _, episodes = index(root, "sft")
    assert [episodes.tasks[code] for code in episodes.prompt_codes()[:6]] == ["push"] * 4 + ["pull", "push"]


@pytest.mark.parametrize("form", ["bool", "int64", "uint8", "list", "fixed_size_list", "list_of_int"])
def test_outcome_forms(tmp_path, form):
    convert = {
        "bool": lambda column: column,
        "int64": lambda column: column.cast(pa.int64()),
        "uint8": lambda column: column.cast(pa.uint8()),
        "list": lambda column: pa.array([[value] for value in column.to_pylist()]),
        "fixed_size_list": lambda column: pa.FixedSizeListArray.from_arrays(column.combine_chunks(), 1),
        "list_of_int": lambda column: pa.array([[int(value)] for value in column.to_pylist()]),
    }[form]
    _, episodes = index(
        write_v21(tmp_path / "data", LENGTHS, success=SUCCESS, columns=_everywhere("is_success", lambda t: convert(t["is_success"])))
    )
    assert episodes.success.tolist() == SUCCESS


def test_outcome_on_the_last_frame_only_is_accepted_and_said(tmp_path, capsys):
    last = _set("is_success", pa.array([False, False, False, True]))
    _stage(write_v21(tmp_path / "data", LENGTHS, success=SUCCESS, columns=last), tmp_path / "out.parquet")
    assert "is_success is set on the last frame only, taken as success, in 1 episodes: 1" in capsys.readouterr().err
    metadata = json.loads(pq.read_metadata(tmp_path / "out.parquet").metadata[b"recap_steam"])
    assert metadata["statistics"]["num_successes"] == 3 and "last frame only" in metadata["statistics"]["notes"][0]


def test_outcome_of_demonstrations(tmp_path, capsys):
    _stage(write_v21(tmp_path / "without", LENGTHS), tmp_path / "out.parquet", kind="sft")
    assert "no column 'is_success': all count as successes" in capsys.readouterr().err
    _, episodes = index(write_v21(tmp_path / "with", LENGTHS, success=SUCCESS), "sft")
    assert episodes.success.tolist() == SUCCESS


def test_any_intervention_column_counts(tmp_path):
    def add(table: pa.Table, _: int) -> pa.Table:
        first, last = np.arange(len(table)) == 0, np.arange(len(table)) == len(table) - 1
        return table.append_column("is_intervention", pa.array(first.astype(int))).append_column("intervention", pa.array(last))

    _, episodes = index(write_v21(tmp_path / "data", LENGTHS, success=SUCCESS, columns=add))
    assert np.flatnonzero(episodes.interventions()).tolist() == [0, 4, 5, 8, 9, 15]


# What is wrong with a dataset: (options of the writer, message). Each ends in one line and leaves nothing behind.
NULL_FLAG = pa.array([True, None, True, True])
FLAWS = {
    "null outcome": ({"columns": _set("is_success", NULL_FLAG)}, r"episode_000001\.parquet: episode 1, frame 1: is_success is None"),
    "NaN outcome": (
        {"columns": _set("is_success", pa.array([1.0, np.nan, 1, 1]))},
        r"episode 1, frame 1: is_success is nan .*correct the dataset",
    ),
    "float outcome": ({"columns": _set("is_success", pa.array([1.0] * 4))}, r"episode 1, frame 0: is_success is 1\.0 \(double\)"),
    "text outcome": ({"columns": _set("is_success", pa.array(["True"] * 4))}, r"episode 1, frame 0: is_success is 'True' \(string\)"),
    "outcome of 2": ({"columns": _set("is_success", pa.array([1, 1, 2, 1]))}, r"episode 1, frame 2: is_success is 2"),
    "two outcomes": (
        {"columns": _set("is_success", pa.array([[True], [True, True], [True], [True]]))},
        r"frame 1: is_success is \[True, True\]",
    ),
    "no outcome in list": ({"columns": _set("is_success", pa.array([[True], [], [True], [True]]))}, r"frame 1: is_success is \[\]"),
    "outcomes disagree": (
        {"columns": _set("is_success", pa.array([True, False, True, True]))},
        r"episode 1: is_success is true in 3 of 4 frames",
    ),
    "outcome missing": ({"success": None}, r"no column 'is_success', which a dataset of type rollout needs; add it"),
    "outcome partly missing": (
        {"columns": lambda t, p: t.drop_columns("is_success") if p == 1 else t},
        r"episode_000001\.parquet: column 'is_success' is in some data files and not in others",
    ),
    "NaN intervention": (
        {"columns": lambda t, _: t.append_column("intervention", pa.array([np.nan] * len(t)))},
        r"episode 0, frame 0: intervention is nan",
    ),
    "no action": ({"columns": lambda t, _: t.drop_columns("action")}, r"episode_000000\.parquet: no column 'action'; it has: "),
    "no frame_index": ({"columns": lambda t, _: t.drop_columns("frame_index")}, r"no column 'frame_index'"),
    "no task": ({"columns": lambda t, _: t.drop_columns("task_index")}, r"neither 'task_index' nor 'task' column.*add one"),
    "null task text": ({"columns": lambda t, _: t.append_column("task", pa.nulls(len(t), pa.string()))}, r"column 'task' has nulls"),
    "unknown task": (
        {"columns": _set("task_index", pa.array([0, 0, 7, 7]))},
        r"episode 1, frame 2: task_index 7 is not in the task file.*add",
    ),
    "float key": (
        {"columns": _set("frame_index", pa.array([0.0, 1, 2, 3]))},
        r"episode_000001\.parquet: column 'frame_index' is double, expected int64",
    ),
    "null key": ({"columns": _set("episode_index", pa.array([1, 1, None, 1]))}, r"column 'episode_index' is null at row 2"),
    "text action": ({"columns": _set("action", pa.array(["a"] * 4))}, r"column 'action' is string, expected float32"),
    "NaN action": (
        {"columns": _set("action", pa.array([[0.0, 1], [0, 1], [0, np.nan], [0, 1]]))},
        r"episode 1, frame 2: 'action' holds NaN",
    ),
    "null in action": (
        {"columns": _set("action", pa.array([[0.0, 1], [0, None], [0, 1], [0, 1]]))},
        r"episode 1, frame 1: 'action' holds NaN",
    ),
    "null action": ({"columns": _set("action", pa.array([[0.0, 1], None, [0, 1], [0, 1]]))}, r"episode 1, frame 1: 'action' is null"),
    "ragged action": (
        {"columns": _set("action", pa.array([[0.0, 1], [0, 1], [0], [0, 1]]))},
        r"episode 1, frame 2: 'action' has 1 numbers",
    ),
    "wide action": (
        {"columns": _set("action", pa.array([[0.0, 1, 2]] * 4))},
        r"episode_000001\.parquet: actions have 3 numbers, other files 2",
    ),
    "missing frame": (
        {"columns": lambda t, p: t if p != 1 else t.take([0, 2, 3])},
        r"episode_000001\.parquet: episode 1, frame 1 is missing; restore",
    ),
    "missing first": ({"columns": lambda t, p: t if p != 1 else t.take([1, 2, 3])}, r"episode 1, frame 0 is missing"),
    "missing last": (
        {"columns": lambda t, p: t if p != 1 else t.take([0, 1, 2])},
        r"episode 1 has 3 frames, meta/episodes says 4; restore",
    ),
    "doubled frame": (
        {"columns": lambda t, p: t if p != 1 else t.take([0, 1, 1, 2, 3])},
        r"episode_000001\.parquet: episode 1, frame 1 appears twice",
    ),
    "doubled early": (
        {"columns": lambda t, p: t if p != 1 else t.take([2, 3, 3])},
        r"episode 1, frame 3 appears twice|episode 1, frame 0 is missing",
    ),
    "negative frame": ({"columns": _set("frame_index", pa.array([-1, 0, 1, 2]))}, r"episode 1, frame -1 is negative"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_flaw_is_one_line_and_nothing_is_left(tmp_path, flaw):
    options, message = FLAWS[flaw]
    root = write_v21(tmp_path / "data", LENGTHS, **{"success": SUCCESS} | options)
    with pytest.raises(UserError, match=message) as caught:
        _stage(root, tmp_path / "out/data.parquet")
    assert "\n" not in str(caught.value) and str(root) in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"not parquet", None])
def test_unreadable_file(tmp_path, content):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    path = next((root / "data").rglob("*_000001.parquet"))
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(UserError, match=r"episode_000001\.parquet: not a readable Parquet file .*; restore it from its source") as caught:
        index(root)
    assert "\n" not in str(caught.value)


def test_corrupt_page(tmp_path):
    root = write_v21(tmp_path / "data", [500], success=[True])
    path = next((root / "data").rglob("*.parquet"))
    content = bytearray(path.read_bytes())
    action = pq.read_metadata(path).row_group(0).column(1)
    content[action.data_page_offset : action.data_page_offset + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"episode_000000\.parquet: not a readable Parquet file"):
        index(root)


def test_episode_in_two_files(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    shutil.copy(next((root / "data").rglob("*_000001.parquet")), root / "data/copy.parquet")
    with pytest.raises(UserError, match=r"copy\.parquet: episode 1, frame 0 appears twice; remove the copy"):
        index(root)


def test_empty_file(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    path = next((root / "data").rglob("*_000001.parquet"))
    pq.write_table(pq.read_table(path)[:0], path)
    with pytest.raises(UserError, match=r"episode_000001\.parquet: no rows; restore it from its source"):
        index(root)


def test_empty_dataset(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    shutil.rmtree(root / "data")
    with pytest.raises(UserError, match=r"data/data: no Parquet file; the dataset data is empty: check its path"):
        index(root)


def test_episode_without_data(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    next((root / "data").rglob("*_000001.parquet")).unlink()
    with pytest.raises(UserError, match=r"meta/episodes\.jsonl: episodes without data: 1; restore their data files, or remove their lines"):
        index(root)


def test_episode_without_data_v30(tmp_path):
    root = write_v30(tmp_path / "data", LENGTHS, success=SUCCESS)
    path = next((root / "data").rglob("*.parquet"))
    pq.write_table(pq.read_table(path, filters=[("episode_index", "!=", 1)]), path)
    with pytest.raises(UserError, match=r"meta/episodes: episodes without data: 1; restore their data files, or export"):
        index(root)


def _indexed(tmp_path: Path) -> tuple[Path, Path]:
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    _stage(root, tmp_path / "index.parquet")
    return root, tmp_path / "index.parquet"


def test_unchanged_dataset_is_not_read_again(tmp_path, monkeypatch):
    root, path = _indexed(tmp_path)
    monkeypatch.setattr("recap_steam.dataset.episodes.index_dataset", lambda *_: pytest.fail("read again"))
    load_episodes(path, open_dataset("data", root))


def test_touched_or_copied_dataset_is_accepted(tmp_path):
    root, path = _indexed(tmp_path)
    for file in (root / "data").rglob("*.parquet"):
        os.utime(file)
    before = load_episodes(path, open_dataset("data", root))
    shutil.copytree(root, tmp_path / "copy")
    assert load_episodes(path, open_dataset("data", tmp_path / "copy")).fingerprint == before.fingerprint
    path.with_suffix(".files.json").unlink()
    assert load_episodes(path, open_dataset("data", root)).fingerprint == before.fingerprint


def test_changed_dataset_names_the_episodes(tmp_path):
    root, path = _indexed(tmp_path)
    write_v21(root, [5, 4, 7, 3], success=[True, True, True, True])
    next((root / "data").rglob("*_000002.parquet")).unlink()
    lines = (root / "meta/episodes.jsonl").read_text().splitlines(keepends=True)
    (root / "meta/episodes.jsonl").write_text("".join(lines[:2] + lines[3:]))
    message = r"dataset data changed since it was indexed: episodes changed: 1; episodes added: 3; episodes removed: 2; run Snakemake again"
    with pytest.raises(UserError, match=message):
        load_episodes(path, open_dataset("data", root))


def test_change_that_keeps_size_and_content_but_not_order_is_accepted(tmp_path):
    root, path = _indexed(tmp_path)
    _relayout(root, 0)
    load_episodes(path, open_dataset("data", root))


def test_wrong_index_file(tmp_path):
    root, path = _indexed(tmp_path)
    with pytest.raises(UserError, match=r"tag is data, needed is other; run Snakemake again with `--forcerun index_dataset`"):
        load_episodes(path, open_dataset("other", root))
    with pytest.raises(UserError, match=r"absent\.parquet: not found; run Snakemake again with the target `datasets`"):
        load_episodes(tmp_path / "absent.parquet", open_dataset("data", root))
    path.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"index\.parquet: not a readable episode index; run"):
        load_episodes(path, open_dataset("data", root))


def test_second_writer_is_refused(tmp_path):
    root, path = _indexed(tmp_path)
    before = path.read_bytes()
    with atomic_output(path) as temporary:
        temporary.write_bytes(before)
        with pytest.raises(UserError, match=r"index\.parquet: another process is writing this file; wait"):
            _stage(root, path)
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["data", "index.files.json", "index.parquet"]


def test_script(tmp_path):
    root = write_v21(tmp_path / "data", LENGTHS, success=SUCCESS)
    script = Path(__file__).parents[3] / "workflow/scripts/index_dataset.py"
    config = json.dumps({"experiment": "test", "datasets": {"data": {"path": str(root), "type": "rollout"}}})
    command = [sys.executable, str(script), "--config", config, "--dataset", "data", "--output", str(tmp_path / "out.parquet")]
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
    (root / "meta/tasks.jsonl").unlink()
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 1 and failed.stderr.startswith("error: ") and failed.stderr.count("\n") == 1


def test_public_dataset_v21():
    """Data and metadata of a recording as published (its licence lies beside it)."""
    dataset, episodes = index(Path(__file__).parents[2] / "data/unitree_g1_bottle_v21", "sft")
    assert (dataset.version, dataset.fps, dataset.cameras) == ("v2.1", 30.0, ("observation.images.cam_high",))
    assert episodes.length.tolist() == [319, 278, 221, 277, 267, 326] and episodes.tasks == ["Pick up the yellow bottle on the table."]


@pytest.mark.skipif(not SHARED.exists(), reason="the public dataset has no licence to copy it, and is not beside the repository")
def test_public_dataset_v30():
    dataset, episodes = index(SHARED / "so101_record_v30", "sft")
    assert (dataset.version, dataset.cameras) == ("v3.0", ("observation.images.front", "observation.images.top"))
    assert episodes.length.tolist() == [373, 374, 372, 373] and episodes.tasks == ["Pick the orange cube and place it in the box"]
