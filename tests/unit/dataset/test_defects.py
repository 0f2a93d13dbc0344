"""Data defects of the system that the seeds describe, by their number in its list; none of them is ours."""

from collections import Counter

import av
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.dataset.episodes import index_stage, load_episodes
from recap_steam.dataset.frames import build_frame_cache
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage
from recap_steam.sidecar import read_sidecar, write_sidecar
from tests.datasets import index, write_v21, write_v30


def _outcome_of(values):
    """A ``columns`` function that writes ``values`` as the outcome of episode 1."""

    def change(table: pa.Table, position: int) -> pa.Table:
        return table if position != 1 else table.set_column(table.schema.get_field_index("is_success"), "is_success", [pa.array(values)])

    return change


@pytest.mark.parametrize("values", [[float("nan")] * 2, ["False"] * 2, [[False, False]] * 2, [None, None]])
def test_defect_04_outcome_is_never_truthiness(tmp_path, values):
    """There, NaN and "False" count as success, and null as failure."""
    root = write_v21(tmp_path / "data", [2, 2], success=[True, True], columns=_outcome_of(values))
    with pytest.raises(UserError, match="episode 1, frame 0: is_success is "):
        index(root)


def test_defect_04_a_list_that_holds_false_is_a_failure(tmp_path):
    """There, ``[False]`` counts as success."""
    convert = {"columns": lambda t, _: t.set_column(t.column_names.index("is_success"), "is_success", pa.array([[False]] * len(t)))}
    _, episodes = index(write_v21(tmp_path / "data", [2, 2], success=[False, False], **convert))
    assert not episodes.success.any()


@pytest.mark.parametrize(("values", "success"), [([False, False, True], True), ([False] * 3, False), ([True] * 3, True)])
def test_defect_05_one_outcome_per_episode(tmp_path, values, success):
    """There, one method reads the last frame and the other the first, so a flag on the terminal frame means both."""
    _, episodes = index(write_v21(tmp_path / "data", [3, 3], success=[True, True], columns=_outcome_of(values)))
    assert episodes.success[1] == success


def test_defect_05_a_flag_on_an_early_frame_only_is_refused(tmp_path):
    root = write_v21(tmp_path / "data", [3, 3], success=[True, True], columns=_outcome_of([True, False, False]))
    with pytest.raises(UserError, match="episode 1: is_success is true in 1 of 3 frames"):
        index(root)


def test_defect_06_episodes_span_files_and_come_unsorted(tmp_path):
    """There, a part of an episode in another file is an episode of its own, and rows are taken in file order."""
    root = write_v30(tmp_path / "data", [5, 4], success=[True, False])
    _, tidy = index(root)
    path = next((root / "data").rglob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.take([8, 2, 0, 6]), root / "data/chunk-000/file-001.parquet")
    pq.write_table(table.take([7, 4, 1, 3, 5]), path)
    _, mixed = index(root)
    assert mixed.length.tolist() == [5, 4] and mixed.fingerprint == tidy.fingerprint


def test_defect_06_a_gap_is_an_error(tmp_path):
    root = write_v30(tmp_path / "data", [5, 4], success=[True, False])
    path = next((root / "data").rglob("*.parquet"))
    pq.write_table(pq.read_table(path).take([0, 1, 3, 4, 5, 6, 7, 8]), path)
    with pytest.raises(UserError, match=r"file-000\.parquet: episode 0, frame 2 is missing"):
        index(root)


def test_defect_07_episode_indices_need_not_be_contiguous(tmp_path):
    """There, ends are looked up by ordinal, so episode 7 of 2 ends after every frame."""
    _, episodes = index(write_v21(tmp_path / "data", [3, 2], success=[True, True], episode_indices=[4, 7]))
    assert episodes.episode_index.tolist() == [4, 7] and episodes.offsets.tolist() == [0, 3, 5]
    assert episodes.frame_keys()[0].tolist() == [4, 4, 4, 7, 7]


@pytest.mark.parametrize("kind", ["Sft", "SFT", "demo", None])
def test_defect_08_the_type_is_stated_and_exact(kind):
    """There, a missing type means sft in one step and rollout in another, and only one of them ignores case."""
    dataset = {"path": "x"} | ({"type": kind} if kind else {})
    with pytest.raises(UserError, match=r"datasets\.data.*(is not one of|'type' is a required property)"):
        load_experiment({"experiment": "test", "datasets": {"data": dataset}})


def test_defect_09_task_texts_of_v30_are_read(tmp_path):
    """There, tasks.parquet is not read, and every prompt becomes one literal. The text is the pandas index, or a column ``task``."""
    root = write_v30(tmp_path / "data", [3, 2], success=[True, True], tasks=["open the drawer", "close it"])
    assert index(root)[1].tasks == ["close it", "open the drawer"]
    path = root / "meta/tasks.parquet"
    pq.write_table(pq.read_table(path).rename_columns(["task_index", "task"]), path)
    assert index(root)[1].tasks == ["close it", "open the drawer"]


@pytest.mark.parametrize("write", [write_v21, write_v30])
def test_defect_09_no_default_prompt(tmp_path, write):
    root = write(tmp_path / "data", [3, 2], success=[True, True])
    next((root / "meta").glob("tasks.*")).unlink()
    with pytest.raises(UserError, match="so task texts are unknown"):
        index(root)


def test_defect_10_info_and_data_are_never_touched(tmp_path):
    """There, computing returns adds features to info.json that the data files lack, and lerobot can no longer load the dataset."""
    root = write_v21(tmp_path / "data", [3, 2], success=[True, False])
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    experiment = load_experiment({"experiment": "test", "datasets": {"data": {"path": str(root), "type": "rollout"}}})
    index_stage(experiment, "data", tmp_path / "index.parquet")
    episodes = load_episodes(tmp_path / "index.parquet", open_dataset("data", root))
    _returns(root / "meta/returns_x.parquet", episodes)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    assert after.pop(root / "meta/returns_x.parquet") and after == before


def test_defect_20_a_sidecar_of_another_dataset_version_is_refused(tmp_path):
    """There, a sidecar carries no fingerprint, and still joins after episodes were filtered out of the dataset."""
    root = write_v30(tmp_path / "data", [3, 2], success=[True, False])
    _returns(root / "meta/returns_x.parquet", index(root)[1])
    for path in (*(root / "data").rglob("*.parquet"), *(root / "meta/episodes").rglob("*.parquet")):
        pq.write_table(pq.read_table(path).filter(pc.field("episode_index") == 0), path)
    message = r"returns_x\.parquet: made from another version of dataset data .*; run Snakemake again with `--forcerun compute_returns`"
    with pytest.raises(UserError, match=message):
        read_sidecar(root / "meta/returns_x.parquet", "returns", index(root)[1])


def test_defect_42_every_video_is_decoded_once_and_in_order(tmp_path, monkeypatch):
    """There, every sample of every epoch seeks in a video and decodes."""
    really_open, decoded = av.open, Counter()

    class OnePass:
        """A video that can be played, not searched."""

        def __init__(self, path: str):
            self._path, self._container = path, really_open(path)
            self.streams = self._container.streams

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._container.close()

        def decode(self, stream):
            for frame in self._container.decode(stream):
                decoded[self._path] += 1
                yield frame

    dataset, episodes = index(write_v30(tmp_path / "data", [3, 5, 4], cameras=["front", "wrist"], camera_dtype="video"), "sft")
    monkeypatch.setattr(av, "open", OnePass)
    build_frame_cache(dataset, episodes, ["front", "wrist"], 32, tmp_path / "cache.arrow")
    assert list(decoded.values()) == [12, 12]


def _returns(path, episodes) -> None:
    zeros = pa.array([0.0] * episodes.num_frames, pa.float32()).to_numpy()
    prompt = pa.DictionaryArray.from_arrays(episodes.prompt_codes(), episodes.tasks)
    lineage = Lineage("compute_returns", "x", episodes.fingerprint, {}, {}, {}, "code")
    write_sidecar(path, "returns", {"return": zeros, "reward": zeros, "prompt": prompt}, episodes, lineage)
