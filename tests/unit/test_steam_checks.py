"""What progress critics may learn from, and labels by their scores."""

import json
from pathlib import Path

import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.references import check_references
from recap_steam.steam_checks import member_source
from tests.references import SCORES, STEAM, assert_refused, changed, check

SOUND = {
    "rollouts that a progress critic was asked to learn from": {
        f"{STEAM}.datasets": ["demonstrations", "rollouts"],
        f"{STEAM}.train_on_rollouts": True,
    },
    "a threshold of scores": {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None, f"{SCORES}.positive_threshold": -1},
    "a threshold below a baseline": {
        f"{SCORES}.label_mode": "threshold",
        f"{SCORES}.rollout_quantile": None,
        f"{SCORES}.subtract_baseline": True,
        f"{SCORES}.baseline_lookahead": 5,
        f"{SCORES}.positive_threshold": -1.8,
    },
    "a share of both pools": {f"{SCORES}.expert_quantile": 0.8},
    "a share of demonstrations alone": {
        f"{SCORES}.datasets": ["demonstrations"],
        f"{SCORES}.rollout_quantile": None,
        f"{SCORES}.expert_quantile": 0.8,
    },
    "a policy on scores": {"policies.recap.advantage_tag": "steam_q30", "policies.recap.label_control": "shuffled"},
}
BROKEN = {
    "labels of values by scores": (
        {"advantages.n5_q30.critic": "progress"},
        "advantages.n5_q30: its critic 'progress' has method steam; set label_mode (threshold or quantile), or name another critic",
    ),
    "labels of scores by values": (
        {f"{SCORES}.critic": "value"},
        f"{SCORES}: its critic 'value' has method recap; remove label_mode, or name another critic",
    ),
    "progress critic on rollouts": (
        {f"{STEAM}.datasets": ["demonstrations", "rollouts"]},
        f"{STEAM}.datasets: 'rollouts' has type rollout, and only in expert data later is better; remove it here, or set train_on_rollouts",
    ),
    "a scale of two bins": (
        {f"{STEAM}.model.num_bins": 2, f"{STEAM}.length_scale_enabled": True},
        f"{STEAM}.length_scale_enabled: two bins tell only the direction, which no scale changes; use more bins, or remove it",
    ),
    "member that is not there": (
        {f"{STEAM}.members": ["no/member:2"], f"{STEAM}.ensemble_size": 1},
        f"{STEAM}.members: no/member has no config.json; give the folder of a trained member or ensemble",
    ),
    "number of members": ({f"{STEAM}.members": ["no"]}, f"{STEAM}.ensemble_size: 3, but there are 1 members; give that number"),
    "threshold mode without threshold": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.positive_threshold: label_mode threshold needs it; give the score above which a frame is positive",
    ),
    "threshold mode with a share": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.positive_threshold": 0.2},
        f"{SCORES}.rollout_quantile: is not used with label_mode threshold; remove it, or set label_mode: quantile",
    ),
    "quantile mode with a threshold": (
        {f"{SCORES}.positive_threshold": 0.2},
        f"{SCORES}.positive_threshold: is not used with label_mode quantile; remove it, or set label_mode: threshold",
    ),
    "rollouts without a share": (
        {f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.rollout_quantile: label_mode quantile needs it; give the",
    ),
    "demonstrations alone without a share": (
        {f"{SCORES}.datasets": ["demonstrations"], f"{SCORES}.rollout_quantile": None},
        f"{SCORES}.expert_quantile: without rollouts every frame is positive; give the share, or add a rollout dataset",
    ),
    "share of a pool that is empty": (
        {f"{SCORES}.datasets": ["rollouts"], f"{SCORES}.expert_quantile": 0.8},
        f"{SCORES}.expert_quantile: no dataset of the tag has type sft; remove it, or add one",
    ),
    "threshold above every score": (
        {f"{SCORES}.label_mode": "threshold", f"{SCORES}.rollout_quantile": None, f"{SCORES}.positive_threshold": 1.2},
        f"{SCORES}.positive_threshold: 1.2 is no score: these lie between -1 and 1",
    ),
    "threshold below every score with baseline": (
        {
            f"{SCORES}.label_mode": "threshold",
            f"{SCORES}.rollout_quantile": None,
            f"{SCORES}.subtract_baseline": True,
            f"{SCORES}.positive_threshold": -1.9,
        },
        f"{SCORES}.positive_threshold: -1.9 is no score: these lie between -1.8 and 0",
    ),
    "baseline beyond the look-ahead": (
        {f"{SCORES}.subtract_baseline": True, f"{SCORES}.baseline_lookahead": 6},
        f"{SCORES}.baseline_lookahead: 6 is more than k 5 of 'progress'",
    ),
    "baseline that is not subtracted": (
        {f"{SCORES}.baseline_lookahead": 5},
        f"{SCORES}.baseline_lookahead: is only used with a baseline; remove it, or set subtract_baseline: true",
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_experiment_passes(case: str) -> None:
    check(SOUND[case])


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    assert_refused(*BROKEN[case])


def test_a_progress_critic_may_be_merged_from_members_that_are_there(tmp_path: Path) -> None:
    for name in ("a", "b:2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    members = [f"{tmp_path}/a", f"{tmp_path}/a:1", f"{tmp_path}/b:2:0"]
    experiment = load_experiment(changed({f"{STEAM}.members": members}))
    check_references(experiment)
    for stated, wrong in (
        ({"k": 99}, "k is 99"),
        ({"architecture": {"num_bins": 4}}, "num_bins is 4"),
        ({"length_scale": {}}, "enabled is True"),
    ):
        (tmp_path / "a/config.json").write_text(json.dumps(stated))
        with pytest.raises(UserError, match=f"members: {tmp_path}/a: .*{wrong}, the experiment says .*; write it as it is there"):
            check_references(experiment)
    assert [member_source(member) for member in members] == [(tmp_path / "a", None), (tmp_path / "a", 1), (tmp_path / "b:2", 0)]
