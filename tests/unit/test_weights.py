import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from recap_steam.errors import UserError
from recap_steam.weights import TensorFolder, load_model


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


@pytest.fixture
def tensors():
    return model().state_dict()


def save_shards(folder, tensors):
    """As transformers saves a large model: several files and an index."""
    names = {name: f"model-{number:05}-of-{len(tensors):05}.safetensors" for number, name in enumerate(tensors, 1)}
    for name, file in names.items():
        save_file({name: tensors[name]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


@pytest.mark.parametrize("save", [lambda folder, tensors: save_file(tensors, folder / "model.safetensors"), save_shards])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_file_and_a_sharded_set_of_any_dtype_load(tensors, tmp_path, save, dtype):
    save(tmp_path, {name: tensor.to(dtype) for name, tensor in tensors.items()})
    other = model(seed=1)
    load_model(other, tmp_path)
    assert all(torch.equal(tensor, tensors[name].to(dtype).float()) for name, tensor in other.state_dict().items())
    assert all(tensor.dtype == torch.float32 for tensor in other.state_dict().values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("1.bias"), r"lacks tensor 1\.bias"),
        (lambda t: t.update(extra=torch.zeros(1), other=torch.zeros(1)), "has an unknown tensor extra and 1 more"),
        (lambda t: t.update({"0.weight": torch.zeros(3, 5)}), r"has a misshapen tensor 0\.weight: \(3, 5\) instead of \(3, 2\)"),
    ],
)
def test_defect_15_every_missing_unknown_or_misshapen_tensor_is_an_error_and_loads_nothing(tensors, tmp_path, change, message):
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    other, before = model(seed=1), model(seed=1).state_dict()
    with pytest.raises(UserError, match=message):
        load_model(other, tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


def test_a_prefix_is_optional_but_no_tensor_is_there_twice(tensors, tmp_path):
    save_file(
        {f"model.{name}" if name.startswith("0") else name: tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors"
    )
    folder = TensorFolder(tmp_path, prefix="model.")
    assert folder.shapes.keys() == tensors.keys()
    targets = model(seed=1).state_dict()
    folder.copy_into(targets)
    assert all(torch.equal(targets[name], tensors[name]) for name in tensors)
    save_file({"model.a": torch.zeros(1), "a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="tensor a is there twice"):
        TensorFolder(tmp_path, prefix="model.")


def test_unreadable_folders_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"model\.safetensors: not found"):
        TensorFolder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        TensorFolder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="not readable as an index"):
        TensorFolder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    with pytest.raises(UserError, match=r"gone\.safetensors: not found"):
        TensorFolder(tmp_path)
