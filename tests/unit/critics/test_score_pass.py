"""Scores of every frame: the reference's numbers, each frame encoded once, one rule at the ends of episodes."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

from recap_steam.config import whole_experiment
from recap_steam.critics import group_pass, score_pass
from recap_steam.critics.folder import SavedCritic
from recap_steam.critics.group_pass import critic_frames
from recap_steam.critics.member_scores import ensemble_columns
from recap_steam.critics.pairs import LengthScale
from recap_steam.critics.progress_folder import load_ensemble
from recap_steam.critics.score_pass import full_windows, score_rows, scores_stage
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.labels.inputs import ensemble_digest
from recap_steam.sidecar import read_sidecar
from tests.e2e.launching import ROOT, finish, start
from tests.unit.critics.experiment import CAMERA, Files

NAME = "rollouts"  # of 12, 7 and 12 frames
ROWS = range(31)


def run(files: Files, ensemble_dir: Path, output: Path, state: Path) -> Path:
    files = files.with_progress()
    index, frames = files.episodes / f"{NAME}.parquet", files.frame_cache(NAME)
    scores_stage(files.experiment, NAME, "progress", ensemble_dir, index, frames, state, output)
    return output


@pytest.fixture(scope="module")
def episodes(files) -> Episodes:
    return load_episodes(files.episodes / f"{NAME}.parquet", open_dataset(NAME, files.experiment.datasets[NAME].path))


@pytest.fixture
def small_groups(monkeypatch):
    """One group per episode."""
    monkeypatch.setattr(group_pass, "GROUP_FRAMES", 4)


def opened(files: Files, ensemble_dir: Path, episodes: Episodes, **card):
    """The ensemble, its card changed, and the dataset as it sees it."""
    saved = load_ensemble(ensemble_dir)
    saved = SavedCritic(dataclasses.replace(saved.card, **card), saved.model, saved.tokenizer)
    return saved, critic_frames(saved, episodes, files.frame_cache(NAME), {CAMERA: CAMERA})


def pairwise(saved: SavedCritic, frames, row: int, reach: int) -> dict[str, np.ndarray]:
    """The columns of one pair, encoded for itself."""
    images = frames.image_batch(np.array([row, row + reach]))
    tokens = frames.batch(np.array([row]))
    inputs = (*score_pass.model_inputs(images, ("places", "camera_mask")), torch.tensor([0]), torch.tensor([1]))
    with torch.no_grad():
        logits = [member(*inputs, tokens["tokens"], tokens["token_mask"], torch.tensor([0])) for member in saved.model.members]
    return ensemble_columns(softmax(torch.stack(logits).double().numpy(), -1), saved.card.k)


def test_every_frame_has_the_columns_of_its_own_pair(files, ensemble_dir, episodes, tmp_path, small_groups):
    output = run(files, ensemble_dir, tmp_path / "scores.parquet", tmp_path / "state")
    parameters = {"k": 2, "num_bins": 2, "ensemble_size": 2, "cameras": {CAMERA: CAMERA}, "length_scale": None}
    found = read_sidecar(
        output, "scores", episodes, tag="progress", parameters=parameters, inputs={"critic": ensemble_digest(ensemble_dir)}
    )
    saved, frames = opened(files, ensemble_dir, episodes)
    for row, first in {0: 0, 5: 5, 9: 9, 10: 9, 11: 9, 12: 12, 18: 16, 30: 28}.items():  # the last two of an episode: as the third last
        for name, expected in pairwise(saved, frames, first, 2).items():
            np.testing.assert_allclose(found.columns[name][row], expected[0], atol=1e-5, err_msg=f"{name} of row {row}")
    assert found.columns["ensemble_signed_score"].std() > 0 and (found.columns["look_ahead"] == 2).all()
    assert found.lineage.statistics["min"] == found.columns["ensemble_signed_score"].min()


def test_defect_18_frames_without_a_full_look_ahead_have_the_last_full_window(files, ensemble_dir, episodes):
    saved, frames = opened(files, ensemble_dir, episodes, k=8)
    columns = score_rows(saved, frames, episodes, ROWS)
    windows, reach = full_windows(episodes, ROWS, saved.card)
    assert windows.tolist() == [*range(4), *[3] * 8, *[-1] * 7, *range(19, 23), *[22] * 8]
    for name, column in columns.items():
        for end in (slice(3, 12), slice(22, 31)):
            assert (column[end] == column[end][0]).all(), name
    short = slice(12, 19)  # the episode of 7 frames
    assert reach[short].tolist() == columns["look_ahead"][short].tolist() == [0] * 7
    assert columns["ensemble_signed_score"][short].tolist() == [-1.0] * 7  # not 0: no threshold makes it positive by its sign
    assert np.delete(columns["ensemble_signed_score"], np.r_[short]).min() > -1


def test_defect_18_a_dataset_of_short_episodes_alone_is_scored(files, ensemble_dir, episodes):
    saved, frames = opened(files, ensemble_dir, episodes, k=12)
    columns = score_rows(saved, frames, episodes, ROWS)
    assert (columns["ensemble_signed_score"] == -1).all() and not columns["look_ahead"].any()
    assert columns["member_values"].shape == (31, 2)


def test_defect_17_the_length_scale_holds_for_scores(files, ensemble_dir, episodes):
    """An episode of 7 frames, 12 being the longest: look-ahead 8 / (12 / 7) = 4.7, so 5; of 12 frames: 8."""
    saved, frames = opened(files, ensemble_dir, episodes, k=8, length_scale=LengthScale(90.0, 12.0))
    columns = score_rows(saved, frames, episodes, ROWS)
    assert columns["look_ahead"].tolist() == [8] * 12 + [5] * 7 + [8] * 12
    for row, reach in {12: 5, 13: 5, 0: 8}.items():
        expected = pairwise(saved, frames, row, reach)["ensemble_signed_score"][0]
        assert columns["ensemble_signed_score"][row] == pytest.approx(expected, abs=1e-5)


def test_defect_43_every_frame_is_encoded_once_per_member(files, ensemble_dir, episodes):
    """Pair-wise, as the reference does: two images for every frame but the last of an episode. The same prompts are read once."""
    saved, frames = opened(files, ensemble_dir, episodes, k=1)
    images, prompts = [0, 0], [0, 0]
    for number, member in enumerate(saved.model.members):
        for module, counts in ((member.vision, images), (member.text, prompts)):

            def count(module, args, kwargs, counts=counts, number=number):
                counts[number] += len(kwargs["pixel_values"] if "pixel_values" in kwargs else args[0])

            module.register_forward_pre_hook(count, with_kwargs=True)
    score_rows(saved, frames, episodes, ROWS)
    assert images == [31, 31] and prompts == [2, 2]
    assert 2 * sum(episodes.length - 1) / images[0] >= 1.8


def test_frames_that_no_window_begins_or_ends_with_are_not_encoded(files, ensemble_dir, episodes):
    saved, frames = opened(files, ensemble_dir, episodes, k=10)
    encoded = []
    saved.model.members[0].vision.register_forward_pre_hook(lambda *args: encoded.append(len(args[2]["pixel_values"])), with_kwargs=True)
    score_rows(saved, frames, episodes, ROWS)
    assert encoded == [8]  # rows 0, 1, 10, 11 and the same of the third episode


def test_finished_groups_are_not_computed_again(files, ensemble_dir, tmp_path, small_groups, monkeypatch):
    whole = run(files, ensemble_dir, tmp_path / "whole.parquet", tmp_path / "state0").read_bytes()
    computed = []

    def counted(ensemble, frames, episodes, rows):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append((rows.start, rows.stop))
        return score_rows(ensemble, frames, episodes, rows)

    monkeypatch.setattr(score_pass, "score_rows", counted)
    with pytest.raises(KeyboardInterrupt):
        run(files, ensemble_dir, tmp_path / "scores.parquet", tmp_path / "state")
    monkeypatch.setattr(score_pass, "score_rows", lambda *args: computed.append((args[3].start, args[3].stop)) or score_rows(*args))
    assert run(files, ensemble_dir, tmp_path / "scores.parquet", tmp_path / "state").read_bytes() == whole
    assert computed == [(0, 12), (12, 19), (19, 31)]


def test_two_processes_write_the_same_bytes(files, ensemble_dir, tmp_path, small_groups):
    launcher = tmp_path / "two.py"  # the script, with groups as small as here
    script = ROOT / "workflow/scripts/compute_scores.py"
    launcher.write_text(
        "import runpy\nfrom recap_steam.critics import group_pass\ngroup_pass.GROUP_FRAMES = 4\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    options = {
        "--config": json.dumps(whole_experiment(files.with_progress().raw)),
        "--dataset": NAME,
        "--tag": "progress",
        "--critic-dir": ensemble_dir,
        "--episodes": files.episodes / f"{NAME}.parquet",
        "--frames": files.frame_cache(NAME),
        "--state-dir": tmp_path / "state2",
        "--output": tmp_path / "two.parquet",
    }
    finish(start(launcher, [word for pair in options.items() for word in pair], 2))
    one = run(files, ensemble_dir, tmp_path / "one.parquet", tmp_path / "state1")
    assert (tmp_path / "two.parquet").read_bytes() == one.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 3}, r"critics\.progress\.k: 3, but the critic learned 2; restore that or train the critic again"),
        ({"cameras": ["observation.images.hand"]}, r"critics\.progress\.cameras: \['observation\.images\.hand'\], but the critic learned"),
    ],
)
def test_an_experiment_that_means_other_scores_is_refused(files, ensemble_dir, tmp_path, changes, message):
    run = files.with_progress(**changes)
    index, frames = run.episodes / f"{NAME}.parquet", run.frame_cache(NAME)
    with pytest.raises(UserError, match=message):
        scores_stage(run.experiment, NAME, "progress", ensemble_dir, index, frames, tmp_path / "state", tmp_path / "scores.parquet")


def test_only_a_whole_ensemble_of_this_tag_scores(files, ensemble_dir, members, tmp_path):
    arguments = tmp_path / "scores.parquet", tmp_path / "state"
    with pytest.raises(UserError, match=r"stage is train_member, needed is merge_ensemble; make the critic again"):
        run(files, members[0], *arguments)
    other = shutil.copytree(ensemble_dir, tmp_path / "other")
    record = json.loads((other / "lineage.json").read_text())
    (other / "lineage.json").write_text(json.dumps({**record, "tag": "another"}))
    with pytest.raises(UserError, match="tag is another, needed is progress"):
        run(files, other, *arguments)
    (other / "lineage.json").unlink()
    with pytest.raises(UserError, match=r"lineage\.json: not found"):
        run(files, other, *arguments)


def test_robots_that_lack_a_camera_are_scored(files, ensemble_dir, episodes, tmp_path):
    """The critic knows front and wrist; this robot has no wrist: as if the critic had only learned the front."""
    two = shutil.copytree(ensemble_dir, tmp_path / "progress")
    config = json.loads((two / "config.json").read_text())
    (two / "config.json").write_text(json.dumps(config | {"cameras": ["front", "wrist"], "camera_maps": {}}))
    experiment = files.with_two_cameras(NAME).with_progress(cameras=["front", "wrist"]).experiment
    index, frames = files.episodes / f"{NAME}.parquet", files.frame_cache(NAME)
    scores_stage(experiment, NAME, "progress", two, index, frames, tmp_path / "state", tmp_path / "two.parquet")
    one = run(files, ensemble_dir, tmp_path / "one.parquet", tmp_path / "state1")
    found, expected = (read_sidecar(path, "scores", episodes, ["ensemble_signed_score"]) for path in (tmp_path / "two.parquet", one))
    np.testing.assert_allclose(*(sidecar.columns["ensemble_signed_score"] for sidecar in (found, expected)), atol=1e-6)
