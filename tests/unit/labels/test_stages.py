import numpy as np
import pyarrow.parquet as pq
import pytest

from recap_steam.errors import UserError
from recap_steam.labels.advantages import compute_advantages
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.returns import compute_returns
from recap_steam.sidecar import read_sidecar
from recap_steam.sidecar_schemas import SCHEMAS
from tests.unit.labels.conftest import TASKS, Workspace


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_returns_sidecar_holds_returns_rewards_and_prompts(workspace):
    episodes = workspace.episodes("rollouts")
    sidecar = read_sidecar(workspace.sidecar("rollouts", "returns_fail9"), "returns", episodes, tag="fail9")
    returns, rewards = compute_returns(episodes.length, episodes.success, 1.0, -9.0)
    np.testing.assert_array_equal(sidecar.columns["return"], returns)
    np.testing.assert_array_equal(sidecar.columns["reward"], rewards)
    prompts = sidecar.columns["prompt"].to_pylist()
    assert prompts[0] == prompts[4] == TASKS[0] and prompts[5] == prompts[8] == TASKS[1]
    assert sidecar.lineage.statistics["return"]["min"] == -12.0
    assert sidecar.lineage.parameters == {"gamma": 1.0, "failure_reward": -9}


def test_advantages_sidecar_has_the_columns_of_the_reference_and_their_content(workspace):
    workspace.label_threshold()
    path, episodes = workspace.advantages("rollouts"), workspace.episodes("rollouts")
    assert pq.read_schema(path).names == SCHEMAS["advantages"].names
    columns = read_sidecar(path, "advantages", episodes).columns
    values = read_sidecar(workspace.sidecar("rollouts", "values_value"), "values", episodes, ["value"]).columns["value"]
    returns, _ = compute_returns(episodes.length, episodes.success, 1.0, -9.0)
    expected = compute_advantages(returns, values, episodes.length, lookahead=2, gamma=1.0, discount_next_value=True, scale=15.0)
    np.testing.assert_array_equal(columns["advantage_continuous"], expected.advantage)
    np.testing.assert_array_equal(columns["value_current"], values.astype(float))
    np.testing.assert_array_equal(columns["reward_sum"], columns["reward_sum_raw"] / 15)
    np.testing.assert_array_equal(columns["return"], returns)
    assert set(columns["dataset_name"].to_pylist()) == {"rollouts"}
    threshold = read_fragment(workspace.threshold)["thresholds"]["all"]
    np.testing.assert_array_equal(columns["advantage"], (expected.advantage >= threshold) | episodes.interventions())


def test_labels_do_not_depend_on_the_zero_of_the_value_scale(workspace):
    """A critic with values from 0 to 1 gives the very advantages of one with values from -1 to 0, also past the end of an episode."""
    found = []
    for offset in (0.0, 1.0):
        workspace.train_critic(offset=offset)
        for name in ("demos", "rollouts"):
            steps = np.random.default_rng(1).integers(0, 1025, workspace.episodes(name).num_frames)
            workspace.values(name, (offset - steps / 1024).astype(np.float32))
        workspace.label_threshold()
        found.append(read_sidecar(workspace.advantages("rollouts"), "advantages", workspace.episodes("rollouts")).columns)
    for column in ("advantage_continuous", "advantage", "value_current", "value_next", "reward_sum"):
        np.testing.assert_array_equal(found[0][column], found[1][column])
    assert found[0]["value_current"].max() <= 0


def test_demonstrations_and_corrections_are_positive(workspace):
    workspace.label_threshold()
    demos = read_sidecar(workspace.advantages("demos"), "advantages", workspace.episodes("demos"), ["advantage"])
    rollouts = read_sidecar(workspace.advantages("rollouts"), "advantages", workspace.episodes("rollouts"), ["advantage"])
    assert demos.columns["advantage"].all()
    assert rollouts.columns["advantage"][[7, 8]].all()  # frames 2 and 3 of episode 1


def test_threshold_file_states_what_was_done_and_what_came_out(workspace):
    workspace.config["advantages"]["n2"] |= {"pool": "rollout", "positive_quantile": 0.4, "intervention_positive": False}
    fragment = read_fragment(workspace.label_threshold())
    expected = {
        "tag": "n2", "pool": "rollout", "positive_quantile": 0.4, "advantage_lookahead_step": 2, "discount_next_value": True,
        "gamma": 1.0, "failure_reward": -9, "returns_tag": "fail9", "critic": "value", "return_min": -15.0, "return_max": 0.0,
    }  # fmt: skip
    assert {key: fragment[key] for key in expected} == expected
    assert [row["name"] for row in fragment["datasets"]] == ["demos", "rollouts"]
    rollouts = read_sidecar(workspace.advantages("rollouts"), "advantages", workspace.episodes("rollouts"), ["advantage"])
    failure, success = (row for row in fragment["positive_counts"] if row["dataset"] == "rollouts")
    labels, outcome = rollouts.columns["advantage"], workspace.episodes("rollouts").row_success()
    assert (failure["num_positive"], success["num_positive"]) == (labels[~outcome].sum(), labels[outcome].sum())
    assert labels.mean() == pytest.approx(0.4, abs=1 / len(labels))
    assert rollouts.lineage.statistics["positive_counts"] == [failure, success]


@pytest.mark.parametrize("pool", ["all", "rollout", "per_task", "per_dataset"])
def test_every_pool_labels_what_its_threshold_says(workspace, pool):
    workspace.config["advantages"]["n2"]["pool"] = pool
    thresholds = read_fragment(workspace.label_threshold())["thresholds"]
    episodes = workspace.episodes("rollouts")
    columns = read_sidecar(workspace.advantages("rollouts"), "advantages", episodes).columns
    keys = {"per_task": [TASKS[e % 2] for e in range(4)], "per_dataset": ["rollouts"] * 4}.get(pool, [pool] * 4)
    by_row = np.repeat([thresholds[key] for key in keys], episodes.length)
    np.testing.assert_array_equal(columns["advantage"], (columns["advantage_continuous"] >= by_row) | episodes.interventions())


def test_two_runs_give_the_same_bytes(workspace):
    made = []
    for _ in range(2):
        paths = [workspace.returns("rollouts"), workspace.label_threshold(), workspace.advantages("rollouts")]
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]


def test_defect_01_two_return_tags_never_share_a_range(workspace):
    """The reference keeps one untagged range in stats.json, overwritten by every run; here each sidecar and critic states its own."""
    before = read_sidecar(workspace.sidecar("rollouts", "returns_fail9"), "returns", workspace.episodes("rollouts"), []).lineage
    other = read_sidecar(workspace.returns("rollouts", "fail20"), "returns", workspace.episodes("rollouts"), []).lineage
    after = read_sidecar(workspace.sidecar("rollouts", "returns_fail9"), "returns", workspace.episodes("rollouts"), []).lineage
    assert before == after and before.statistics["return"]["min"] == -12.0 and other.statistics["return"]["min"] == -20.0
    assert not (workspace.root / "rollouts/meta/stats.json").exists()
    fragment = read_fragment(workspace.label_threshold())
    assert fragment["return_min"] == -15.0


def test_defect_02_labels_use_the_scale_that_the_critic_was_trained_with(workspace):
    """The reference rebuilds the scale from the datasets that are labelled; here it comes from the critic's folder."""
    workspace.label_threshold()
    rollouts = read_sidecar(workspace.advantages("rollouts"), "advantages", workspace.episodes("rollouts")).columns
    np.testing.assert_array_equal(rollouts["reward_sum"], rollouts["reward_sum_raw"] / 15)
    assert rollouts["return"].min() == -12.0


def test_defect_02_a_critic_of_another_scale_cannot_be_mixed_in(workspace):
    workspace.label_threshold()
    workspace.train_critic(return_min=-30.0)
    with pytest.raises(UserError, match=r"values_value\.parquet: inputs\.critic is .*compute_values") as error:
        workspace.advantages("rollouts")
    one_line(error)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_defect_13_a_value_that_is_no_number_is_an_error_that_names_episode_and_frame(workspace, bad):
    """In the reference one NaN makes the threshold NaN and every label false."""
    value = -np.ones(17, np.float32)
    path = workspace.values("rollouts", value)
    _write_bad_value(path, row=10, bad=bad)
    with pytest.raises(UserError, match=r"values_value\.parquet: .*episode 2, frame 1") as error:
        workspace.label_threshold()
    one_line(error)
    assert not workspace.threshold.exists() and not workspace.leftovers()


def test_defect_11_labelling_again_touches_labels_of_that_tag_only(workspace):
    """The reference's relabelling rewrites outcomes in the data and in episodes.jsonl, and drops the rule for demonstrations."""
    workspace.label_threshold()
    workspace.advantages("rollouts")
    before = {path: path.read_bytes() for path in workspace.root.rglob("*") if path.is_file()}
    workspace.config["advantages"]["n2"]["positive_quantile"] = 0.9
    made = [workspace.label_threshold(), workspace.advantages("rollouts"), workspace.advantages("demos")]
    after = {path: path.read_bytes() for path in workspace.root.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} == set(made)
    assert before.keys() <= after.keys()
    assert read_sidecar(made[2], "advantages", workspace.episodes("demos"), ["advantage"]).columns["advantage"].all()


def test_defect_14_the_returns_come_from_the_critic_and_from_no_fallback(workspace):
    """The reference's `returns_tag: null` read another file than `tag`; here the critic's returns_tag is the only source."""
    workspace.returns("rollouts", "fail20")
    workspace.config["critics"]["value"]["returns_tag"] = "fail20"
    with pytest.raises(UserError, match=r"critic/lineage\.json: parameters\.returns is .*fail.*needed is .*train the critic again"):
        workspace.label_threshold()
    workspace.config["critics"]["value"]["returns_tag"] = "fail9"
    workspace.sidecar("rollouts", "returns_fail9").unlink()
    with pytest.raises(UserError, match=r"returns_fail9\.parquet: not found; run Snakemake again with the target `returns`"):
        workspace.label_threshold()


def test_returns_of_other_parameters_under_the_same_tag_are_refused(workspace):
    workspace.config["returns"]["fail9"]["failure_reward"] = -10
    workspace.train_critic(failure_reward=-10.0)
    workspace.values("demos")
    with pytest.raises(UserError, match=r"returns_fail9\.parquet: parameters\.failure_reward is -9, needed is -10"):
        workspace.label_threshold()


def test_sidecars_of_another_version_of_the_dataset_are_refused(workspace):
    workspace.values("rollouts")
    _shorten(workspace)
    with pytest.raises(UserError, match=r"returns_fail9\.parquet: made from another version of dataset rollouts") as error:
        workspace.label_threshold()
    one_line(error)
    workspace.returns("rollouts")
    with pytest.raises(UserError, match=r"values_value\.parquet: made from another version of dataset rollouts"):
        workspace.label_threshold()
    assert not workspace.threshold.exists() and not workspace.leftovers()


@pytest.mark.parametrize("change", [{"positive_quantile": 0.5}, {"advantage_lookahead_step": 3}, {"pool": "rollout"}])
def test_a_threshold_of_other_parameters_is_refused(workspace, change):
    workspace.label_threshold()
    workspace.config["advantages"]["n2"] |= change
    key = next(iter(change))
    with pytest.raises(UserError, match=rf"n2\.yaml: parameters\.{key} is .*compute_threshold, tag n2"):
        workspace.advantages("rollouts")
    assert not workspace.sidecar("rollouts", "advantages_n2").exists()


def test_a_threshold_of_other_values_is_refused(workspace):
    workspace.label_threshold()
    workspace.values("rollouts", np.full(17, -0.5, np.float32))
    with pytest.raises(UserError, match=r"n2\.yaml: inputs\.values/rollouts is .*compute_threshold, tag n2") as error:
        workspace.advantages("rollouts")
    one_line(error)
    workspace.advantages("demos")  # its own inputs did not change


def test_an_unseen_task_is_named(workspace):
    workspace.train_critic(return_min={TASKS[0]: -5.0})
    workspace.values("demos")
    with pytest.raises(UserError, match="'close the drawer' did not occur in its training data"):
        workspace.label_threshold()


@pytest.mark.parametrize("content", ["", "thresholds: [", "tag: n2\n"])
def test_a_broken_threshold_file_is_one_clear_line(workspace, content):
    workspace.threshold.parent.mkdir()
    workspace.threshold.write_text(content)
    with pytest.raises(UserError, match=r"n2\.yaml: .*compute_threshold") as error:
        workspace.advantages("rollouts")
    one_line(error)


def test_a_missing_critic_is_one_clear_line(workspace):
    (workspace.critic / "lineage.json").unlink()
    with pytest.raises(UserError, match=r"critic/lineage\.json: not found"):
        workspace.label_threshold()


def _write_bad_value(path, row: int, bad: float) -> None:
    """Put a bad number into a sidecar behind the writer's back; the lineage stays."""
    table = pq.read_table(path)
    value = table["value"].to_numpy().copy()
    value[row] = bad
    position = table.schema.get_field_index("value")
    pq.write_table(table.set_column(position, table.schema.field("value"), [value]), path)


def _shorten(workspace: Workspace) -> None:
    """Drop the last frame of episode 2 and index again."""
    path = workspace.root / "rollouts/data/chunk-000/episode_000002.parquet"
    pq.write_table(pq.read_table(path).slice(0, 6), path)
    lines = workspace.root / "rollouts/meta/episodes.jsonl"
    lines.write_text(lines.read_text().replace('"length": 7', '"length": 6'))
    workspace.index("rollouts")
