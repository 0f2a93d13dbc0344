"""Merging members: what agrees becomes one ensemble whose parts are known, and what does not is refused before anything is written."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from recap_steam.critics.ensemble import merge_stage
from recap_steam.critics.progress_folder import load_ensemble
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, digest_file
from tests.unit.critics.small import pair_batch


def merge(output: Path, *members, overwrite: bool = False) -> Path:
    merge_stage([str(member) for member in members], output, overwrite)
    return output


def lineage(folder: Path) -> Lineage:
    return Lineage.from_json((folder / "lineage.json").read_text(), path=folder)


def changed(member: Path, folder: Path, weights=None, **card) -> Path:
    """A copy of a member whose files agree with each other."""
    shutil.copytree(member, folder)
    config = json.loads((folder / "config.json").read_text())
    config["architecture"] |= card.pop("architecture", {})
    (folder / "config.json").write_text(json.dumps(config | card))
    if weights:
        tensors = load_file(folder / "model.safetensors")
        weights(tensors)
        save_file(tensors, folder / "model.safetensors")
    record = json.loads((folder / "lineage.json").read_text())
    record["statistics"]["digests"] = {"model.safetensors": digest_file(folder / "model.safetensors")}
    (folder / "lineage.json").write_text(json.dumps(record))
    return folder


def test_an_ensemble_holds_its_members(members, ensemble_dir):
    ensemble = load_ensemble(ensemble_dir)
    assert ensemble.card.ensemble_size == 2 and ensemble.card.k == 2 and not ensemble.model.training
    for number, (folder, member) in enumerate(zip(members, ensemble.model.members, strict=True)):
        own = load_file(folder / "model.safetensors")
        assert own.keys() == member.state_dict().keys()
        assert all(torch.equal(own[name], tensor) for name, tensor in member.state_dict().items()), number
    first, second = (member(*pair_batch(cameras=1)) for member in ensemble.model.members)
    assert not torch.equal(first, second)


def test_where_each_member_came_from_is_recorded(members, ensemble_dir):
    manifest = json.loads((ensemble_dir / "merge_manifest.json").read_text())["members"]
    assert [manifest[number]["raw"] for number in "01"] == [str(member) for member in members]
    assert {entry["num_tensors"] for entry in manifest.values()} == {len(load_file(members[0] / "model.safetensors"))}
    record = lineage(ensemble_dir)
    assert record.stage == "merge_ensemble" and record.tag == "progress"
    assert record.inputs == {f"members/{number}": entry["digest"] for number, entry in manifest.items()}
    assert [member["parameters"]["member"] for member in record.parameters["members"]] == [0, 1]
    assert record.parameters["k"] == 2 and record.parameters["num_bins"] == 2 and record.parameters["ensemble_size"] == 2
    assert record.statistics["digests"] == {"model.safetensors": digest_file(ensemble_dir / "model.safetensors")}


def test_metrics_are_the_members_and_their_means(members, ensemble_dir):
    one, two = (json.loads((member / "evaluation.json").read_text()) for member in members)
    found = json.loads((ensemble_dir / "evaluation.json").read_text())
    assert found["member0/eval/loss"] == one["eval/loss"] != found["member1/eval/loss"] == two["eval/loss"]
    assert found["eval/loss"] == (one["eval/loss"] + two["eval/loss"]) / 2


def test_members_of_ensembles_are_taken_by_index(members, ensemble_dir, tmp_path):
    again = merge(tmp_path / "again", f"{ensemble_dir}:1", members[0])
    before, after = (json.loads((folder / "merge_manifest.json").read_text())["members"] for folder in (ensemble_dir, again))
    assert after["0"]["source_member_idx"] == 1 and after["1"]["source_member_idx"] is None
    assert [after[number]["digest"] for number in "01"] == [before[number]["digest"] for number in "10"]
    assert lineage(again).parameters["members"] == lineage(ensemble_dir).parameters["members"][::-1]
    found = json.loads((again / "evaluation.json").read_text())
    assert found["member1/eval/loss"] == json.loads((members[0] / "evaluation.json").read_text())["eval/loss"]
    merge(tmp_path / "third", f"{merge(tmp_path / 'single', f'{again}:0')}:0", f"{members[0]}:0")
    tensors = load_file(tmp_path / "third/model.safetensors")
    assert all(torch.equal(tensors["members.0." + name], tensor) for name, tensor in load_file(members[1] / "model.safetensors").items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 4}, "k is 4, but 2 in"),
        ({"cameras": ["front"]}, r"cameras is \['front'\], but \['observation"),
        ({"prompt_template": "{prompt}"}, "prompt_template is {prompt}, but Task"),
        ({"length_scale": {"percentile": 90.0, "max_length": 9.0}}, r"length_scale is LengthScale\(.*\), but None in"),
        ({"architecture": {"dropout": 0.5}}, "dropout is 0.5, but 0.1 in"),
        ({"camera_maps": {"demonstrations": {"observation.images.front": "other"}}}, "cameras of dataset 'demonstrations' are"),
    ],
)
def test_members_that_differ_are_refused_before_anything_is_written(members, tmp_path, change, message):
    other = changed(members[1], tmp_path / "other", **change)
    with pytest.raises(UserError, match=message):
        merge(tmp_path / "output", members[0], other)
    assert not (tmp_path / "output").exists()


def test_another_tokenizer_is_refused(members, tmp_path):
    other = changed(members[1], tmp_path / "other")
    path = other / "tokenizer/tokenizer.json"
    path.write_text(path.read_text().replace("<unk>", "<odd>"))
    with pytest.raises(UserError, match="tokenizer is"):
        merge(tmp_path / "output", members[0], other)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda tensors: tensors.pop("head.4.bias"), r"lacks tensor head\.4\.bias"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "has an unknown tensor extra"),
        (lambda tensors: tensors.update({"head.4.bias": torch.zeros(4)}), r"misshapen tensor head\.4\.bias"),
    ],
)
def test_defect_15_other_tensors_are_refused(members, tmp_path, weights, message):
    other = changed(members[1], tmp_path / "other", weights)
    with pytest.raises(UserError, match=message):
        merge(tmp_path / "output", members[0], other)


def test_a_damaged_or_foreign_folder_is_refused(members, ensemble_dir, critic_dir, tmp_path):
    damaged = shutil.copytree(members[0], tmp_path / "damaged")
    with open(damaged / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    cases = {
        str(damaged): r"statistics\.digests is .*copy the folder or train it again",
        str(critic_dir): "not a critic's configuration",
        str(tmp_path / "nowhere"): "config.json: not found",
        str(ensemble_dir): "an ensemble of 2; give one of its members",
        f"{ensemble_dir}:2": "no such member; the last index is 1",
        f"{members[0]}:1": "no such member; the last index is 0",
    }
    for raw, message in cases.items():
        with pytest.raises(UserError, match=message):
            merge(tmp_path / "output", members[0], raw)
    for name in ("evaluation.json", "tokenizer/tokenizer.json", "lineage.json"):
        (damaged / name).rename(tmp_path / "elsewhere")
        with pytest.raises(UserError, match=f"{name}: not found; copy the whole folder"):
            merge(tmp_path / "output", damaged)
        (tmp_path / "elsewhere").rename(damaged / name)
    assert not (tmp_path / "output").exists()


def test_an_ensemble_is_replaced_only_when_asked_and_only_by_a_whole_one(members, ensemble_dir, tmp_path):
    output = shutil.copytree(ensemble_dir, tmp_path / "progress")
    with pytest.raises(UserError, match="give --overwrite"):
        merge(output, members[0])
    before = {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}
    with pytest.raises(UserError):  # the reference deletes the old one first
        merge(output, members[0], tmp_path / "nowhere", overwrite=True)
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == before
    merge(output, f"{output}:1", overwrite=True)  # from itself
    assert load_ensemble(output).card.ensemble_size == 1
    weights = load_file(output / "model.safetensors")
    assert all(torch.equal(weights["members.0." + name], tensor) for name, tensor in load_file(members[1] / "model.safetensors").items())


def test_the_same_weights_twice_are_refused(members, ensemble_dir, tmp_path):
    for twice in (members[0], f"{ensemble_dir}:0"):
        with pytest.raises(UserError, match=r"the same weights as .*; give every member once"):
            merge(tmp_path / "output", members[0], twice)
    assert not list(tmp_path.glob("output/*"))


def test_nothing_but_an_ensemble_is_ever_replaced(members, critic_dir, tmp_path):
    for folder in (members[0], critic_dir):
        copy = shutil.copytree(folder, tmp_path / folder.name)
        for overwrite, message in ((False, "there is a model; give --overwrite"), (True, "what is there is no ensemble")):
            with pytest.raises(UserError, match=message):
                merge(copy, members[0], members[1], overwrite=overwrite)


def test_merging_again_gives_the_same_bytes(members, ensemble_dir, tmp_path):
    again = merge(tmp_path / "progress", *members)
    for name in ("model.safetensors", "config.json", "lineage.json", "merge_manifest.json", "evaluation.json", "tokenizer/tokenizer.json"):
        assert (again / name).read_bytes() == (ensemble_dir / name).read_bytes(), name
    assert {path.name for path in again.iterdir()} == {path.name for path in ensemble_dir.iterdir()}
