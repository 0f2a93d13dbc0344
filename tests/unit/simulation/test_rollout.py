import numpy as np
import pytest

from recap_steam.simulation.controllers import Expert
from recap_steam.simulation.environments import make_environments
from recap_steam.simulation.rendering import Renderer
from recap_steam.simulation.rollout import roll_out

CAMERA = "observation.images.corner2"


class Drift:
    """Looks, draws a direction from the run's own generator and keeps it for four frames, so that it does not succeed by itself."""

    sees = True

    def plan(self, runs):
        assert all(picture.shape == (32, 32, 3) for run in runs for picture in run.images.values())
        return np.stack([np.repeat(run.rng.uniform(-0.3, 0.3, (1, 4)), 4, axis=0) for run in runs])


def same(first, second) -> bool:
    names = ("episode", "seed", "success", "states", "actions", "interventions")
    pictures = [[] if episode.images is None else list(episode.images.values()) for episode in (first, second)]
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names) and np.array_equal(*pictures)


def test_replaying_the_recorded_actions_gives_the_recorded_frames(environment_config, collect_config):
    """The recorded action is the executed one, noise and clipping included, and belongs to the observation before it."""
    config = environment_config()
    collect = collect_config(action_noise=0.8, noise_hold=3)
    [episode] = roll_out(config, Expert(), seed=5, num_episodes=1, collect=collect, record_images=True)
    assert np.abs(episode.actions).max() == 1.0 and episode.actions.dtype == np.float32
    with make_environments(config, 1) as [environment]:
        environment.reset(episode.seed)
        for frame in range(episode.num_frames):
            assert np.array_equal(environment.state(), episode.states[frame])
            assert np.array_equal(environment.render()[CAMERA], episode.images[CAMERA][frame])
            success = environment.step(episode.actions[frame])
        assert success == episode.success


@pytest.mark.parametrize("collecting", [True, False])
def test_an_episode_does_not_depend_on_its_neighbours(environment_config, collect_config, collecting):
    collect = collect_config(action_noise=0.3, noise_hold=2, intervention_probability=0.5, intervention_after=3) if collecting else None
    config = environment_config(max_episode_steps=9)
    alone, together = (
        list(roll_out(config, Drift(), seed=7, num_episodes=4, collect=collect, record_images=collecting, batch_size=size))
        for size in (1, 3)
    )
    assert [episode.seed for episode in alone] == [7, 8, 9, 10]
    assert all(same(*pair) for pair in zip(alone, together, strict=True))
    assert len({episode.actions.tobytes() for episode in alone}) == 4


def test_shares_hold_the_episodes_of_the_whole(environment_config):
    """Which makes any number of processes give the same ones: batches are not cut anew."""
    config = environment_config(max_episode_steps=5)
    whole, *shares = (
        list(roll_out(config, Drift(), seed=7, num_episodes=5, batch_size=2, share=share)) for share in ((0, 1), (0, 3), (1, 3), (2, 3))
    )
    assert [[episode.episode for episode in share] for share in shares] == [[0, 1], [2, 3], [4]]
    assert all(same(*pair) for pair in zip(whole, [episode for share in shares for episode in share], strict=True))


def test_noise_is_held(environment_config, collect_config):
    collect = collect_config(action_noise=0.2, noise_hold=4)
    [episode] = roll_out(environment_config(max_episode_steps=12), Drift(), seed=1, num_episodes=1, collect=collect)
    chunks = episode.actions.reshape(3, 4, 4)  # noise and plan both last four frames here
    assert (chunks == chunks[:, :1]).all()
    assert (chunks[1] != chunks[0]).any() and (chunks[2] != chunks[1]).any()


def test_the_expert_takes_over_to_the_end_in_corrected_episodes(environment_config, collect_config):
    collect = collect_config(action_noise=0.3, intervention_probability=0.5, intervention_after=6)
    episodes = list(roll_out(environment_config(), Drift(), seed=2, num_episodes=6, collect=collect))
    corrected = [episode for episode in episodes if episode.interventions.any()]
    left_alone = [episode for episode in episodes if not episode.interventions.any()]
    assert corrected and left_alone
    for episode in corrected:
        assert episode.success and episode.num_frames < 40
        assert np.array_equal(episode.interventions, np.arange(episode.num_frames) >= 6)
    for episode in left_alone:
        assert not episode.success and episode.num_frames == 40


def test_evaluation_renders_only_where_the_policy_plans(environment_config, monkeypatch):
    calls = []
    render = Renderer.render
    monkeypatch.setattr(Renderer, "render", lambda *arguments: calls.append(1) or render(*arguments))
    episodes = list(roll_out(environment_config(max_episode_steps=10), Drift(), seed=0, num_episodes=2))
    assert len(calls) == 2 * 3  # plans at frames 0, 4 and 8
    assert all(episode.images is None and episode.num_frames == 10 for episode in episodes)


def test_a_watcher_sees_every_frame_before_the_action_and_changes_nothing(environment_config):
    config, seen = environment_config(max_episode_steps=5), []
    shared = {"seed": 7, "num_episodes": 2, "record_images": True}
    watched = list(roll_out(config, Drift(), **shared, watch=lambda run: seen.append((run.frame, run.episode, run.images[CAMERA]))))
    assert all(same(*pair) for pair in zip(watched, roll_out(config, Drift(), **shared), strict=True))
    assert [place for *place, _ in seen] == [[frame, episode] for frame in range(5) for episode in range(2)]
    assert all(np.array_equal(picture, watched[episode].images[CAMERA][frame]) for frame, episode, picture in seen)
