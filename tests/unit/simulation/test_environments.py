import os
import subprocess
import sys

import numpy as np
import pytest

from recap_steam.errors import UserError
from recap_steam.simulation.environments import frames_per_second, make_environments
from recap_steam.simulation.metaworld import MetaWorldEnvironment


@pytest.fixture(scope="module")
def two(environment_config):
    with make_environments(environment_config(image_size=64), 2) as environments:
        yield environments


CAMERA = "observation.images.corner2"


def drawer_x(environment: MetaWorldEnvironment) -> float:
    return float(environment.model.body("drawer").pos[0])


def test_the_expert_opens_the_drawer_on_five_seeds(two):
    for seed in range(5):
        two[0].reset(seed)
        assert any(two[0].step(two[0].expert_action()) for _ in range(40))


@pytest.mark.parametrize("task", ["reach-v3", "push-v3"])
def test_the_expert_knows_goals_that_the_state_hides(environment_config, task):
    environment = MetaWorldEnvironment(environment_config(task=task))
    for seed in range(2):
        environment.reset(seed)
        assert any(environment.step(environment.expert_action()) for _ in range(40))


def test_seeds_spread_the_drawer_over_its_whole_range(two):
    positions = []
    for seed in range(40):
        two[0].reset(seed)
        positions.append(drawer_x(two[0]))
    assert len(set(positions)) == 40
    assert -0.1 <= min(positions) < -0.08 and 0.08 < max(positions) <= 0.1


def test_a_seed_gives_one_initial_state_whatever_happened_before(two):
    first, second = two
    first.reset(3)
    second.reset(8)
    for _ in range(10):
        second.step(second.expert_action())
    second.reset(3)
    assert np.array_equal(first.state(), second.state())
    assert np.array_equal(first.render()[CAMERA], second.render()[CAMERA])
    assert np.array_equal(first.expert_action(), second.expert_action())


def test_the_state_does_not_tell_where_the_drawer_is(two):
    two[0].reset(0)
    state, position = two[0].state(), drawer_x(two[0])
    two[0].reset(1)
    assert abs(drawer_x(two[0]) - position) > 0.1
    assert np.array_equal(two[0].state(), state) and state.shape == (4,) and state.dtype == np.float32


def pixels_where(picture: np.ndarray, channel: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the pixels in which one colour channel clearly leads: 0 the arm, 1 the drawer."""
    colours = picture.astype(int)
    others = np.delete(colours, channel, axis=2).max(axis=2)
    return np.nonzero(colours[:, :, channel] > others + 25)


def test_the_picture_shows_the_drawer_upright_and_not_mirrored(two):
    by_position = {}
    for seed in range(2):
        two[0].reset(seed)
        _, columns = pixels_where(two[0].render()[CAMERA], 1)
        assert len(columns) > 60
        by_position[drawer_x(two[0])] = columns.mean()
    (_, left), (_, right) = sorted(by_position.items())
    assert right > left + 5  # the camera looks from the +x side along -x, +y: more x is further right

    before = pixels_where(two[0].render()[CAMERA], 0)[0].min()
    for _ in range(6):
        two[0].step(np.array([0.0, 0.0, 1.0, 0.0]))
    assert pixels_where(two[0].render()[CAMERA], 0)[0].min() < before  # the raised arm is higher in the picture


def test_a_step_holds_the_action_and_stops_at_success(environment_config):
    fine, coarse = (MetaWorldEnvironment(environment_config(action_repeat=repeat, max_episode_steps=200 // repeat)) for repeat in (1, 5))
    for environment in (fine, coarse):
        environment.reset(0)
    success, fine_steps = False, 0
    while not success:
        action = coarse.expert_action()
        success = coarse.step(action)
        for _ in range(5):
            fine_steps += 1
            if fine_success := fine.step(action):
                break
        assert fine_success == success
        assert np.array_equal(fine.state(), coarse.state())
    assert fine_steps % 5  # seed 0 succeeds in the middle of a frame, so stopping there was seen


def test_frame_rate(environment_config):
    assert frames_per_second(environment_config(action_repeat=5)) == 16
    with pytest.raises(UserError, match="action_repeat 3 must divide 80"):
        frames_per_second(environment_config(action_repeat=3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "drawer-opem-v3"}, "Meta-World has no task 'drawer-opem-v3'; close matches: drawer-open-v3"),
        ({"camera_name": "corner9"}, "no camera 'corner9'; it has topview, corner, corner2"),
    ],
)
def test_mistakes_in_the_environment_are_one_line(environment_config, changes, message):
    with pytest.raises(UserError, match=message) as error:
        MetaWorldEnvironment(environment_config(**changes))
    assert "\n" not in str(error.value)


def test_missing_gl_libraries_are_one_line_naming_the_packages():
    code = (
        "from recap_steam.errors import run_main; from recap_steam.simulation.rendering import Renderer, import_mujoco;"
        "run_main(lambda: Renderer(import_mujoco().MjModel.from_xml_string('<mujoco/>'), 16))"
    )
    environment = {**os.environ, "__EGL_VENDOR_LIBRARY_DIRS": os.devnull}
    finished = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert finished.returncode == 1
    assert len(finished.stderr.splitlines()) == 1 and "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri" in finished.stderr
