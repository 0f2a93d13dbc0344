import json
import subprocess
import sys

import pytest

from recap_steam.errors import UserError
from recap_steam.labels.publish import merge_stats, publish_stage
from recap_steam.sidecar import read_sidecar


def publish(workspace, tag="fail9"):
    receipt = workspace.root / f"published/rollouts/returns_{tag}.json"
    publish_stage(workspace.experiment, "rollouts", tag, workspace.episodes_path("rollouts"), receipt)
    return json.loads(receipt.read_text())


def test_statistics_are_published_beside_all_other_keys(workspace):
    meta = workspace.root / "rollouts/meta"
    original = '{"action": {"mean": [0.1, 1e-17]}, "größe": 3, "return": {"mean": 7}}'
    (meta / "stats.json").write_text(original)
    info = (meta / "info.json").read_bytes()
    receipt = publish(workspace)
    stats = json.loads((meta / "stats.json").read_text())
    expected = read_sidecar(meta / "returns_fail9.parquet", "returns", workspace.episodes("rollouts"), []).lineage.statistics
    assert stats == {"action": {"mean": [0.1, 1e-17]}, "größe": 3, "return": expected["return"], "reward": expected["reward"]}
    assert set(stats["return"]) == {"mean", "std", "min", "max"}
    assert receipt["published"] == expected and receipt["returns_tag"] == "fail9"
    assert (meta / "stats.pristine.json").read_text() == original
    assert (meta / "info.json").read_bytes() == info


def test_the_pristine_copy_stays_what_was_there_first(workspace):
    meta = workspace.root / "rollouts/meta"
    workspace.returns("rollouts", "fail20")
    publish(workspace)
    publish(workspace, "fail20")
    assert json.loads((meta / "stats.json").read_text())["return"]["min"] == -20.0
    assert json.loads((meta / "stats.pristine.json").read_text()) == {}


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_broken_stats_file_is_reported_and_left_alone(workspace, content):
    path = workspace.root / "rollouts/meta/stats.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"stats\.json: .*repair or remove it"):
        publish(workspace)
    assert path.read_text() == content
    assert not (workspace.root / "published").exists() and not workspace.leftovers()


def test_concurrent_publishers_lose_no_update(tmp_path):
    """Four processes, 25 keys each, one file: the reference's read-modify-write loses updates here."""
    path = tmp_path / "stats.json"
    code = (
        "import sys, pathlib; from recap_steam.labels.publish import merge_stats\n"
        "for i in range(25): merge_stats(pathlib.Path(sys.argv[1]), {f'{sys.argv[2]}_{i}': {'mean': i}})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(number)]) for number in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    assert json.loads(path.read_text()) == {f"{number}_{i}": {"mean": i} for number in range(4) for i in range(25)}


def test_a_symlinked_stats_file_does_not_change_what_it_points_to(tmp_path):
    """Datasets from a hub cache are symlinks into it."""
    (tmp_path / "blob").write_text('{"a": 1}')
    (tmp_path / "stats.json").symlink_to("blob")
    merge_stats(tmp_path / "stats.json", {"return": {"mean": 0.0}})
    assert (tmp_path / "blob").read_text() == '{"a": 1}'
    assert json.loads((tmp_path / "stats.json").read_text()) == {"a": 1, "return": {"mean": 0.0}}
