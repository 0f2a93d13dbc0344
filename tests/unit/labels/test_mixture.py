import json

import pytest
import yaml

from recap_steam.errors import UserError
from recap_steam.labels.fragment import read_fragment
from recap_steam.labels.mixture import merge_fragments, mixture_stage


def merge(workspace, dataset="rollouts"):
    receipt = workspace.root / f"published/{dataset}/mixture.json"
    mixture_stage(workspace.experiment, dataset, [workspace.threshold], receipt)
    path = workspace.root / dataset / "meta/mixture_config.yaml"
    return yaml.safe_load(path.read_text()), json.loads(receipt.read_text())


def test_mixture_has_the_keys_of_the_reference_and_ours(workspace):
    fragment = read_fragment(workspace.label_threshold())
    content, receipt = merge(workspace)
    assert (content["global_return_min"], content["global_return_max"]) == (-15.0, 0.0)
    assert content["datasets"] == [
        {"name": "demos", "weight": 1.0, "return_min": None, "return_max": None},
        {"name": "rollouts", "weight": 2.0, "return_min": None, "return_max": None},
    ]
    tag = content["tags"]["n2"]
    assert tag["unified_threshold"] == fragment["thresholds"]["all"]
    assert (tag["positive_quantile"], tag["advantage_lookahead_step"], tag["critic"]) == (0.3, 2, "value")
    assert {row["dataset"] for row in tag["positive_counts"]} == {"rollouts"}
    assert receipt["tags"] == ["n2"]


def test_merging_again_replaces_our_own_file(workspace):
    workspace.label_threshold()
    first, _ = merge(workspace)
    workspace.config["advantages"]["n2"]["positive_quantile"] = 0.6
    workspace.label_threshold()
    second, _ = merge(workspace)
    assert (first["tags"]["n2"]["positive_quantile"], second["tags"]["n2"]["positive_quantile"]) == (0.3, 0.6)


def test_a_foreign_mixture_file_is_refused_and_left_as_it_is(workspace):
    workspace.label_threshold()
    path = workspace.root / "rollouts/meta/mixture_config.yaml"
    path.write_text("unified_threshold: 0.1\n")
    with pytest.raises(UserError, match=r"mixture_config\.yaml: was not written by this workflow.*move it away"):
        merge(workspace)
    assert path.read_text() == "unified_threshold: 0.1\n"
    assert not (workspace.root / "published").exists()


def test_tags_of_several_critics_keep_their_own_range(workspace):
    fragment = read_fragment(workspace.label_threshold())
    other = fragment | {"tag": "other", "return_min": -30.0}
    content = merge_fragments("rollouts", [other, fragment], {"demos": 1.0, "rollouts": 1.0})
    assert content["global_return_min"] is None and content["global_return_max"] == 0.0
    assert {tag: entry["return_min"] for tag, entry in content["tags"].items()} == {"n2": -15.0, "other": -30.0}


@pytest.mark.parametrize(("pool", "key"), [("per_dataset", "rollouts"), ("rollout", "rollout")])
def test_unified_threshold_is_the_one_of_this_dataset(workspace, pool, key):
    workspace.config["advantages"]["n2"]["pool"] = pool
    fragment = read_fragment(workspace.label_threshold())
    content, _ = merge(workspace)
    assert content["tags"]["n2"]["unified_threshold"] == fragment["thresholds"][key]


def test_one_threshold_per_task_has_no_unified_one(workspace):
    workspace.config["advantages"]["n2"]["pool"] = "per_task"
    workspace.label_threshold()
    content, _ = merge(workspace)
    assert content["tags"]["n2"]["unified_threshold"] is None and len(content["tags"]["n2"]["thresholds"]) == 2
