"""Collection and evaluation end to end: real simulator, lerobot's own writer and reader, a small pi0.5 with random weights."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from recap_steam.config import load_experiment, whole_experiment
from recap_steam.dataset.frames import FrameCache, build_frame_cache
from recap_steam.dataset.indexing import index_dataset
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import UserError
from recap_steam.lineage import METADATA_KEY, Lineage
from recap_steam.policy import pi05
from recap_steam.policy.folder import Serving, save_policy
from recap_steam.policy.processors import make_processors
from recap_steam.report.evaluation_videos import arm_videos_stage
from recap_steam.serving.value import ValueService
from recap_steam.simulation.collect import MARKER, collect_stage
from recap_steam.simulation.controllers import open_controller
from recap_steam.simulation.evaluate import evaluate_stage
from recap_steam.simulation.rollout import roll_out
from recap_steam.simulation.watch import watch_episode
from tests.e2e.launching import finish, start
from tests.unit.critics.small import save_small_critics

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
CAMERA = "observation.images.corner2"
ENVIRONMENT = {"task": "drawer-open-v3", "prompt": "open the drawer", "image_size": 32, "max_episode_steps": 20}
COLLECT = {"environment": "drawer", "policy": "expert", "num_episodes": 3, "seed": 4, "action_noise": 0.3, "noise_hold": 2}
POLICY = {"image_size": 32, "chunk_size": 4, "n_action_steps": 4, "num_inference_steps": 2, "max_token_len": 64, "small": {}}


def document(path: Path, environment: dict | None = None, **collect) -> dict:
    return {
        "experiment": "test",
        "environments": {"drawer": {**ENVIRONMENT, **(environment or {})}},
        "datasets": {"drawers": {"path": str(path), "type": "rollout", "collect": {**COLLECT, **collect}}},
        "evaluations": {"paired": {"environment": "drawer", "policies": ["p"], "num_episodes": 2, "seed": 90}},
        "policies": {
            "p": {
                "datasets": ["drawers"],
                "cameras": [CAMERA],
                "model": POLICY,
                "optim": {"lr": 0.1},
                "max_steps": 1,
                "global_batch_size": 1,
            }
        },
    }


def collect(path: Path, policy_dir: Path | None = None, **changes) -> Path:
    collect_stage(load_experiment(document(path, **changes)), "drawers", policy_dir, path / "meta/info.json")
    return path


def evaluate(output: Path, policy: str, policy_dir: Path | None = None, guidance_scale: float | None = None, **environment) -> Path:
    evaluate_stage(load_experiment(document(output, environment)), "paired", policy, policy_dir, guidance_scale, None, output)
    return output


def run_script(name: str, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, SCRIPTS / name, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def expert_data(tmp_path_factory) -> Path:
    return collect(tmp_path_factory.mktemp("data") / "drawers")


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory) -> Path:
    return make_policy_folder(tmp_path_factory.mktemp("policy"), conditional=True)


def make_policy_folder(folder: Path, conditional: bool) -> Path:
    """Random weights; the expert's adaptive norms start at zero, which would make it blind to its input: perturb them."""
    torch.manual_seed(0)
    model = load_experiment(document(folder)).policies["p"].model
    config = pi05.make_config(model, [CAMERA], 4, 4)
    policy = pi05.build(config, model.small, initialise=True)
    for name, parameter in policy.named_parameters():
        if ".dense." in name:
            torch.nn.init.normal_(parameter, std=0.3)
    ranges = {"q01": [-1.0] * 4, "q99": [1.0] * 4, "mean": [0.0] * 4, "std": [1.0] * 4, "min": [-1.0] * 4, "max": [1.0] * 4, "count": [9]}
    tokenizer = make_tokenizer()
    processors = make_processors(config, {"observation.state": ranges, "action": ranges}, tokenizer)
    serving = Serving(conditional, 1.0 if conditional else None, [CAMERA], 32, 4, 4, 4, 4, 2, model.small)
    save_policy(folder, policy, policy.model.state_dict(), processors, tokenizer, serving)
    return folder


def make_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials, alphabet = ["<pad>", "<eos>", "<bos>", "<unk>"], pre_tokenizers.ByteLevel.alphabet()
    lines = ["Task: open the drawer Advantage: positive, State: 12 255 0;\nAction: "]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=512, special_tokens=specials, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")


def test_stock_lerobot_reads_the_dataset(expert_data):
    dataset = LeRobotDataset("local/drawers", root=expert_data)
    assert dataset.meta.total_episodes == 3 and dataset.fps == 16
    first = dataset[0]
    assert first[CAMERA].shape == (3, 32, 32) and first["action"].shape == (4,) and first["task"] == "open the drawer"
    assert first["is_success"].dtype == torch.bool and first["intervene_flag"].dtype == torch.bool
    assert np.abs(np.stack([frame["action"] for frame in dataset])).max() == 1.0


def test_our_index_agrees_with_the_collection_record(expert_data):
    episodes, _ = index_dataset(open_dataset("drawers", expert_data), "rollout")
    record = Lineage.from_json((expert_data / MARKER).read_text(), path=expert_data)
    assert record.statistics["episodes"] == len(episodes.length) == 3
    assert record.statistics["frames"] == episodes.num_frames
    assert record.statistics["successes"] == episodes.success.sum() > 0
    assert not episodes.interventions().any()


def test_our_frame_cache_holds_the_recorded_pictures(expert_data, tmp_path):
    dataset = open_dataset("drawers", expert_data)
    episodes, _ = index_dataset(dataset, "rollout")
    build_frame_cache(dataset, episodes, [CAMERA], 32, tmp_path / "frames.arrow")
    cached = FrameCache.open(tmp_path / "frames.arrow", episodes).images(CAMERA, np.arange(episodes.num_frames))
    theirs = LeRobotDataset("local/drawers", root=expert_data)
    for row in (0, episodes.num_frames - 1):
        assert np.array_equal(cached[row], np.rint(theirs[row][CAMERA].permute(1, 2, 0).numpy() * 255))


def test_a_second_collection_replaces_the_first_and_has_the_same_bytes(tmp_path):
    """By another process, at the same path: lerobot's Parquet metadata carry a hash over the names of staging files."""
    path = tmp_path / "drawers"
    config = json.dumps(whole_experiment(document(path, num_episodes=1)))
    finished = run_script("collect_dataset.py", "--config", config, "--dataset", "drawers", "--output", path / "meta/info.json")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith("1/1 episodes, ")
    first = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    (path / "meta/info.json").unlink()  # as Snakemake does before it runs a job again
    (path / "meta/returns_old.parquet").write_bytes(b"stale")
    collect(path, num_episodes=1)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == first
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_this_stage_did_not_make_is_refused(expert_data, tmp_path):
    shutil.copytree(expert_data, tmp_path / "theirs")
    (tmp_path / "theirs" / MARKER).unlink()
    with pytest.raises(UserError, match="holds files that this stage did not make"):
        collect(tmp_path / "theirs")
    assert (tmp_path / "theirs/meta/info.json").is_file()


def test_a_second_writer_is_refused(tmp_path):
    workshop = tmp_path / ".drawers.partial"
    (workshop / "drawers").mkdir(parents=True)
    first = os.open(workshop, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another process is collecting this dataset"):
        collect(tmp_path / "drawers")
    assert (workshop / "drawers").is_dir()
    os.close(first)  # that process was killed: what it left is cleared away
    collect(tmp_path / "drawers", num_episodes=1, environment={"max_episode_steps": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["drawers"]


def test_a_policy_collects_with_flagged_corrections(policy_dir, tmp_path):
    changes = {"policy": "p", "intervention_probability": 1.0, "intervention_after": 5}
    collect(tmp_path / "drawers", policy_dir, environment={"max_episode_steps": 30}, **changes)
    episodes, _ = index_dataset(open_dataset("drawers", tmp_path / "drawers"), "rollout")
    flags = np.split(episodes.interventions(), episodes.offsets[1:-1])
    assert all(np.array_equal(flag, np.arange(len(flag)) >= 5) for flag in flags)
    assert episodes.success.all()  # a random policy alone does not open the drawer


def test_a_failed_collection_leaves_nothing(policy_dir, tmp_path):
    with pytest.raises(UserError, match=r"cameras \['observation.images.corner2'\], environment drawer-open-v3 has"):
        collect(tmp_path / "drawers", policy_dir, environment={"camera_name": "corner3"}, policy="p")
    assert list(tmp_path.iterdir()) == []


def test_arms_of_an_evaluation_are_paired_and_reproducible(policy_dir, tmp_path):
    arms = [evaluate(tmp_path / f"w{scale}.parquet", "p", policy_dir, scale) for scale in (1.0, 3.0)]
    again = evaluate(tmp_path / "again.parquet", "p", policy_dir, 3.0)
    assert again.read_bytes() == arms[1].read_bytes()
    tables = [pq.read_table(arm) for arm in arms]
    assert tables[0].column_names == ["episode", "seed", "success", "num_frames", "seconds", "task"]
    assert tables[0]["seconds"].to_pylist() == [frames / 16 for frames in tables[0]["num_frames"].to_pylist()]
    assert all(table["seed"].to_pylist() == [90, 91] for table in tables)
    lineage = Lineage.from_json(tables[1].schema.metadata[METADATA_KEY], path=arms[1])
    assert lineage.parameters["cfgrl_guidance_scale"] == 3.0 and lineage.parameters["environment"]["task"] == "drawer-open-v3"
    assert lineage.statistics["frames"] == sum(tables[1]["num_frames"].to_pylist())


def test_through_its_server_a_policy_meets_the_same_episodes(policy_dir, tmp_path):
    raw = document(tmp_path)
    raw["evaluations"]["paired"]["through_server"] = True
    evaluate_stage(load_experiment(raw), "paired", "p", policy_dir, 3.0, None, tmp_path / "served.parquet")
    served = pq.read_table(tmp_path / "served.parquet")
    assert served.to_pylist() == pq.read_table(evaluate(tmp_path / "here.parquet", "p", policy_dir, 3.0)).to_pylist()
    lineage = Lineage.from_json(served.schema.metadata[METADATA_KEY], path=tmp_path)
    assert lineage.parameters["through_server"] is True


def test_any_number_of_processes_gives_the_same_episodes(policy_dir, tmp_path):
    """Of 55 episodes, one process runs three batches, two run two and one, and of four the last has nothing to do."""
    raw = document(tmp_path, {"max_episode_steps": 3})
    raw["evaluations"]["paired"]["num_episodes"] = 55
    options = ["--config", json.dumps(whole_experiment(raw)), "--evaluation", "paired", "--policy", "p", "--policy-dir", policy_dir]
    outputs = []
    for processes in (1, 2, 4):
        outputs.append(tmp_path / f"{processes}.parquet")
        arguments = [*options, "--guidance-scale", 2.0, "--output", outputs[-1]]
        assert "55/55 episodes" in finish(start(SCRIPTS / "evaluate_policy.py", arguments, processes))
    assert len({output.read_bytes() for output in outputs}) == 1
    assert pq.read_table(outputs[0])["episode"].to_pylist() == list(range(55))


def test_an_arm_stops_where_it_is_told_apart_from_the_first(tmp_path):
    """The expert against a first arm that always failed: at the first look, after 25 episodes."""
    raw = document(tmp_path, {"max_episode_steps": 40})
    raw["evaluations"]["paired"] |= {"num_episodes": 60, "stop_below": 0.01}
    failed, output = tmp_path / "failed.parquet", tmp_path / "expert.parquet"
    pq.write_table(pa.table({"episode": np.arange(60), "seed": 90 + np.arange(60), "success": np.zeros(60, bool)}), failed)
    evaluate_stage(load_experiment(raw), "paired", "expert", None, None, failed, output)
    assert pq.read_table(output)["episode"].to_pylist() == list(range(25))


def test_videos_of_an_arm_show_the_recorded_episodes_with_their_values(policy_dir, tmp_path):
    critic_dir, _ = save_small_critics(tmp_path / "critics", [CAMERA], [CAMERA], k=2)
    experiment = load_experiment(document(tmp_path, {"max_episode_steps": 6}) | {"diagnostics": {"num_episodes": 1}})
    rows, arm = tmp_path / "rows.parquet", ("paired", "p", policy_dir, 2.0)
    evaluate_stage(experiment, *arm, None, rows)
    arm_videos_stage(experiment, *arm, critic_dir, rows, tmp_path / "videos")
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["episode_000000.mp4"]
    with av.open(str(tmp_path / "videos/episode_000000.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(shown) == 6 and len({frame.tobytes() for frame in shown}) == 6
    other = load_experiment(document(tmp_path, {"max_episode_steps": 5}))
    with pytest.raises(UserError, match=r"rows\.parquet: episode 0 runs otherwise than is recorded there"):
        arm_videos_stage(other, *arm, critic_dir, rows, tmp_path / "others")


def test_a_watched_episode_tells_values_and_scores_while_it_runs(policy_dir, tmp_path, capsys):
    """Those of the recorded pictures, and of the second of the initial states."""
    critic_dir, ensemble_dir = save_small_critics(tmp_path / "critics", [CAMERA], [CAMERA], k=2)
    config = load_experiment(document(tmp_path, {"max_episode_steps": 5})).environments["drawer"]
    watch_episode(config, policy_dir, 2.0, 90, 1, ValueService(critic_dir, ensemble_dir))
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "episode 1 (seed 91): failure after 5 frames"
    with open_controller("p", policy_dir, config, 2.0, False) as controller:
        *_, recorded = roll_out(config, controller, seed=90, num_episodes=2, record_images=True, batch_size=1)
    judge = ValueService(critic_dir, ensemble_dir).session()
    for frame, (line, picture) in enumerate(zip(lines, recorded.images[CAMERA], strict=True)):
        answer = judge.infer({CAMERA: picture, "prompt": config.prompt, "frame": frame})
        assert line.startswith(f"frame {frame:4d} ") and f" value {answer['value']:+.3f} |" in line
        assert line.endswith("|" if frame < 2 else f"score of frame {frame - 2} {answer['score'] or 0:+.3f}")


def test_a_critic_that_does_not_see_what_is_rendered_watches_nothing(tmp_path):
    critic_dir, _ = save_small_critics(tmp_path / "critics", ["observation.images.wrist"], [CAMERA], k=2)
    config = load_experiment(document(tmp_path)).environments["drawer"]
    with pytest.raises(UserError, match=rf"the critic needs observation\.images\.wrist, environment drawer-open-v3 renders {CAMERA}; use"):
        watch_episode(config, None, None, 90, 0, ValueService(critic_dir, None))


def test_guidance_of_a_plain_policy_is_refused_in_evaluation_and_absent_in_collection(tmp_path):
    plain = make_policy_folder(tmp_path / "plain", conditional=False)
    with pytest.raises(UserError, match="trained without the advantage indicator"):
        evaluate(tmp_path / "w2.parquet", "p", plain, 2.0)
    collect(tmp_path / "drawers", plain, environment={"max_episode_steps": 4}, policy="p", num_episodes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawers", "plain"]


def test_the_evaluation_script_leaves_a_clean_log(tmp_path):
    config, output = json.dumps(whole_experiment(document(tmp_path))), tmp_path / "expert.parquet"
    finished = run_script("evaluate_policy.py", "--config", config, "--evaluation", "paired", "--policy", "expert", "--output", output)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith("2/2 episodes, 2 successes, ")
    assert pq.read_table(output)["success"].to_pylist() == [True, True]
