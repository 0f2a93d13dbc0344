"""Strict loading of tensors: every missing, unexpected or misshapen tensor is an error. One tensor at a time, so nothing is held twice."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from recap_steam.errors import UserError
from recap_steam.model_config import weight_files

Shapes = dict[str, tuple[int, ...]]


class TensorFolder:
    """The tensors of the safetensors files of a folder, one file or a sharded set with its index.

    Attributes:
        files: the files, sorted.
        shapes: of every tensor, by its name without ``prefix``.

    Args:
        prefix: taken off the names of tensors that have it.

    Raises:
        UserError: no weights in the folder, an unreadable file or index, or a tensor that is there twice.
    """

    def __init__(self, folder: Path | str, prefix: str = ""):
        self.folder = Path(folder)
        self.files = weight_files(self.folder)
        self.shapes: Shapes = {}
        self._places: dict[str, tuple[Path, str]] = {}
        for path in self.files:
            with _open(path) as file:
                for stored in file.keys():  # noqa: SIM118 (not a mapping)
                    name = stored.removeprefix(prefix)
                    if name in self.shapes:
                        raise UserError(f"{path}: tensor {name} is there twice; these weights are damaged")
                    self.shapes[name], self._places[name] = tuple(file.get_slice(stored).get_shape()), (path, stored)

    def check(self, expected: Shapes, optional: frozenset[str] = frozenset()) -> None:
        """Raise UserError where the tensors are not exactly the ``expected`` ones; ``optional`` ones may be absent."""
        missing = sorted(expected.keys() - self.shapes.keys() - optional)
        extra = sorted(self.shapes.keys() - expected.keys())
        misshapen = [name for name in expected if name in self.shapes and self.shapes[name] != expected[name]]
        for problem, names in (("lacks", missing), ("has an unknown", extra), ("has a misshapen", misshapen)):
            if names:
                shapes = f": {self.shapes[names[0]]} instead of {expected[names[0]]}" if names is misshapen else ""
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                remedy = "these weights are not of this architecture: give others, or correct the model's sizes"
                raise UserError(f"{self.folder}: {problem} tensor {names[0]}{shapes}{more}; {remedy}")

    def copy_into(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy each named tensor into its target, in the target's dtype; targets that the folder does not have are left as they are."""
        for path in self.files:
            with _open(path) as file, torch.no_grad():
                for name in targets:
                    place, stored = self._places.get(name, (None, None))
                    if place == path:
                        targets[name].copy_(file.get_tensor(stored))


def load_model(model: nn.Module, folder: Path | str) -> None:
    """Load a folder that holds exactly ``model``'s own tensors.

    Raises:
        UserError: the folder's tensors are not exactly the model's.
    """
    tensors, targets = TensorFolder(folder), model.state_dict()
    tensors.check(shapes_of(targets))
    tensors.copy_into(targets)


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise UserError(f"{path}: not found, so there are no weights to load; copy or train them again") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}); copy or train it again") from None
