"""The value server says of every frame what the passes over a dataset say of it; the two kinds of servers refuse each other's clients."""

import re
from pathlib import Path

import numpy as np
import pytest

from recap_steam.critics.folder import load_critic
from recap_steam.critics.group_pass import critic_frames
from recap_steam.critics.progress_folder import load_ensemble
from recap_steam.critics.score_pass import score_rows
from recap_steam.critics.value_pass import evaluate_rows
from recap_steam.dataset.episodes import load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.serving.value import ValueService
from tests.serving import connected, robot_observation, running
from tests.unit.critics.experiment import CAMERA, WRIST, make
from tests.unit.critics.small import save_small_critics

NAME, K = "rollouts", 2  # a dataset of 12, 7 and 12 frames


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A value critic of one camera and an ensemble of two."""
    return save_small_critics(tmp_path_factory.mktemp("critics"), [CAMERA], [WRIST, CAMERA], K)


@pytest.fixture(scope="module")
def port(folders):
    with running(ValueService(*folders)) as port:
        yield port


@pytest.fixture(scope="module")
def recorded(folders, tmp_path_factory):
    """The frames of a dataset as images by camera, (F, 16, 16, 3), and what the passes say of them, by column."""
    files = make(tmp_path_factory.mktemp("experiment"))
    episodes = load_episodes(files.episodes / f"{NAME}.parquet", open_dataset(NAME, files.experiment.datasets[NAME].path))
    saved = load_critic(folders[0]), load_ensemble(folders[1])
    frames = [critic_frames(one, episodes, files.frame_cache(NAME), {camera: camera for camera in one.card.cameras}) for one in saved]
    rows = range(episodes.num_frames)
    images = {camera: frames[1].cache.images(camera, np.arange(len(rows))) for camera in (CAMERA, WRIST)}
    columns = evaluate_rows(saved[0], frames[0], rows) | score_rows(saved[1], frames[1], episodes, rows)
    return episodes, images, columns


def observe(recorded, row: int, frame: int) -> dict:
    episodes, images, _ = recorded
    task = episodes.tasks[episodes.prompt_codes()[row]]
    return {**{camera: pictures[row] for camera, pictures in images.items()}, "prompt": task, "frame": frame}


def test_values_and_scores_are_those_of_the_passes(port, recorded):
    """All episodes one after the other through one connection: an episode knows nothing of the one before."""
    episodes, _, columns = recorded
    with connected(port) as client:
        for start, stop in zip(episodes.offsets, episodes.offsets[1:], strict=False):
            for row in range(start, stop):
                found = client.infer(observe(recorded, row, row - start))
                for name in ("value", "value_std", "value_entropy"):
                    assert found[name] == pytest.approx(columns[name][row], abs=1e-5)
                if row - start < K:
                    assert found["score"] is found["member_scores"] is found["score_frame"] is None
                    continue
                assert found["score_frame"] == row - start - K
                assert found["score"] == pytest.approx(columns["ensemble_signed_score"][row - K], abs=1e-5)
                assert found["member_scores"] == pytest.approx(columns["member_values"][row - K], abs=1e-5)
    assert columns["value"].std() > 0 and columns["ensemble_signed_score"].std() > 0


def test_metadata_says_what_is_answered(port):
    with connected(port) as client:
        metadata = client.get_server_metadata()
    assert metadata["kind"] == "value" and metadata["cameras"] == [CAMERA, WRIST]
    assert metadata["answers"]["value"] == {"cameras": [CAMERA], "return_min": -40.0, "offset": 0.0}
    assert metadata["answers"]["score"] == {"cameras": [WRIST, CAMERA], "k": K, "ensemble_size": 2}


def test_the_documented_loop_traces_an_episode(port, recorded, capsys):
    document = (Path(__file__).parents[3] / "docs/serving.md").read_text()
    (code,) = re.findall(r"<!-- tested by tests/unit/serving/test_value_server.py -->\n```python\n(.*?)```", document, re.DOTALL)
    _, images, _ = recorded

    class Robot:
        frame = 0

        def camera(self, name):
            return images[name][self.frame]

        def step(self):
            self.frame += 1

    names = {"robot": Robot()}
    exec(code.replace("8001", str(port)).replace("500", "4"), names)
    names["values"]._ws.close()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert [line[0] for line in lines] == ["0", "1", "2", "3"] and len({line[1] for line in lines}) > 1
    assert [line[2] == "None" for line in lines] == [True, True, False, False]


def test_a_frame_is_scored_where_the_one_k_frames_back_was_sent(port, recorded):
    """Frames of one episode, each with the one that its score is of."""
    with connected(port) as client:
        found = [client.infer(observe(recorded, frame, frame))["score_frame"] for frame in (0, 2, 3, 4, 5, 9, 10, 11)]
    assert found == [None, 0, None, 2, 3, None, None, 9]


def test_another_episode_or_prompt_starts_anew(port, recorded):
    def score_frame(row: int, frame: int, **changes) -> int | None:
        return client.infer({**observe(recorded, row, frame), **changes})["score_frame"]

    with connected(port) as client:
        assert [score_frame(frame, frame) for frame in range(3)] == [None, None, 0]
        assert [score_frame(12 + frame, frame) for frame in range(3)] == [None, None, 0]
        assert score_frame(15, 3, prompt="another task") is None
        assert score_frame(17, 5, prompt="another task") == 3


def test_clients_have_histories_of_their_own(port, recorded):
    with connected(port) as one, connected(port) as other:
        assert [one.infer(observe(recorded, frame, frame))["score_frame"] for frame in range(3)] == [None, None, 0]
        assert other.infer(observe(recorded, 2, 2))["score_frame"] is None


def test_a_camera_that_the_robot_lacks_is_none(port, recorded):
    with connected(port) as client:
        assert client.infer({**observe(recorded, 0, 0), WRIST: None})["value"] is not None
        with pytest.raises(RuntimeError, match=re.escape(f"camera {CAMERA}: this critic needs it")):
            client.infer({**observe(recorded, 1, 1), CAMERA: None})


@pytest.mark.parametrize("frame", [-1, 1.0, True, "0", 2**40, None])
def test_a_frame_is_a_number(port, recorded, frame):
    with connected(port) as client, pytest.raises(RuntimeError, match=r"key 'frame': .*; send an integer"):
        client.infer(observe(recorded, 0, frame))


@pytest.mark.parametrize(
    ("given", "answers"), [((0,), {"value", "value_std", "value_entropy"}), ((1,), {"score", "member_scores", "score_frame"})]
)
def test_one_critic_alone_is_served(folders, recorded, given, answers):
    service = ValueService(*(folder if number in given else None for number, folder in enumerate(folders)))
    observation = {key: value for key, value in observe(recorded, 0, 0).items() if key != WRIST or given == (1,)}
    assert service.session().infer(observation).keys() == answers


def test_no_critic_or_one_of_the_other_kind_is_one_line(folders, policy_dir):
    with pytest.raises(UserError, match="give --critic-dir"):
        ValueService(None, None)
    for wrong in [folders[::-1], (policy_dir, None), (None, policy_dir)]:
        with pytest.raises(
            UserError, match=r"config\.json: not a critic's configuration .*; give the folder of a (recap_value|steam_progress)_critic"
        ):
            ValueService(*wrong)


def test_clients_of_policies_and_of_values_are_told_where_they_are(port, policy_port, recorded):
    with connected(port) as robot, pytest.raises(RuntimeError) as refused:
        robot.infer({**robot_observation(), CAMERA: np.zeros((16, 16, 3), np.uint8)})
    assert "value server: unknown key 'state'" in str(refused.value)
    assert "this is a value server, it judges frames; actions come from a policy server" in str(refused.value)
    with connected(policy_port) as judge, pytest.raises(RuntimeError) as refused:
        judge.infer(observe(recorded, 0, 0))
    assert "policy server: unknown key 'frame'" in str(refused.value)
    assert "this is a policy server, it returns actions; values and scores of frames come from a value server" in str(refused.value)
