"""Returns and labels that another tool made: read, checked, written under a tag of ours, and used like any other."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.errors import UserError
from recap_steam.labels.imports import import_stage
from recap_steam.labels.publish import publish_stage
from recap_steam.labels.relabel import relabel_stage
from recap_steam.policy.labels import policy_labels
from recap_steam.sidecar import Sidecar, read_sidecar
from tests.unit.labels.test_relabel import NAMES, UNSET, label, relabel, strip_lineage

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/import_sidecar.py"
TAKEN = {"returns": "returns_theirs", "advantages": "advantages_theirs"}


def give(workspace, kind: str, name: str = "rollouts", columns: list[str] | None = None, change=None) -> Path:
    """Lay what the reference would have written beside a dataset: no lineage, other row order, or only some columns, changed."""
    path = workspace.sidecar(name, TAKEN[kind])
    table = pq.read_table(workspace.sidecar(name, "returns_fail9" if kind == "returns" else f"advantages_{workspace.tag}"))
    table = table.replace_schema_metadata(None).take(np.random.default_rng(1).permutation(len(table)))
    table = table if columns is None else table.select(["episode_index", "frame_index", *columns])
    pq.write_table(table if change is None else change(table), path)
    return path


def entry(workspace, kind: str, datasets=("rollouts",), gamma: float = 1.0, **where: str) -> None:
    workspace.config[kind]["mine"] = {"imported": where or {"sidecar": "theirs"}, "datasets": list(datasets)}
    if kind == "returns":
        workspace.config[kind]["mine"]["gamma"] = gamma


def take(workspace, kind: str, name: str = "rollouts") -> Sidecar:
    output = workspace.sidecar(name, f"{kind}_mine")
    import_stage(workspace.experiment, kind, name, "mine", workspace.episodes_path(name), output)
    return read_sidecar(output, kind, workspace.episodes(name), tag="mine")


def add_column(workspace, name: str, column: str, values: np.ndarray) -> None:
    """Write a column (F,) in row order into the dataset's own files."""
    episodes = workspace.episodes(name)
    for path in sorted((workspace.root / name / "data").rglob("*.parquet")):
        table = pq.read_table(path)
        rows = episodes.locate(table["episode_index"].to_numpy(), table["frame_index"].to_numpy())
        pq.write_table(table.append_column(column, pa.array(values[rows])), path)
    workspace.index(name)


def ours(workspace, name: str, stem: str) -> dict:
    return read_sidecar(workspace.sidecar(name, stem), stem.split("_")[0], workspace.episodes(name)).columns


def assert_same(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(column))


def test_returns_of_the_reference(workspace, capsys):
    path = give(workspace, "returns")
    entry(workspace, "returns")
    taken = take(workspace, "returns")
    assert_same(taken.columns, ours(workspace, "rollouts", "returns_fail9"))
    assert taken.lineage.stage == "import_returns"
    assert taken.lineage.parameters == {"imported": {"sidecar": "theirs", "column": None}, "gamma": 1.0}
    fingerprint = workspace.episodes("rollouts").fingerprint
    assert taken.lineage.inputs == {"source": hashlib.sha256(path.read_bytes()).hexdigest(), "episodes/rollouts": fingerprint}
    assert capsys.readouterr().err == f"note: {path}: imported as it is, without lineage: nothing here says or checks what made it\n"


@pytest.mark.parametrize("made", ["workspace", "scored"])
def test_labels_of_the_reference_keep_all_that_they_come_with(request, made):
    workspace = request.getfixturevalue(made)
    label(workspace)
    give(workspace, "advantages")
    entry(workspace, "advantages")
    taken = take(workspace, "advantages")
    assert_same(taken.columns, ours(workspace, "rollouts", f"advantages_{workspace.tag}"))
    assert taken.lineage.stage == "import_advantages"
    assert taken.lineage.parameters == {"imported": {"sidecar": "theirs", "column": None}}
    assert sum(row["num_positive"] for row in taken.lineage.statistics["positive_counts"]) == taken.columns["advantage"].sum()


def test_of_a_file_with_less_the_labels_are_kept(workspace):
    label(workspace)
    give(workspace, "advantages", columns=["advantage", "advantage_continuous"])
    entry(workspace, "advantages")
    assert_same(take(workspace, "advantages").columns, {"advantage": ours(workspace, "rollouts", "advantages_n2")["advantage"]})


@pytest.mark.parametrize(("name", "dtype", "gamma"), [("demos", np.float64, 1.0), ("rollouts", np.float32, 0.9)])
def test_returns_in_a_column_of_the_dataset(workspace, name, dtype, gamma):
    """Of one file an episode and of one file for all; the rewards follow from the returns."""
    workspace.config["returns"]["fail9"]["gamma"] = gamma
    workspace.returns(name)
    expected = ours(workspace, name, "returns_fail9")
    add_column(workspace, name, "mc_return", expected["return"].astype(dtype))
    entry(workspace, "returns", [name], gamma, column="mc_return")
    taken = take(workspace, "returns", name)
    np.testing.assert_array_equal(taken.columns["return"], expected["return"])
    np.testing.assert_allclose(taken.columns["reward"], expected["reward"], rtol=0, atol=1e-5)
    digest = hashlib.sha256(expected["return"].tobytes()).hexdigest()
    assert taken.lineage.parameters["imported"] == {"sidecar": None, "column": "mc_return"} and taken.lineage.inputs["source"] == digest


@pytest.mark.parametrize(("name", "dtype"), [("demos", bool), ("rollouts", np.int64)])
def test_labels_in_a_column_of_the_dataset_are_taken_as_they_are(workspace, name, dtype):
    """Also of demonstrations and corrections, which no rule makes positive."""
    labels = np.random.default_rng(2).random(workspace.episodes(name).num_frames) < 0.5
    labels[workspace.episodes(name).interventions()] = False
    add_column(workspace, name, "advantage", labels.astype(dtype))
    entry(workspace, "advantages", [name], column="advantage")
    assert_same(take(workspace, "advantages", name).columns, {"advantage": labels})


def test_a_policy_trains_on_imported_labels(workspace):
    label(workspace)
    give(workspace, "advantages", columns=["advantage"])
    entry(workspace, "advantages")
    expected = take(workspace, "advantages").columns["advantage"]
    training = {key: value for key, value in workspace.config["critics"]["value"].items() if key != "returns_tag"}
    workspace.config["policies"] = {"policy": training | {"datasets": list(NAMES), "advantage_tag": "mine", "model": {"image_size": 16}}}
    experiment = workspace.experiment
    for name, labels in (("rollouts", expected), ("demos", True)):  # the tag does not label the demonstrations
        found = policy_labels(experiment, experiment.policies["policy"], workspace.episodes(name), np.arange(1))
        np.testing.assert_array_equal(found, labels)


def test_labels_by_imported_returns_are_those_by_the_same_returns(workspace):
    label(workspace)
    before = {name: ours(workspace, name, "advantages_n2") for name in NAMES}
    entry(workspace, "returns", NAMES)
    for name in NAMES:
        give(workspace, "returns", name)
        take(workspace, "returns", name)
    workspace.config["critics"]["value"]["returns_tag"] = "mine"
    workspace.train_critic()
    record = workspace.critic / "lineage.json"
    lineage = json.loads(record.read_text())
    lineage["parameters"]["returns"] = {"imported": {"sidecar": "theirs", "column": None}, "gamma": 1.0}
    record.write_text(json.dumps(lineage))
    for name in NAMES:
        workspace.values(name)
    label(workspace)
    for name in NAMES:
        assert_same(ours(workspace, name, "advantages_n2"), before[name])
    receipt = workspace.root / "receipt.json"
    publish_stage(workspace.experiment, "rollouts", "mine", workspace.episodes_path("rollouts"), receipt)
    assert json.loads(receipt.read_text())["published"]["return"]["min"] == -12.0


def set_column(name: str, values) -> object:
    """A change of a table: another column by that name, from the one that is there."""
    return lambda table: table.set_column(
        table.column_names.index(name), name, pa.array(values(table[name].to_numpy(zero_copy_only=False)))
    )


BROKEN = {
    "a frame is missing": ("advantages", lambda table: table.slice(1), "has no row .*another version of dataset rollouts"),
    "a frame twice": ("advantages", lambda table: pa.concat_tables([table, table.slice(0, 1)]), "has several rows"),
    "an unknown frame": ("returns", set_column("frame_index", lambda column: column + 1), "the dataset has no such frame"),
    "NaN": ("returns", set_column("return", lambda column: column * np.nan), "'return' holds NaN"),
    "scores as labels": ("advantages", set_column("advantage", lambda column: column * 0.3), r"is double, expected bool .*write labels"),
    "other integers": ("advantages", set_column("advantage", lambda column: column + 1), r"'advantage' is 2, expected 0 or 1"),
    "no labels": ("advantages", lambda table: table.drop_columns(["advantage"]), "no column 'advantage'"),
    "no returns": ("returns", lambda table: table.drop_columns(["return"]), "no column 'return'"),
    "returns above 0": ("returns", set_column("return", lambda column: column + 20), "the return 16 is above 0, the best here"),
    "returns of another sum": ("returns", set_column("reward", lambda column: column * 0.5), "set gamma to the discount"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_source_that_does_not_fit_is_one_line(workspace, case):
    kind, change, message = BROKEN[case]
    label(workspace)
    path = give(workspace, kind, change=change)
    entry(workspace, kind)
    with pytest.raises(UserError, match=message) as caught:
        take(workspace, kind)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    assert not workspace.sidecar("rollouts", f"{kind}_mine").exists() and not workspace.leftovers()


def test_returns_of_another_gamma_are_noticed(workspace):
    give(workspace, "returns")
    entry(workspace, "returns", gamma=0.9)
    with pytest.raises(UserError, match=r"the return is not the reward and 0\.9 times the next return; set gamma"):
        take(workspace, "returns")


@pytest.mark.parametrize(("column", "message"), [("absent", "no column 'absent'"), ("timestamp", "is float, expected bool")])
def test_a_column_that_holds_no_labels_is_one_line(workspace, column, message):
    entry(workspace, "advantages", column=column)
    with pytest.raises(UserError, match=message):
        take(workspace, "advantages")


def test_a_source_with_a_lineage_must_be_of_this_dataset(workspace):
    """Such as labels that the relabelling command derived from foreign ones: what it is says where it came from, not what made it."""
    label(workspace)
    strip_lineage(workspace, *NAMES)
    relabel(workspace, new_tag="theirs", types=["sft", "rollout"], positive_quantile=0.5)
    entry(workspace, "advantages")
    assert take(workspace, "advantages").columns["advantage"].any()
    shutil.copy(workspace.sidecar("demos", TAKEN["advantages"]), workspace.sidecar("rollouts", TAKEN["advantages"]))
    with pytest.raises(UserError, match="made from another version of dataset rollouts"):
        take(workspace, "advantages")


def test_imported_labels_can_be_relabelled_if_they_hold_more_than_labels(workspace):
    """The command asks for the type, as of any labels without a critic."""
    label(workspace)
    relabel(workspace, ["rollouts"], new_tag="expected", positive_quantile=0.6)
    give(workspace, "advantages")
    entry(workspace, "advantages")
    take(workspace, "advantages")
    again = {"source_tag": "mine", "dataset_root": None, "dataset_paths": [workspace.root / "rollouts"]}
    again |= dict.fromkeys(UNSET) | {"positive_quantile": 0.6}
    with pytest.raises(UserError, match="carries no lineage, so say with --dataset_types"):
        relabel_stage(**again, new_tag="other", dataset_types=None)
    relabel_stage(**again, new_tag="other", dataset_types=["rollout"])
    assert_same(ours(workspace, "rollouts", "advantages_other"), ours(workspace, "rollouts", "advantages_expected"))
    give(workspace, "advantages", columns=["advantage"])
    take(workspace, "advantages")
    with pytest.raises(UserError, match="holds labels and nothing that they were drawn from"):
        relabel_stage(**again, new_tag="more", dataset_types=["rollout"])


@pytest.mark.parametrize("kind", TAKEN)
def test_the_script(workspace, kind):
    label(workspace)
    give(workspace, kind)
    entry(workspace, kind)
    output = workspace.sidecar("rollouts", f"{kind}_mine")
    slices = {"datasets": workspace.config["datasets"], kind: {"mine": workspace.config[kind]["mine"]}}
    slices[kind]["mine"]["imported"]["column"] = None
    arguments = ["--config", json.dumps(slices), "--kind", kind, "--dataset", "rollouts", "--tag", "mine", "--output", output]
    command = [sys.executable, SCRIPT, *arguments, "--episodes", workspace.episodes_path("rollouts")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "without lineage" in done.stderr and output.exists(), done.stderr
    workspace.sidecar("rollouts", TAKEN[kind]).unlink()
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 1 and failed.stderr.startswith("error: ") and failed.stderr.count("\n") == 1
