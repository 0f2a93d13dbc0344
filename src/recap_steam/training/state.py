"""Resumable training state: one writer, saved whole or not at all, exact.

``{root}/lock``                          held by the running job (``devices.exclusive``)
``{root}/{key}/step_{n}/``               model and optimiser (DCP shards, loadable by any number of processes) and progress.json
``{root}/{key}/weights_{n}.pt``          full weights of the best step so far
``{root}/{key}/metrics.jsonl``           see ``training.metrics``

``key`` is a digest of everything that determines the run, so that a changed parameter starts anew. Beside the run's own key only the one
used last is kept, so that a parameter can be tried and taken back. The folder is undeclared to the workflow and may be deleted whenever no
job runs.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict

from recap_steam import devices
from recap_steam.errors import UserError

# A full device in the words of the system, and of torch, whose writer finds that its file is shorter than it should be.
_NO_SPACE = re.compile(r"No space left|File too large|quota exceeded|unexpected pos|PytorchStreamWriter failed|iostream error", re.I)
_FULL_BYTES = 2**20  # where less than this is free, that is the cause


@dataclasses.dataclass
class Progress:
    """What the loop knows besides tensors. ``best_*`` are of the checkpoint to export; ``skipped`` counts non-finite steps in a row."""

    step: int = 0
    skipped: int = 0
    best_step: int | None = None
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)


class StateFolder:
    """Saves and restores the state of one run; see the module's docstring for the files.

    Removes what older runs left under ``root``: every process of the one job that may write there creates it.
    """

    def __init__(self, root: Path, key: str):
        self.folder = Path(root) / key
        self.metrics_path = self.folder / "metrics.jsonl"
        devices.on_main(self._drop_superseded)

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the state of ``progress.step`` beside its final name, rename it and drop the one before. Every process calls it."""
        final = self._step_folder(progress.step)
        part = final.with_suffix(".part")
        model_state, optimizer_state = get_state_dict(model, optimizer)
        with self.writing(final, part):
            devices.on_main(lambda: _fresh_folder(part))
            dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=part)
            devices.on_main(lambda: self._publish(part, final, progress))

    def resume(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the newest state into model and optimiser and return its progress; a new Progress where there is none."""
        newest = devices.on_main(self._newest)
        if newest is None:
            return Progress()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        dcp.load(state, checkpoint_id=newest)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        return _read_progress(newest)

    def keep_weights(self, model: nn.Module, step: int) -> None:
        """Write the full weights of ``step``, the new candidate for export; drop the others but the one that the saved state names."""
        weights, path = full_weights(model), self._weights_path(step)
        part = path.with_suffix(".part")
        with self.writing(path, part):
            devices.on_main(lambda: _save_atomically(weights, part, path))
        devices.on_main(lambda: self._drop_weights(step, _read_progress(self._newest()).best_step))

    def load_weights(self, step: int) -> dict[str, torch.Tensor]:
        return torch.load(self._weights_path(step), weights_only=True, map_location="cpu", mmap=True)

    @contextlib.contextmanager
    def writing(self, path: Path, part: Path) -> Iterator[None]:
        """Turn a failed write of ``path`` into one line, and remove what was written of ``part``."""
        try:
            yield
        except (OSError, RuntimeError, SafetensorError, CheckpointException) as error:
            problem = _problem(error, path)  # before space is freed
            if devices.is_main():
                _remove(part)
            start = "the last saved state is kept" if any(self.folder.glob("step_*[0-9]")) else "no state was saved yet"
            raise UserError(f"{path}: {problem}; {start}") from error

    def _publish(self, part: Path, final: Path, progress: Progress) -> None:
        (part / "progress.json").write_text(json.dumps(dataclasses.asdict(progress)))
        shutil.rmtree(final, ignore_errors=True)
        os.replace(part, final)
        for folder in self.folder.glob("step_*"):
            if folder != final:
                shutil.rmtree(folder)
        self._drop_weights(progress.best_step)

    def _drop_weights(self, *but: int | None) -> None:
        kept = [self._weights_path(step) for step in but if step is not None]
        for weights in self.folder.glob("weights_*"):
            if weights not in kept:
                weights.unlink()

    def _newest(self) -> Path | None:
        """The folder of the last saved state."""
        return max(self.folder.glob("step_*[0-9]"), default=None)

    def _drop_superseded(self) -> None:
        """Keep of the other runs the one that was written last: a state is three times a model's size."""
        others = [folder for folder in self.folder.parent.glob("*/") if folder != self.folder]
        for folder in sorted(others, key=lambda folder: folder.stat().st_mtime)[:-1]:
            shutil.rmtree(folder)

    def _step_folder(self, step: int) -> Path:
        return self.folder / f"step_{step:09d}"

    def _weights_path(self, step: int) -> Path:
        return self.folder / f"weights_{step:09d}.pt"


def _read_progress(step_folder: Path | None) -> Progress:
    return Progress(**json.loads((step_folder / "progress.json").read_text())) if step_folder else Progress()


def _problem(error: Exception, path: Path) -> str:
    """What went wrong and what to do. torch and safetensors hide a full device in exceptions of their own."""
    if _NO_SPACE.search(str(error)) or shutil.disk_usage(next(filter(Path.exists, path.parents))).free < _FULL_BYTES:
        return "no space left on the device; free some and run again"
    lines = [line for line in str(error).splitlines() if line.strip()]
    cause = lines[-1].strip() if lines else type(error).__name__
    return f"cannot be written ({cause}); check space and permissions and run again"


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """The whole model's weights on the CPU, in process 0; an empty mapping elsewhere. Every process calls it."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def require_finite(weights: dict[str, torch.Tensor], title: str) -> None:
    """Raise UserError where a weight is NaN or infinite: a run that is shorter than ``nonfinite_patience`` ends without a complaint."""
    broken = next((name for name, tensor in weights.items() if not tensor.isfinite().all()), None)
    if broken:
        raise UserError(f"{title}: weights {broken} are not finite, nothing is exported; look at the weights that it started from")


def _fresh_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)


def _save_atomically(weights: dict[str, torch.Tensor], part: Path, path: Path) -> None:
    torch.save(weights, part)
    os.replace(part, path)
