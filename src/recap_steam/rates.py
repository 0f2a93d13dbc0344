"""What work cost: every finished job leaves the time that one unit of its work took, for ``recap_steam.costs`` to plan with.

Rates go to the folder that the environment variable RECAP_STEAM_RATES names, as the workflow does; without it none is left. They are about
time, so they are no output: a job whose outputs are there leaves nothing.
"""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recap_steam.errors import UserError
from recap_steam.files import atomic_output
from recap_steam.lineage import digest_json

FOLDER = "RECAP_STEAM_RATES"
CPU = "CPU"


@dataclasses.dataclass(frozen=True)
class Rate:
    """What one unit of work of a stage took.

    Attributes:
        stage: rule.
        work: all that determines how long a unit takes, but the device.
        unit: what is counted: sample, frame or image.
        device: its name, ``CPU`` without an accelerator.
        processes: how many shared the work, each on a device of its own.
        device_seconds: per unit: time x processes / units.
    """

    stage: str
    work: dict[str, Any]
    unit: str
    device: str
    processes: int
    device_seconds: float

    def save(self, folder: Path) -> None:
        """Write the rate; it replaces an older one of the same work on the same device."""
        device = re.sub(r"\W+", "-", self.device)
        with atomic_output(folder / f"{self.stage}_{digest_json(self.work)[:12]}_{device}.json") as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n")


def leave(
    stage: str, work: Callable[[], dict[str, Any]], unit: str, units: int, seconds: float, device: str = CPU, processes: int = 1
) -> None:
    """Leave the rate of a job that did ``units`` of work in ``seconds``, its start not counted. Call it in one process.

    ``work`` gives the ``Rate``'s; it is called only where rates are wanted. A rate that cannot be written costs no job: another one of the
    same work may be writing it at this moment.
    """
    if units and (folder := os.environ.get(FOLDER)):
        try:
            Rate(stage, work(), unit, device, processes, seconds * processes / units).save(Path(folder))
        except (UserError, OSError) as error:
            print(f"no rate for `make plan` is left: {error}", file=sys.stderr)


def trained_model(folder: Path | None) -> dict[str, Any] | None:
    """The section ``model`` of the configuration that a critic or policy folder was trained with, by its lineage record; None without."""
    if folder is None:
        return None
    parameters = json.loads((folder / "lineage.json").read_text())["parameters"]
    if "members" in parameters:  # an ensemble: all are alike
        parameters = parameters["members"][0]["parameters"]
    return parameters.get("policy", parameters)["model"]


def training_work(config: Any) -> dict[str, Any]:
    """What determines the time of a sample in training: of a ``TrainingConfig`` with a model."""
    work = {"model": dataclasses.asdict(config.model), "cameras": len(config.cameras)}
    return work | {"gradient_checkpointing": config.gradient_checkpointing, "compile_model": config.compile_model}


def pass_work(model: dict[str, Any], cameras: int, members: int = 1) -> dict[str, Any]:
    """What determines the time of a frame in a critic's pass."""
    return {"model": model, "cameras": cameras, "members": members}


def rollout_work(environment: Any, model: dict[str, Any] | None, guidance_scale: float | None) -> dict[str, Any]:
    """What determines the time of a simulated frame: of an ``EnvironmentConfig``, of the policy (None: the expert), and whether guidance
    makes it predict twice."""
    guided = guidance_scale is not None and guidance_scale not in (0.0, 1.0)
    return {"environment": dataclasses.asdict(environment), "model": model, "guided": guided}


def cache_work(image_size: int) -> dict[str, Any]:
    """What determines the time of an image in the frame cache, but for the video that it comes from."""
    return {"image_size": image_size}
