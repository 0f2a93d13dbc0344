"""Labels from a scores sidecar: the two stages on real files."""

import copy

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.errors import UserError
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.mixture import mixture_stage
from recap_steam.labels.parameters import label_parameters
from recap_steam.sidecar import read_sidecar
from recap_steam.sidecar_schemas import STEAM_ADVANTAGES
from tests.unit.labels.conftest import MEMBERS, NUM_BINS, K
from tests.unit.labels.test_stages import one_line

COPIED = [name for name in STEAM_ADVANTAGES.names[2:] if not name.startswith("advantage")]


def columns_of(scored, name, kind="advantages"):
    stem = f"advantages_{scored.tag}" if kind == "advantages" else "scores_order"
    return read_sidecar(scored.sidecar(name, stem), kind, scored.episodes(name)).columns


def test_the_sidecar_has_the_columns_of_the_reference_and_their_content(scored):
    threshold = read_fragment(scored.label_threshold())["thresholds"]["rollout"]
    path = scored.advantages("rollouts")
    assert pq.read_schema(path).names == STEAM_ADVANTAGES.names
    columns, scores = columns_of(scored, "rollouts"), columns_of(scored, "rollouts", "scores")
    for name in COPIED:
        np.testing.assert_array_equal(columns[name], scores[name])
    np.testing.assert_array_equal(columns["advantage_continuous"], scores["member_values"].min(1))
    judged, corrected = scores["look_ahead"] > 0, scored.episodes("rollouts").interventions()
    np.testing.assert_array_equal(columns["advantage"], judged & ((columns["advantage_continuous"] > threshold) | corrected))
    assert threshold == np.percentile(scores["ensemble_signed_score"][judged], 60.0)
    assert (~judged).any() and (columns["advantage_continuous"][~judged] == -1).all()


def test_demonstrations_are_positive_or_ranked_among_themselves(scored):
    scored.label_threshold()
    scored.advantages("demos")
    assert columns_of(scored, "demos")["advantage"].all()
    scored.labels["expert_quantile"] = 0.5
    thresholds = read_fragment(scored.label_threshold())["thresholds"]
    scored.advantages("demos")
    columns, judged = columns_of(scored, "demos"), columns_of(scored, "demos", "scores")["look_ahead"] > 0
    np.testing.assert_array_equal(columns["advantage"], judged & (columns["advantage_continuous"] > thresholds["expert"]))
    assert columns["advantage"].sum() == judged.sum() // 2


def test_a_fixed_threshold_is_taken_as_it_is(scored):
    del scored.labels["rollout_quantile"]
    scored.labels.update({"label_mode": "threshold", "positive_threshold": -0.3, "intervention_positive": False})
    assert read_fragment(scored.label_threshold())["thresholds"] == {"rollout": -0.3}
    scored.advantages("rollouts")
    columns = columns_of(scored, "rollouts")
    np.testing.assert_array_equal(columns["advantage"], columns["ensemble_signed_score"] > -0.3)


@pytest.mark.parametrize(("lookahead", "baseline"), [(None, 5), (1, 3)])
def test_defect_17_the_baseline_moves_advantages_and_not_the_copied_scores(scored, lookahead, baseline):
    scored.labels.update({"subtract_baseline": True, "baseline_lookahead": lookahead})
    fragment = read_fragment(scored.label_threshold())
    scored.advantages("rollouts")
    columns, scores = columns_of(scored, "rollouts"), columns_of(scored, "rollouts", "scores")
    expected = (2 / NUM_BINS * (scores["member_expected_bins"] - baseline)).min(1)
    np.testing.assert_allclose(columns["advantage_continuous"], expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(columns["ensemble_signed_score"], scores["ensemble_signed_score"])
    assert fragment["baseline_bin"] == baseline
    judged = scores["look_ahead"] > 0
    assert fragment["thresholds"]["rollout"] == np.percentile(columns["advantage_continuous"][judged], 60.0)
    assert not columns["advantage"][~judged].any()


def test_defect_18_no_threshold_reaches_frames_that_cannot_be_judged(scored):
    """A threshold below every score: only episodes without a full look-ahead stay negative, though they score -1."""
    del scored.labels["rollout_quantile"]
    scored.labels.update({"label_mode": "threshold", "positive_threshold": -2.0, "subtract_baseline": True})
    scored.label_threshold()
    scored.advantages("rollouts")
    np.testing.assert_array_equal(columns_of(scored, "rollouts")["advantage"], scored.look_ahead("rollouts") > 0)


def test_threshold_file_states_what_was_done_and_what_came_out(scored):
    fragment = read_fragment(scored.label_threshold())
    expected = {
        "tag": "best40", "label_mode": "quantile", "rollout_quantile": 0.4, "expert_quantile": None, "subtract_baseline": False,
        "baseline_bin": None, "k": K, "num_bins": NUM_BINS, "ensemble_size": MEMBERS, "length_scale": None, "critic": "order",
        "total_samples": 24, "intervention_positive": True,
    }  # fmt: skip
    assert {key: fragment[key] for key in expected} == expected
    assert fragment["positive_threshold"] == fragment["thresholds"]["rollout"]
    labels = []
    for name in ("demos", "rollouts"):
        scored.advantages(name)
        labels.append(columns_of(scored, name)["advantage"])
    assert fragment["num_positive"] == sum(map(np.sum, labels))
    outcome = scored.episodes("rollouts").row_success()
    failure, success = (row for row in fragment["positive_counts"] if row["dataset"] == "rollouts")
    assert (failure["num_positive"], success["num_positive"]) == (labels[1][~outcome].sum(), labels[1][outcome].sum())
    lineage = read_sidecar(scored.sidecar("rollouts", "advantages_best40"), "advantages", scored.episodes("rollouts"), []).lineage
    assert lineage.statistics["positive_counts"] == [failure, success]
    assert lineage.parameters == label_parameters(scored.experiment, "best40")
    assert set(lineage.inputs) == {"critic", "episodes/rollouts", "scores/rollouts", "threshold"}


def test_another_rule_is_another_tag_and_touches_nothing_else(scored):
    scored.label_threshold()
    scored.advantages("rollouts")
    before = {path: path.read_bytes() for path in scored.root.rglob("*") if path.is_file()}
    again = copy.deepcopy(scored.labels) | {"rollout_quantile": 0.8}
    scored.config["advantages"]["best80"], scored.tag = again, "best80"
    made = [scored.label_threshold(), scored.advantages("rollouts")]
    after = {path: path.read_bytes() for path in scored.root.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} == set(made)


def test_two_runs_give_the_same_bytes(scored):
    made = []
    for _ in range(2):
        paths = [scored.scores("rollouts"), scored.label_threshold(), scored.advantages("rollouts")]
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 4}, r"parameters\.k is 4, needed is 3"),
        ({"num_bins": 2}, r"parameters\.num_bins is 2, needed is 6"),
        ({"cameras": {"c": "other"}}, r"parameters\.cameras is .*other.*, needed is .*"),
        ({"inputs": {"critic": "0" * 64}}, r"inputs\.critic is 000000000000, needed is .*"),
    ],
)
def test_scores_of_something_else_are_refused(scored, change, message):
    scored.scores("rollouts", **change)
    with pytest.raises(UserError, match=rf"scores_order\.parquet: {message}; run .* `--forcerun compute_scores`") as error:
        scored.label_threshold()
    one_line(error)
    assert not scored.threshold.exists() and not scored.leftovers()


def test_scores_of_an_ensemble_that_was_trained_again_are_refused(scored):
    scored.label_threshold()
    scored.train_ensemble(length_scale={"percentile": 90, "max_length": 7})
    with pytest.raises(UserError, match=r"scores_order\.parquet: inputs\.critic is .*compute_scores"):
        scored.advantages("rollouts")


def test_missing_scores_name_the_target(scored):
    scored.sidecar("rollouts", "scores_order").unlink()
    with pytest.raises(UserError, match=r"scores_order\.parquet: not found; run Snakemake again with the target `scores`") as error:
        scored.label_threshold()
    one_line(error)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("baseline", [False, True])
def test_a_score_that_is_no_number_is_an_error_that_names_episode_and_frame(scored, bad, baseline):
    scored.labels["subtract_baseline"] = baseline
    path = scored.sidecar("rollouts", "scores_order")
    table, name = pq.read_table(path), "member_expected_bins" if baseline else "ensemble_signed_score"
    values = np.array(table[name].to_pylist())
    values[10] = bad
    field = table.schema.field(name)
    pq.write_table(table.set_column(table.schema.get_field_index(name), field, [values.tolist()]), path)
    with pytest.raises(UserError, match=rf"scores_order\.parquet: column '{name}' .*episode 2, frame 1") as error:
        scored.label_threshold()
    one_line(error)
    assert not scored.threshold.exists() and not scored.leftovers()


@pytest.mark.parametrize("change", [{"rollout_quantile": 0.5}, {"expert_quantile": 0.5}, {"subtract_baseline": True}])
def test_a_threshold_of_other_parameters_is_refused(scored, change):
    scored.label_threshold()
    scored.labels.update(change)
    key = next(iter(change))
    with pytest.raises(UserError, match=rf"best40\.yaml: parameters\.{key} is .*compute_threshold, tag best40"):
        scored.advantages("rollouts")
    assert not scored.sidecar("rollouts", "advantages_best40").exists()


def test_a_threshold_of_other_scores_is_refused(scored):
    scored.label_threshold()
    scored.scores("rollouts", {"entropy_aggregated": np.zeros(17)})
    with pytest.raises(UserError, match=r"best40\.yaml: inputs\.scores/rollouts is .*compute_threshold, tag best40"):
        scored.advantages("rollouts")
    scored.advantages("demos")  # its own inputs did not change


def test_both_methods_label_one_dataset_and_share_its_mixture_file(workspace, scored):
    paths = [workspace.label_threshold(), scored.label_threshold()]
    for made in (workspace, scored):
        made.advantages("rollouts")
    steam = read_fragment(scored.threshold)
    mixture_stage(scored.experiment, "rollouts", paths, scored.root / "mixture.json")
    content = yaml.safe_load((scored.root / "rollouts/meta/mixture_config.yaml").read_text())
    assert (content["global_return_min"], content["global_return_max"]) == (-15.0, 0.0)
    recap, entry = content["tags"]["n2"], content["tags"]["best40"]
    assert "unified_threshold" in recap and "positive_threshold" not in recap and "unified_threshold" not in entry
    columns = columns_of(scored, "rollouts")
    expected = {
        "positive_threshold": steam["thresholds"]["rollout"], "label_mode": "quantile", "ensemble_size": MEMBERS, "num_bins": NUM_BINS,
        "total_samples": 17, "num_positive": int(columns["advantage"].sum()), "dataset_type": "rollout", "rollout_quantile": 0.4, "k": K,
        "critic_digest": steam["critic_digest"],
    }  # fmt: skip
    assert {key: entry[key] for key in expected} == expected
    assert recap["total_samples"] == 17 and {row["dataset"] for row in entry["positive_counts"]} == {"rollouts"}


@pytest.mark.parametrize(("share", "pool"), [(None, "rollout"), (0.5, "expert")])
def test_the_mixture_file_of_demonstrations_states_the_threshold_that_holds_there(scored, share, pool):
    scored.labels["expert_quantile"] = share
    fragment = read_fragment(scored.label_threshold())
    mixture_stage(scored.experiment, "demos", [scored.threshold], scored.root / "mixture.json")
    content = yaml.safe_load((scored.root / "demos/meta/mixture_config.yaml").read_text())
    assert content["global_return_min"] is None
    entry = content["tags"]["best40"]
    assert entry["positive_threshold"] == fragment["thresholds"][pool] and entry["dataset_type"] == "sft"
