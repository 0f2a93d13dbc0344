"""Tables of datasets as they are found."""

import numpy as np

from recap_steam.dataset.inspection import Inspection
from recap_steam.report.run_times import duration
from recap_steam.report.tables import MISSING, Table, percent


def datasets_table(inspections: list[Inspection]) -> Table:
    """One row a dataset; dashes where a defect hides the numbers."""
    head = ["dataset", "type", "format", "defects", "episodes", "frames", "duration", "successes", "failures", "interventions"]
    head += ["frames an episode", "tasks", "cameras", "fingerprint"]
    return Table(head, [_row(item) for item in inspections])


def _row(item: Inspection) -> list[str]:
    dataset, episodes = item.dataset, item.episodes
    kind = MISSING if dataset is None else f"{dataset.version}, {dataset.fps:g} frames/s"
    cameras = MISSING if dataset is None else str(len(dataset.cameras))
    defects = str(len(item.defects)) if item.defects else "none"
    if episodes is None:
        return [item.name, item.config.type, kind, defects, *[MISSING] * 8, cameras, MISSING]
    success = int(episodes.success.sum())
    span = f"{episodes.length.min():,} to {episodes.length.max():,}"
    counts = [f"{len(episodes.length):,}", f"{episodes.num_frames:,}", duration(episodes.num_frames / dataset.fps)]
    outcomes = [f"{success:,}", f"{len(episodes.length) - success:,}", percent(episodes.interventions().mean())]
    names = [str(len(episodes.tasks)), cameras, episodes.fingerprint[:12]]
    return [item.name, item.config.type, kind, defects, *counts, *outcomes, span, *names]


def tasks_table(inspections: list[Inspection]) -> Table:
    """One row a dataset and task text; an episode counts with the task of its first frame."""
    rows = []
    for item in inspections:
        if item.episodes is None:
            continue
        codes = item.episodes.prompt_codes()
        first = codes[item.episodes.offsets[:-1]]
        for code, task in enumerate(item.episodes.tasks):
            success = np.asarray(item.episodes.success)[first == code]
            rate = percent(success.mean()) if len(success) else MISSING
            rows.append([item.name, task, f"{len(success):,}", f"{int((codes == code).sum()):,}", rate])
    return Table(["dataset", "task", "episodes", "frames", "success rate"], rows)


def cameras_table(inspections: list[Inspection]) -> Table:
    rows = []
    for item in inspections:
        for camera in item.dataset.cameras if item.dataset else ():
            size = " \N{MULTIPLICATION SIGN} ".join(str(side) for side in item.dataset.features[camera].get("shape") or ()) or MISSING
            files = "missing" if camera in item.without_video else MISSING if item.episodes is None else "there"
            rows.append([item.name, camera, item.dataset.camera_dtype(camera), size, files])
    return Table(["dataset", "camera", "kind", "shape", "files"], rows)


def notes_table(inspections: list[Inspection]) -> Table:
    return Table(["dataset", "note"], [[item.name, note] for item in inspections for note in item.notes])
