"""Policies in simulators: cameras, experts, initial states that no other run has."""

import pytest

from tests.references import CAMERA, EXPERIMENT, assert_refused, check

DRAWER = EXPERIMENT["environments"]["drawer"]
LIBERO = {"simulator": "libero", "suite": "libero_10", "task_id": 2, "prompt": "turn on the stove", "cameras": {CAMERA: "agentview"}}
IN_KITCHEN = {"environment": "kitchen", "policy": "start", "num_episodes": 20, "seed": 0}
KITCHEN = {
    "environments.kitchen": LIBERO,
    "datasets.kitchen": {"path": "data/kitchen", "type": "rollout", "collect": IN_KITCHEN},
    "evaluations.kitchen": {"environment": "kitchen", "policies": ["start"], "num_episodes": 30, "seed": 20},
}


SOUND = {
    "two train collections may share seeds": {"datasets.rollouts.collect.seed": 1000},
    "an evaluation of another task may share seeds": {
        "environments.other": DRAWER | {"task": "door-open-v3"},
        "evaluations.paired.environment": "other",
        "evaluations.paired.seed": 2000,
    },
    "a critic beside an evaluation": {"evaluations.paired.video_critic": "value"},
    "arms that stop at the level of the report": {"evaluations.paired.stop_below": 0.005},
    "seeds may touch": {"evaluations.paired.seed": 3030},
    "LIBERO's states recorded and drawn": KITCHEN | {"datasets.kitchen.collect.num_episodes": 4096, "datasets.kitchen.collect.seed": 50},
    "the expert as an arm": {"evaluations.paired.policies": ["start", "expert"]},
}
BROKEN = {
    "simulated camera by another name": (
        {
            "camera_maps.arm": {"observation.images.base_0_rgb": CAMERA},
            "datasets.demonstrations.camera_map": "arm",
            "policies.start.cameras": ["observation.images.base_0_rgb"],
            "critics.value.datasets": ["rollouts"],
            "critics.progress.datasets": ["rollouts"],
            "critics.progress.train_on_rollouts": True,
            "advantages.n5_q30.datasets": ["rollouts"],
            "advantages.steam_q30.datasets": ["rollouts"],
            "policies.filtered.datasets": ["rollouts"],
            "policies.recap.datasets": ["rollouts"],
        },
        "policy 'start' needs exactly the camera that environment 'drawer' renders: observation.images.corner2",
    ),
    "camera that is not rendered": (
        {"policies.start.cameras": ["observation.images.wrist"]},
        "policy 'start' needs exactly the camera that environment 'drawer' renders: observation.images.corner2",
    ),
    "scales that share a file": (
        {"evaluations.paired.cfgrl_guidance_scale": [1.0, 1.0000001]},
        "evaluations.paired.cfgrl_guidance_scale: two scales agree in their first six digits",
    ),
    "evaluation on training seeds": (
        {"evaluations.paired.seed": 2119},
        "evaluations.paired.seed: seeds 2119 to 2168 overlap those of datasets.rollouts.collect.seed, 2000 to 2119, on the same task",
    ),
    "same task by another name": (
        {"environments.other": DRAWER, "evaluations.paired.environment": "other", "evaluations.paired.seed": 1014},
        "evaluations.paired.seed: seeds 1014 to 1063 overlap those of datasets.demonstrations.collect.seed",
    ),
    "evaluation on held-out states, which choose a critic's checkpoint": (
        {"evaluations.paired.seed": 3029},
        "evaluations.paired.seed: seeds 3029 to 3078 overlap those of datasets.heldout.collect.seed, 3000 to 3029, on the same task",
    ),
    "arms that stop where the report sees nothing": (
        {"evaluations.paired.stop_below": 0.05},
        "evaluations.paired.stop_below: 0.05 is above the level of the report, 0.05 over the number of comparisons; give less than 0.0",
    ),
    "evaluation on recorded states of training data": (
        KITCHEN | {"evaluations.kitchen.seed": 10},
        "evaluations.kitchen.seed: seeds 10 to 39 overlap those of datasets.kitchen.collect.seed, 0 to 19, on the same task; move",
    ),
    "expert where there is none": (
        KITCHEN | {"evaluations.kitchen.policies": ["start", "expert"]},
        "evaluations.kitchen: simulator libero of environment 'kitchen' has no scripted expert; let a policy act",
    ),
    "corrections where there is no expert": (
        KITCHEN | {"datasets.kitchen.collect.intervention_probability": 0.5},
        "datasets.kitchen.collect: simulator libero of environment 'kitchen' has no scripted expert; let a policy act",
    ),
    "one camera of two": (
        KITCHEN | {"environments.kitchen.cameras": {CAMERA: "agentview", "observation.images.wrist": "robot0_eye_in_hand"}},
        "policy 'start' needs exactly the cameras that environment 'kitchen' renders: observation.images.corner2, observation.images.wrist",
    ),
    "held-out rollouts on training seeds": (
        {"datasets.heldout.collect.seed": 1990},
        "datasets.heldout.collect.seed: seeds 1990 to 2019 overlap those of datasets.rollouts.collect.seed",
    ),
    "an ensemble beside an evaluation": (
        {"evaluations.paired.video_critic": "progress"},
        "evaluations.paired.video_critic: 'progress' judges pairs of frames; name a critic of method recap",
    ),
    "a critic of another camera beside an evaluation": (
        {"evaluations.paired.video_critic": "value", "critics.value.cameras": ["observation.images.wrist"]},
        f"evaluations.paired.video_critic: 'value' needs exactly the camera that is rendered there: {CAMERA}",
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_experiment_passes(case: str) -> None:
    check(SOUND[case])


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    assert_refused(*BROKEN[case])
