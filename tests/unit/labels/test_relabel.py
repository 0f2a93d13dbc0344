"""Relabelling: the workflow's labels for the same parameters, from our sidecars and from the reference's, and no other file touched."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.errors import UserError
from recap_steam.labels.parameters import label_parameters
from recap_steam.labels.relabel import relabel_stage
from recap_steam.sidecar import read_sidecar

SCRIPT = Path(__file__).parents[3] / "workflow/scripts/relabel_advantages.py"
NAMES = ("demos", "rollouts")
UNSET = (
    "advantage_lookahead_step",
    "gamma",
    "positive_quantile",
    "pool",
    "mode",
    "positive_threshold",
    "rollout_quantile",
    "expert_quantile",
)


def relabel(workspace, names=NAMES, new_tag="other", types=None, **options) -> None:
    paths = [workspace.root / name for name in names]
    given = dict.fromkeys(UNSET) | options
    relabel_stage(source_tag=workspace.tag, new_tag=new_tag, dataset_root=None, dataset_paths=paths, dataset_types=types, **given)


def label(workspace) -> None:
    workspace.label_threshold()
    for name in NAMES:
        workspace.advantages(name)


def by_the_workflow(workspace, entry: dict, name: str) -> pa.Table:
    """What the label rules write for ``entry``."""
    workspace.config["advantages"]["again"] = entry
    again = type(workspace)(workspace.root, workspace.config, "again")
    again.label_threshold()
    return pq.read_table(again.advantages(name))


def columns_of(workspace, name: str, tag: str = "other") -> pa.Table:
    return pq.read_table(workspace.sidecar(name, f"advantages_{tag}"))


def printed_entry(printed: str, tag: str = "other") -> dict:
    return yaml.safe_load(printed[printed.index("\nadvantages:") :])["advantages"][tag]


def strip_lineage(workspace, *names: str) -> None:
    """What the reference would have written: no lineage, rows in the order in which its workers ended."""
    for name in names:
        path = workspace.sidecar(name, f"advantages_{workspace.tag}")
        table = pq.read_table(path).replace_schema_metadata(None)
        pq.write_table(table.take(np.random.default_rng(1).permutation(len(table))), path)


def digests(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


RECAP = [
    {"positive_quantile": 0.6},
    {"pool": "per_task"},
    {"pool": "per_dataset", "positive_quantile": 0.5},
    {"pool": "rollout", "advantage_lookahead_step": 3},
    {"advantage_lookahead_step": 100, "gamma": 0.9},
]
STEAM = [
    {"rollout_quantile": 0.7},
    {"positive_quantile": 0.7, "expert_quantile": 0.5},
    {"mode": "threshold", "positive_threshold": -0.2},
    {"mode": "threshold", "positive_threshold": -1.5},
]


@pytest.mark.parametrize("normalization", ["global", "per_task"])
@pytest.mark.parametrize("options", RECAP, ids=str)
def test_labels_by_values_are_those_of_the_workflow(workspace, capsys, options, normalization):
    gamma = options.get("gamma", 1.0)
    workspace.config["returns"]["fail9"]["gamma"] = gamma
    workspace.train_critic({"open the drawer": -15.0, "close the drawer": -7.0} if normalization == "per_task" else -15.0, 1.0, gamma=gamma)
    for name in NAMES:
        workspace.returns(name)
        workspace.values(name)
    label(workspace)
    relabel(workspace, **options)
    entry = printed_entry(capsys.readouterr().out)
    assert {name: entry[name] for name in options if name != "gamma"} == {name: options[name] for name in options if name != "gamma"}
    for name in NAMES:
        assert columns_of(workspace, name).equals(by_the_workflow(workspace, entry, name))


@pytest.mark.parametrize("baseline", [False, True])
@pytest.mark.parametrize("options", STEAM, ids=str)
def test_labels_by_scores_are_those_of_the_workflow(scored, capsys, options, baseline):
    """The rollouts have an episode that is too short to be judged, which no threshold makes positive."""
    scored.labels["subtract_baseline"] = baseline
    label(scored)
    relabel(scored, **options)
    entry = printed_entry(capsys.readouterr().out)
    for name in NAMES:
        assert columns_of(scored, name).equals(by_the_workflow(scored, entry, name))


def test_the_new_labels_say_what_they_come_from_and_have_the_parameters_of_the_entry(workspace, capsys):
    label(workspace)
    relabel(workspace, positive_quantile=0.5)
    workspace.config["advantages"]["other"] = printed_entry(capsys.readouterr().out)
    for name in NAMES:
        parameters = label_parameters(workspace.experiment, "other")
        path = workspace.sidecar(name, "advantages_other")
        lineage = read_sidecar(path, "advantages", workspace.episodes(name), tag="other", parameters=parameters).lineage
        source = workspace.sidecar(name, "advantages_n2")
        before = read_sidecar(source, "advantages", workspace.episodes(name)).lineage
        assert lineage.stage == "relabel_advantages" and lineage.parameters["derived_from"] == "n2"
        assert lineage.inputs.pop("derived_from") == hashlib.sha256(source.read_bytes()).hexdigest()
        assert lineage.inputs.items() <= before.inputs.items() and f"values/{name}" in lineage.inputs
        assert {row["dataset"] for row in lineage.statistics["positive_counts"]} == {name}


def test_relabelled_labels_can_be_relabelled(workspace):
    label(workspace)
    relabel(workspace, new_tag="other", positive_quantile=0.5, advantage_lookahead_step=3)
    workspace.tag = "other"
    relabel(workspace, new_tag="back", positive_quantile=0.3, advantage_lookahead_step=2)
    for name in NAMES:
        assert columns_of(workspace, name, "back").equals(columns_of(workspace, name, "n2"))


@pytest.mark.parametrize("made", ["workspace", "scored"])
def test_defect_11_relabelling_touches_no_other_file(request, made):
    workspace = request.getfixturevalue(made)
    label(workspace)
    before = digests(workspace.root)
    relabel(workspace, positive_quantile=0.5)
    after = digests(workspace.root)
    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {workspace.sidecar(name, "advantages_other") for name in NAMES}


def test_defect_11_demonstrations_and_corrections_stay_positive(workspace):
    label(workspace)
    relabel(workspace, positive_quantile=0.01)
    assert pc.all(columns_of(workspace, "demos")["advantage"]).as_py()
    labels = columns_of(workspace, "rollouts")["advantage"].to_numpy()
    corrected = workspace.episodes("rollouts").interventions()
    assert labels[corrected].all() and corrected.any() and not labels.all()


def test_an_existing_tag_is_refused_before_anything_is_written(workspace):
    label(workspace)
    workspace.sidecar("rollouts", "advantages_other").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"advantages_other.parquet: exists, .*choose another --new_tag"):
        relabel(workspace, positive_quantile=0.5)
    assert workspace.sidecar("rollouts", "advantages_other").read_bytes() == b"mine"
    assert not workspace.sidecar("demos", "advantages_other").exists()
    with pytest.raises(UserError, match="choose another --new_tag"):
        relabel(workspace, new_tag="n2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "quantile"}, "--mode: is for labels of method steam"),
        ({"positive_quantile": 1.5}, "advantages.other.positive_quantile: 1.5"),
        ({"pool": "best"}, "advantages.other.pool"),
        ({"advantage_lookahead_step": 0}, "advantages.other.advantage_lookahead_step"),
        ({"gamma": 0.5}, "--gamma: .* have gamma 1.0"),
        ({"types": ["sft", "sft"]}, "was labelled as rollout, not sft"),
        ({"types": ["sft", "sft", "sft"]}, "--dataset_types: 3 for 2 datasets"),
        ({"new_tag": "A b"}, "A b"),
        ({"names": ("demos",), "pool": "rollout"}, "--pool: rollout"),
        ({"names": ("demos", "demos")}, "'demos' is given twice"),
    ],
)
def test_options_that_do_not_fit_are_one_error(workspace, options, message):
    label(workspace)
    with pytest.raises(UserError, match=message):
        relabel(workspace, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "all"}, "--pool: is for labels of method recap"),
        ({"positive_quantile": 0.2, "rollout_quantile": 0.3}, "another name"),
        ({"mode": "threshold"}, "positive_threshold: label_mode threshold needs it"),
        ({"mode": "threshold", "positive_threshold": 0.1, "rollout_quantile": 0.2}, "rollout_quantile: is not used"),
        ({"names": ("rollouts",), "expert_quantile": 0.2}, "no dataset of the tag has type sft"),
    ],
)
def test_options_for_scores_that_do_not_fit_are_one_error(scored, options, message):
    label(scored)
    with pytest.raises(UserError, match=message):
        relabel(scored, **options)


def test_labels_of_two_origins_are_not_mixed(workspace):
    label(workspace)
    workspace.config["advantages"]["n2"]["positive_quantile"] = 0.4
    workspace.label_threshold()
    workspace.advantages("rollouts")
    with pytest.raises(UserError, match="not made by the same parameters"):
        relabel(workspace, positive_quantile=0.5)


def test_scores_of_another_run_are_refused(scored):
    label(scored)
    scored.scores("rollouts", {"entropy_aggregated": np.zeros(17)})
    with pytest.raises(UserError, match=r"not the scores that advantages_best40\.parquet was made from"):
        relabel(scored, rollout_quantile=0.5)


@pytest.mark.parametrize("options", [{"positive_quantile": 0.5}, {"pool": "per_task"}, {"advantage_lookahead_step": 4}], ids=str)
def test_labels_of_the_reference_need_a_type_and_then_become_the_same(workspace, capsys, options):
    label(workspace)
    relabel(workspace, new_tag="ours", **options)
    strip_lineage(workspace, *NAMES)
    with pytest.raises(UserError, match="--dataset_types"):
        relabel(workspace, **options)
    relabel(workspace, types=["sft", "rollout"], **options)
    printed = capsys.readouterr()
    assert "no lineage" in printed.out and printed.err.count("carries no lineage") == 2
    for name in NAMES:
        theirs, ours = columns_of(workspace, name), columns_of(workspace, name, "ours")
        assert theirs["advantage"].equals(ours["advantage"])
        np.testing.assert_allclose(theirs["advantage_continuous"].to_numpy(), ours["advantage_continuous"].to_numpy(), rtol=0, atol=1e-12)


def test_labels_derived_from_the_references_can_be_relabelled(workspace):
    label(workspace)
    strip_lineage(workspace, *NAMES)
    before = {
        name: columns_of(workspace, name, "n2").sort_by([("episode_index", "ascending"), ("frame_index", "ascending")]) for name in NAMES
    }
    relabel(workspace, types=["sft", "rollout"], advantage_lookahead_step=4)
    workspace.tag = "other"
    relabel(workspace, new_tag="back", types=["sft", "rollout"], advantage_lookahead_step=2)
    for name in NAMES:
        assert columns_of(workspace, name, "back")["advantage"].equals(before[name]["advantage"])


def test_scores_of_the_reference_never_make_the_last_frame_positive(scored):
    label(scored)
    strip_lineage(scored, *NAMES)
    with pytest.raises(UserError, match="--mode"):
        relabel(scored, types=["sft", "rollout"])
    relabel(scored, types=["sft", "rollout"], mode="threshold", positive_threshold=-1.5)
    episodes = scored.episodes("rollouts")
    last = np.zeros(episodes.num_frames, bool)
    last[episodes.offsets[1:] - 1] = True
    labels = columns_of(scored, "rollouts")["advantage"].to_numpy()
    assert labels[~last].all() and not labels[last & ~episodes.interventions()].any()


def test_a_return_range_that_shifts_is_refused_for_another_look_ahead_only(workspace):
    """The reference maps returns to (x - min) / (max - min) - 1, which is no scale where max is not 0."""
    label(workspace)
    path = workspace.sidecar("rollouts", "advantages_n2")
    table = pq.read_table(path)
    shifted = pc.subtract(table["reward_sum"], 0.5)
    pq.write_table(table.set_column(table.column_names.index("reward_sum"), "reward_sum", shifted).replace_schema_metadata(None), path)
    relabel(workspace, names=("rollouts",), types=["rollout"], positive_quantile=0.5)
    with pytest.raises(UserError, match="not reward_sum_raw divided by one number"):
        relabel(workspace, names=("rollouts",), new_tag="far", types=["rollout"], advantage_lookahead_step=4)


def missing(table):
    return table.slice(1), "episode 0, frame 0 has no row"


def repeated(table):
    return pa.concat_tables([table, table.slice(3, 1)]), "has several rows"


def unknown(table):
    return pa.concat_tables(
        [table, table.slice(0, 1).set_column(0, "episode_index", pa.array([99]))]
    ), "episode 99, frame 0: the dataset has no"


def not_a_number(table):
    wrong = np.where(np.arange(len(table)) == 2, np.nan, 0.0)
    return table.set_column(2, "advantage_continuous", pa.array(wrong)), "episode 0, frame 2: 'advantage_continuous' holds NaN"


def a_text(table):
    return table.set_column(2, "advantage_continuous", pa.array(["0"] * len(table))), "is string"


def no_value(table):
    return table.drop_columns(["value_next"]), "no column 'value_next'"


def null_label(table):
    column = pa.array([None, *[True] * (len(table) - 1)])
    return table.set_column(table.column_names.index("advantage"), "advantage", column), "'advantage' is null"


@pytest.mark.parametrize("broken", [missing, repeated, unknown, not_a_number, a_text, no_value, null_label])
def test_rows_of_the_reference_are_compared_with_the_dataset(workspace, broken):
    label(workspace)
    path = workspace.sidecar("rollouts", "advantages_n2")
    table, message = broken(pq.read_table(path).replace_schema_metadata(None))
    pq.write_table(table, path)
    with pytest.raises(UserError, match=message):
        relabel(workspace, names=("rollouts",), types=["rollout"], positive_quantile=0.5)


@pytest.mark.parametrize("listed", [False, True])
def test_a_folder_of_datasets_is_searched(workspace, capsys, listed):
    """All with the tag, or those that the reference's mixture_config.yaml names."""
    label(workspace)
    (workspace.root / "unlabelled/meta").mkdir(parents=True)
    (workspace.root / "unlabelled/meta/info.json").write_text("{}")
    if listed:
        (workspace.root / "mixture_config.yaml").write_text(yaml.safe_dump({"datasets": [{"name": "rollouts", "weight": 1.0}]}))
    options = dict.fromkeys(UNSET) | {"positive_quantile": 0.5}
    arguments = {"source_tag": "n2", "dataset_root": workspace.root, "dataset_paths": None, "dataset_types": None}
    relabel_stage(**arguments, new_tag="other", **options)
    assert ("unlabelled: has no labels n2 and is left out" in capsys.readouterr().err) == (not listed)
    made = {path.parents[1].name for path in workspace.root.glob("*/meta/advantages_other.parquet")}
    assert made == ({"rollouts"} if listed else set(NAMES))
    with pytest.raises(UserError, match=r"no dataset there has meta/advantages_absent\.parquet"):
        relabel_stage(**arguments | {"source_tag": "absent"}, new_tag="more", **options)


def test_command_with_the_references_flags(workspace):
    label(workspace)
    command = [sys.executable, SCRIPT, "--dataset_root", workspace.root, "--source_tag", "n2", "--new_tag", "other"]
    done = subprocess.run([*command, "--advantage_horizon", "3", "--positive_quantile", "0.5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entry = printed_entry(done.stdout)
    assert entry["advantage_lookahead_step"] == 3 and entry["positive_quantile"] == 0.5
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1 and again.stderr.startswith("error: ") and again.stderr.count("\n") == 1
