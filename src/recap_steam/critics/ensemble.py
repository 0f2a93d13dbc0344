"""Merging trained members, or members of other ensembles, into one ensemble: everything is checked before anything is written."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from recap_steam.critics.folder import write_folder, write_json
from recap_steam.critics.group_pass import weight_digests
from recap_steam.critics.progress_folder import ProgressCard, load_progress_card
from recap_steam.critics.progress_model import ProgressCritic
from recap_steam.errors import UserError
from recap_steam.files import publish_folder
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file
from recap_steam.steam_checks import member_source
from recap_steam.tokenizer import load_tokenizer
from recap_steam.weights import TensorFolder, shapes_of

TRAINED, MERGED = "train_member", "merge_ensemble"  # stages that write folders of progress critics


@dataclasses.dataclass(frozen=True)
class Member:
    """One member where it lies now: ``raw`` as it was asked for, ``index`` in the ensemble ``folder`` or None for a member's own folder."""

    raw: str
    folder: Path
    index: int | None
    card: ProgressCard
    lineage: Lineage

    def record(self) -> dict:
        """What made it: its own lineage, also where it comes out of an ensemble."""
        return dataclasses.asdict(self.lineage) if self.index is None else self.lineage.parameters["members"][self.index]

    def tensors(self) -> dict[str, Tensor]:
        """By the names of ``ProgressCritic``."""
        prefix = "" if self.index is None else f"members.{self.index}."
        found = load_file(self.folder / "model.safetensors")
        return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}

    def evaluation(self) -> dict[str, float | None]:
        metrics = json.loads((self.folder / "evaluation.json").read_text())
        title = "" if self.index is None else f"member{self.index}/"
        return {name.removeprefix(title): value for name, value in metrics.items() if name.startswith(title)}


def merge_stage(members: list[str], output: Path | str, overwrite: bool) -> None:
    """Rule merge_ensemble: write the ensemble of ``members``, each ``PATH`` or ``PATH:index``, in that order, to the folder ``output``.

    The ensemble's tag is the folder's name.

    Raises:
        UserError: a member is missing, incomplete or damaged; members differ in what an ensemble shares; ``output`` holds an ensemble and
            ``overwrite`` is not set.
    """
    output = Path(output)
    _check_output(output, overwrite)
    found = [open_member(raw) for raw in members]
    for member in found[1:]:
        _check_same(found[0], member)
    card = dataclasses.replace(found[0].card, ensemble_size=len(found), camera_maps=_camera_maps(found))
    part = output / ".part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _write(part, output.name, card, found, load_tokenizer(found[0].folder / "tokenizer"))
        publish_folder(part, output, last="lineage.json")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _check_output(output: Path, overwrite: bool) -> None:
    """Only an ensemble is ever replaced, and only when asked."""
    if not any((output / name).exists() for name in ("lineage.json", "config.json", "model.safetensors")):
        return
    if not overwrite:
        raise UserError(f"{output}: there is a model; give --overwrite to replace an ensemble, or another folder")
    path = output / "lineage.json"
    if not path.is_file() or Lineage.from_json(path.read_text(), path=path).stage != MERGED:
        raise UserError(f"{output}: what is there is no ensemble; give another folder")


def open_member(raw: str) -> Member:
    """Find one member, and check that its folder is complete and holds exactly the tensors that it says."""
    folder, index = member_source(raw)
    card = load_progress_card(folder)
    path = folder / "lineage.json"
    for needed in (path, folder / "evaluation.json", folder / "tokenizer/tokenizer.json"):
        if not needed.is_file():
            raise UserError(f"{needed}: not found; copy the whole folder, or train the member again")
    lineage = Lineage.from_json(path.read_text(), path=path)
    if lineage.stage not in (TRAINED, MERGED):
        raise UserError(f"{path}: made by {lineage.stage}; give the folder of a member or of an ensemble")
    check_lineage(lineage, path=path, remedy="copy the folder or train it again", statistics={"digests": weight_digests(folder)})
    size = card.ensemble_size if lineage.stage == MERGED else 1
    if index is None and size > 1:
        raise UserError(f"{folder}: an ensemble of {size}; give one of its members, {folder}:0 to {folder}:{size - 1}")
    if (index or 0) >= size:
        raise UserError(f"{raw}: there is no such member; the last index is {size - 1}")
    member = Member(raw, folder, (index or 0) if lineage.stage == MERGED else None, card, lineage)
    with torch.device("meta"):  # shapes only
        shapes = shapes_of(ProgressCritic(card.architecture).state_dict())
    prefixes = [f"members.{number}." for number in range(size)] if lineage.stage == MERGED else [""]
    TensorFolder(folder).check({prefix + name: shape for prefix in prefixes for name, shape in shapes.items()})
    return member


def _check_same(one: Member, other: Member) -> None:
    """Raise UserError at the first thing in which members differ and must not: then their scores could not be compared."""
    found, expected = _shared(other), _shared(one)
    for name in sorted(found.keys() | expected.keys()):
        has, needs = found.get(name, "absent"), expected.get(name, "absent")
        if has != needs:
            raise UserError(f"{other.raw}: {name} is {has}, but {needs} in {one.raw}; only members that agree can be merged")


def _shared(member: Member) -> dict[str, object]:
    """What all members of an ensemble have in common, by name."""
    card = member.card
    values = {name: getattr(card, name) for name in ("k", "cameras", "image_size", "max_token_len", "prompt_template", "length_scale")}
    for name, value in dataclasses.asdict(card.architecture).items():
        values |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    return values | {"tokenizer": digest_file(member.folder / "tokenizer/tokenizer.json")}


def _camera_maps(members: list[Member]) -> dict[str, dict[str, str | None]]:
    """The cameras of every dataset that any member learned from."""
    maps: dict[str, dict[str, str | None]] = {}
    for member in members:
        for dataset, keys in member.card.camera_maps.items():
            if maps.setdefault(dataset, keys) != keys:
                raise UserError(
                    f"{member.raw}: cameras of dataset '{dataset}' are {keys}, of another member {maps[dataset]}; train them alike"
                )
    return maps


def _write(folder: Path, tag: str, card: ProgressCard, members: list[Member], tokenizer: PreTrainedTokenizerFast) -> None:
    weights, manifest = {}, {}
    for number, member in enumerate(members):
        tensors = member.tensors()
        manifest[str(number)] = {
            "raw": member.raw,
            "folder": str(member.folder),
            "source_member_idx": member.index,
            "digest": _digest(tensors),
            "num_tensors": len(tensors),
        }
        weights |= {f"members.{number}.{name}": tensor for name, tensor in tensors.items()}
    _check_distinct(manifest)
    write_folder(folder, card, weights, tokenizer, _evaluation(members))
    write_json(folder / "merge_manifest.json", {"members": manifest})
    parameters = {
        "k": card.k,
        "num_bins": card.architecture.num_bins,
        "ensemble_size": card.ensemble_size,
        "cameras": card.cameras,
        "length_scale": card.length_scale and dataclasses.asdict(card.length_scale),
        "members": [member.record() for member in members],
    }
    inputs = {f"members/{number}": entry["digest"] for number, entry in manifest.items()}
    lineage = Lineage(MERGED, tag, None, parameters, inputs, {"digests": weight_digests(folder)}, code_digest(__name__))
    (folder / "lineage.json").write_text(lineage.to_json())


def _check_distinct(manifest: dict[str, dict]) -> None:
    """The same weights twice would agree with themselves, and their disagreement is what an ensemble is for."""
    given: dict[str, str] = {}
    for entry in manifest.values():
        if entry["digest"] in given:
            raise UserError(f"{entry['raw']}: the same weights as {given[entry['digest']]}; give every member once")
        given[entry["digest"]] = entry["raw"]


def _evaluation(members: list[Member]) -> dict[str, float | None]:
    """The members' means under the metrics' own names, and each member's under ``member<index>/...``; null where one has none."""
    found = [member.evaluation() for member in members]
    means = {}
    for name in set.intersection(*(set(metrics) for metrics in found)):
        values = [metrics[name] for metrics in found]
        means[name] = None if None in values else sum(values) / len(values)
    return means | {f"member{number}/{name}": value for number, metrics in enumerate(found) for name, value in metrics.items()}


def _digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 (hex) of names, shapes and values: the same in every file that the tensors lie in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
